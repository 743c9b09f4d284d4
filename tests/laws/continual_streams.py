"""Streams through the real `advance`, and a noise that keeps what it is asked for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual import KINDS, Advanced, Entries, Mechanism, Step, SumSetting
from hatcast.stream.mechanisms import Distances, NoisyVector
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind

Integers = NDArray[np.int64]

NOISES: Final[dict[ContinualKind, tuple[NoiseKind, ...]]] = {
    **{kind: tuple(NoiseKind) for kind in KINDS},
    ContinualKind.LAPLACE: (NoiseKind.LAPLACE,),
    ContinualKind.GAUSSIAN: (NoiseKind.GAUSSIAN,),
    ContinualKind.KARY: (NoiseKind.LAPLACE,),
    ContinualKind.WITHHOLD_RELEASE: (NoiseKind.LAPLACE,),
}
MECHANISMS: Final = [(kind, noise) for kind in KINDS for noise in NOISES[kind]]

VALUED: Final = {ContinualKind.LAPLACE, ContinualKind.GAUSSIAN, ContinualKind.TOEPLITZ, ContinualKind.BLT}
"""kinds that ask for noisy values; the others ask for noise alone"""
LINEAR: Final = VALUED | {ContinualKind.TREE, ContinualKind.KARY}


class Asked(NamedTuple):
    """One call of a noise."""

    values: Integers
    l1: int
    l2_squared: int | None
    epsilon: float
    delta: float


class Recording:
    """Adds `drawn(number of the draw)` to what it is asked for, or returns only that. Keeps what it was asked for.

    deaf   outputs do not depend on values: all that an onlooker sees is fixed
    """

    def __init__(self, drawn: Callable[[int], int] = lambda _: 0, *, deaf: bool = False) -> None:
        self.calls: list[Asked] = []
        self._drawn, self._deaf, self._number = drawn, deaf, 0

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        return self._answer(Asked(values.copy(), distance, None, epsilon, 0.0))

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        return self._answer(Asked(values.copy(), distances.l1, distances.l2_squared, epsilon, delta))

    def _answer(self, asked: Asked) -> NoisyVector:
        self.calls.append(asked)
        numbers = range(self._number, self._number + len(asked.values))
        self._number += len(asked.values)
        noise = np.array([self._drawn(number) for number in numbers], np.int64)
        return NoisyVector(noise if self._deaf else asked.values + noise, 1.0)

    @property
    def values(self) -> Integers:
        """All numbers that were asked for, in order."""
        return np.concatenate([call.values for call in self.calls]) if self.calls else np.zeros(0, np.int64)


def setting_of(noise: NoiseKind, slots: int, participation: tuple[int, int] = (1, 1), bound: int = 1000) -> SumSetting:
    """A setting with epsilon 0.7. participation: max_slots, min_separation."""
    return SumSetting(slots, *participation, bound, 0.7, 1e-6 if noise is NoiseKind.GAUSSIAN else 0.0, noise)


def entries(*values: int) -> Entries:
    """Users with these values."""
    return Entries(np.arange(len(values), dtype=np.uint64), np.array(values, np.int64))


def run(mechanism: Mechanism, slots: dict[int, Sequence[int]], noise: Recording) -> list[Advanced]:
    """Advance one cell slot by slot. slots: index -> values of its users."""
    state, found = None, []
    for index, values in slots.items():
        (advanced,) = mechanism.advance([Step(state, index, entries(*values))], noise)
        state = advanced.state
        found.append(advanced)
    return found


def patterns(slots: int, most: int, separation: int) -> Iterator[tuple[int, ...]]:
    """All sets of slots that one user may be in."""
    for number in range(1, most + 1):
        for pattern in combinations(range(slots), number):
            if all(later - earlier >= separation for earlier, later in pairwise(pattern)):
                yield pattern


def changes(slots: int, most: int, separation: int) -> Iterator[dict[int, bool]]:
    """All ways in which one user may move its sums as far as it can: slot -> upwards."""
    for pattern in patterns(slots, most, separation):
        for signs in product((True, False), repeat=len(pattern)):
            yield dict(zip(pattern, signs, strict=True))


def made(kind: ContinualKind, noise: NoiseKind, slots: int = 12, bound: int = 1000) -> Mechanism:
    return KINDS[kind](setting_of(noise, slots, (2, 1), bound))


def outputs(number: int) -> int:
    """Outputs that an onlooker has seen: fixed, and far from each other."""
    return (number * 7919 + 13) % 100_003 - 50_000
