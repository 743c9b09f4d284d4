"""Streams of kind `withhold_release` through the real `advance`, their private states, and noises for them."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from hatcast.stream.continual import Entries, Step, SumSetting
from hatcast.stream.continual import _withheld as withheld
from hatcast.stream.continual._digits import Integers
from hatcast.stream.continual._withheld import Group, HorizonUsers, Withheld
from hatcast.stream.continual.withhold_release import WithholdRelease
from hatcast.stream.mechanisms import Distances, NoisyVector
from hatcast.stream.policy.method import NoiseKind

BOUND: Final = 1000
Slots = dict[int, dict[int, int]]
"""index -> pseudonym -> value"""


def setting(slots: int, most: int, separation: int = 1, epsilon: float = 1.0) -> SumSetting:
    return SumSetting(slots, most, separation, BOUND, epsilon, 0.0, NoiseKind.LAPLACE)


class Table:
    """Noise of zero in nodes, and given answers to the counts of searches, which are recorded.

    answers  outputs of an earlier run's searches, to be repeated; None: exact counts
    """

    def __init__(self, mechanism: WithholdRelease, answers: Sequence[Integers] | None = None) -> None:
        self.counts = {stream.counts.distances.l1: stream for stream in mechanism.streams if stream.queries}
        self.answers = None if answers is None else iter(answers)
        self.asked: list[Integers] = []
        self.given: list[Integers] = []

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        if distance not in self.counts:
            return NoisyVector(values, 0.0)
        given = values if self.answers is None else next(self.answers)
        self.asked.append(values)
        self.given.append(given)
        return NoisyVector(given, 0.0)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        raise AssertionError


def entries(values: dict[int, int]) -> Entries:
    return Entries(np.array(list(values), np.uint64), np.array(list(values.values()), np.int64))


def states(mechanism: WithholdRelease, slots: Slots, noise: Any) -> list[Withheld]:
    """The cell's private state after each slot, read from its bytes."""
    state, after = None, []
    for index, values in slots.items():
        (advanced,) = mechanism.advance([Step(state, index, entries(values))], noise)
        state = advanced.state
        after.append(read(mechanism, state))
        assert advanced.count == sum(
            each.number * group.size for each, group in zip(after[-1].streams, mechanism.groups, strict=True)
        )
    return after


def read(mechanism: WithholdRelease, state: bytes) -> Withheld:
    numbers = mechanism._states.unpack(state, mechanism.setting.slots).numbers
    return withheld.read(numbers, [stream.digits.numbers for stream in mechanism.streams])


def sums(after: list[Withheld]) -> Integers:
    """x_j of each slot and stream, [slots, streams]."""
    totals = np.array([[each.total for each in cell.streams] for cell in after], np.int64)
    return np.diff(totals, axis=0, prepend=np.zeros((1, totals.shape[1]), np.int64))


# 6 users in up to 7 of 12 slots
arrivals = st.lists(st.sets(st.integers(0, 11), max_size=7), min_size=1, max_size=6)


ENTER: Final = HorizonUsers.enter


def each_value(self: HorizonUsers, values: Entries, made: tuple[Group, ...]) -> dict[int, Integers]:
    """A mutant: values are not withheld."""
    found = ENTER(self, values, made)
    return found | {0: values.values}
