"""Noise of kind `withhold_release`: how its streams and searches share epsilon. All public.

Laplace noise. Each of J streams has an equal part of epsilon, as in the source; with truncated groups all streams have
3/4 of it together, and each search an equal part of the rest. The whole is epsilon by adaptive composition.

Gaussian noise. One scale for all numbers, which are seen as one vector: the squares of all distances add up. The counts
of the searches are multiplied by a whole number `factor`, so that about a quarter of the sum is theirs.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from hatcast.stream.continual._calibration import Calibration
from hatcast.stream.continual._digits import Digits
from hatcast.stream.continual._groups import STREAMS_SHARE, Group
from hatcast.stream.continual._interface import Setting
from hatcast.stream.continual.kary import best_digits
from hatcast.stream.mechanisms import Distances
from hatcast.stream.policy.hybrid_keys import NoiseKind

MISSED: Final = 0.05
"""largest probability that a noise of a search is too large for it"""


@dataclass(frozen=True, slots=True)
class Stream:
    """Noise of one group's items.

    digits  the tree of prefixes, from the first slot with an item on
    nodes   noise of its nodes
    counts  noise of the counts of its search; not used without truncation
    factor  of the counts
    """

    group: Group
    digits: Digits
    nodes: Calibration
    counts: Calibration
    factor: int = 1

    @property
    def queries(self) -> int:
        """Counts that a search asks for."""
        return queries(self.group)

    @property
    def least(self) -> int:
        """Items for which a search is started: four times a bound of all its noises."""
        if not self.queries:
            return 1
        failure = MISSED / self.queries
        if self.counts.setting.noise is NoiseKind.LAPLACE:  # P(|X| > x) <= exp(-floor(x) / scale)
            return 4 * math.ceil(self.counts.scale * math.log(1 / failure) + 1)
        quantile = math.sqrt(2 * math.log(2 / failure))  # the lemma of `mechanisms.gaussian`: X is within 2 of G
        return 4 * math.ceil((self.counts.scale * quantile + 2) / self.factor)


def queries(group: Group) -> int:
    """Return the number of counts that a search for the median's bin asks for."""
    return (group.bins - 1).bit_length()


def streams(setting: Setting, groups: tuple[Group, ...]) -> tuple[Stream, ...]:
    """Return the noise of each group's items."""
    trees = [_tree(setting, group) for group in groups]
    moved = [tree.most_nodes(1, 1) for tree in trees]
    if setting.noise is NoiseKind.LAPLACE:
        return _laplace(setting, groups, trees, moved)
    return _gaussian(setting, groups, trees, moved)


def _tree(setting: Setting, group: Group) -> Digits:
    """Return the best tree for one item of each user, over the slots at which there may be one."""
    return best_digits(replace(setting, slots=setting.slots - group.first, max_slots=1, branching=None))


def _laplace(setting: Setting, groups: tuple[Group, ...], trees: list[Digits], moved: list[int]) -> tuple[Stream, ...]:
    searches = sum(group.step > 0 for group in groups)
    share = STREAMS_SHARE if searches else Fraction(1)
    whole = Fraction(setting.epsilon)
    each = replace(setting, epsilon=_below(whole * share / len(groups)))
    search = replace(setting, epsilon=_below(whole * (1 - share) / searches)) if searches else setting
    made = []
    for group, tree, nodes in zip(groups, trees, moved, strict=True):
        asked = queries(group)
        noises = Calibration(each, Distances(nodes * group.width, nodes * group.width**2))
        made.append(Stream(group, tree, noises, Calibration(search, Distances(asked, asked)) if asked else noises))
    return tuple(made)


def _gaussian(setting: Setting, groups: tuple[Group, ...], trees: list[Digits], moved: list[int]) -> tuple[Stream, ...]:
    asked = sum(queries(group) for group in groups)
    widths = [nodes * group.width for group, nodes in zip(groups, moved, strict=True)]
    squares = [nodes * group.width**2 for group, nodes in zip(groups, moved, strict=True)]
    factor = max(1, math.isqrt(sum(squares) // (3 * asked))) if asked else 1
    shared = Calibration(setting, Distances(sum(widths) + factor * asked, sum(squares) + factor**2 * asked))
    return tuple(Stream(group, tree, shared, shared, factor) for group, tree in zip(groups, trees, strict=True))


def _below(exact: Fraction) -> float:
    """Return the largest float of at most `exact`: the parts never exceed epsilon together."""
    rounded = float(exact)
    return rounded if Fraction(rounded) <= exact else math.nextafter(rounded, 0.0)
