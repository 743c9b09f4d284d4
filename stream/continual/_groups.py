"""Groups of a user's values for kind `withhold_release`: their sizes and the ranges of their sums. All public.

A user's values in a cell form groups of 1, 1, 2, 4, 8, ... in the order of slots; the last has what `max_slots` leaves.
The sum of a group is an item. Items of the j-th groups of all users form stream j, in which each user has one item.

An item of s values is in [0, s U]. If all values are independent with the mean m, an item is within
d = U sqrt(s ln(2 / OUTSIDE) / 2) of s m with a probability of at least 1 - OUTSIDE [Hoeffding 1963]. So if s is large,
items may be truncated to an interval of width 5 d around a private estimate of s m (`_medians`).
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from hatcast.stream.continual._interface import Setting

OUTSIDE: Final = 0.05
"""largest probability that an item of independent values is more than d from its mean"""
_INTERVAL: Final = 5  # steps d: a bin, and two on each side
STREAMS_SHARE: Final = Fraction(3, 4)
"""of epsilon, for the streams if items are truncated; the rest is for the estimates"""


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a user's values.

    size   s, of values
    end    values that a user has entered when the group is complete
    first  index of the first slot at which it may be complete
    range  milli-units: an item is in [0, range]
    step   milli-units: d, if items are truncated; else 0
    """

    size: int
    end: int
    first: int
    range: int
    step: int = 0

    @property
    def width(self) -> int:
        """The largest difference of two items after truncation, milli-units."""
        return _INTERVAL * self.step if self.step else self.range

    @property
    def bins(self) -> int:
        """Bins of width `step` that cover the range; 1 without truncation."""
        return -(-self.range // self.step) if self.step else 1

    def lowest(self, median_bin: int) -> int:
        """Return the lower end of the interval around a bin, within the range."""
        return max(0, min((median_bin - 2) * self.step, self.range - self.width))


def groups(setting: Setting) -> tuple[Group, ...]:
    """Return the groups of a user. Large ones are truncated if that makes the sum of the streams' variances smaller."""
    plain = _untruncated(setting)
    logarithm = math.log(2 / OUTSIDE) / 2
    steps = [math.ceil(setting.bound * math.sqrt(group.size * logarithm)) for group in plain]
    choices = [plain]
    for size in sorted({group.size for group in plain}):
        truncated = [
            group.size >= size and _INTERVAL * step < group.range for group, step in zip(plain, steps, strict=True)
        ]
        choices.append(
            tuple(
                replace(group, step=step) if chosen else group
                for group, step, chosen in zip(plain, steps, truncated, strict=True)
            )
        )
    return min(choices, key=_cost)


def _cost(chosen: tuple[Group, ...]) -> Fraction:
    """Return a number in proportion to the sum of the streams' variances."""
    share = STREAMS_SHARE if any(group.step for group in chosen) else Fraction(1)
    return sum(group.width**2 for group in chosen) / share**2


def _untruncated(setting: Setting) -> tuple[Group, ...]:
    most, separation = setting.participations, setting.min_separation
    made: list[Group] = []
    end = 0
    while end < most:
        size = min(max(end, 1), most - end)
        end += size
        made.append(Group(size, end, (end - 1) * separation, size * setting.bound))
    return tuple(made)
