"""Noise of kind `withhold_release`: how its streams and searches share epsilon. All public.

Each of J streams has an equal part of epsilon, as in the source. With truncated groups all streams have 3/4 of it
together, and each search an equal part of the rest. The whole is epsilon-private by adaptive composition.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from hatcast.stream.continual._calibration import Calibration
from hatcast.stream.continual._digits import Digits
from hatcast.stream.continual._groups import STREAMS_SHARE, Group
from hatcast.stream.continual._interface import Setting
from hatcast.stream.continual.kary import kary_digits
from hatcast.stream.mechanisms import Distances

MISSED: Final = 0.05
"""largest probability that a noise of a search is too large for it"""


@dataclass(frozen=True, slots=True)
class Stream:
    """Noise of one group's items.

    digits  the tree of prefixes, from the first slot with an item on
    nodes   noise of its nodes
    counts  noise of the counts of its search; not used without truncation
    """

    group: Group
    digits: Digits
    nodes: Calibration
    counts: Calibration

    @property
    def queries(self) -> int:
        """Counts that a search asks for."""
        return queries(self.group)

    @property
    def least(self) -> int:
        """Items for which a search is started: four times a bound of all its noises."""
        if not self.queries:
            return 1
        # P(|X| > x) <= exp(-floor(x) / scale), for each count
        return 4 * math.ceil(self.counts.scale * math.log(self.queries / MISSED) + 1)


def queries(group: Group) -> int:
    """Return the number of counts that a search for the median's bin asks for."""
    return (group.bins - 1).bit_length()


def streams(setting: Setting, groups: tuple[Group, ...]) -> tuple[Stream, ...]:
    """Return the noise of each group's items. Raises ValueError for Gaussian noise (`kary`)."""
    searches = sum(group.step > 0 for group in groups)
    share = STREAMS_SHARE if searches else Fraction(1)
    whole = Fraction(setting.epsilon)
    each = replace(setting, epsilon=_below(whole * share / len(groups)))
    search = replace(setting, epsilon=_below(whole * (1 - share) / searches)) if searches else setting
    made = []
    for group in groups:
        # One item of each user, over the slots at which there may be one.
        tree = kary_digits(replace(setting, slots=setting.slots - group.first, max_slots=1, branching=None))
        nodes, asked = tree.most_nodes(1, 1), queries(group)
        noises = Calibration(each, Distances(nodes * group.width, nodes * group.width**2))
        made.append(Stream(group, tree, noises, Calibration(search, Distances(asked, asked)) if asked else noises))
    return tuple(made)


def _below(exact: Fraction) -> float:
    """Return the largest float of at most `exact`: the parts never exceed epsilon together."""
    rounded = float(exact)
    return rounded if Fraction(rounded) <= exact else math.nextafter(rounded, 0.0)
