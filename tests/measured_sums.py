"""Errors of continual mechanisms as measured: noise of their own scale, through the real `advance`, in many runs."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.plan.continual.kinds import Errors, errors_of
from hatcast.lab.plan.continual.users import Floats, PlannedRun, UsersBySlot, run_of
from hatcast.stream.continual import Entries, Mechanism, Step
from hatcast.stream.continual.withhold_release import WithholdRelease
from hatcast.stream.mechanisms import Distances, NoisyVector
from hatcast.stream.mechanisms.gaussian import smallest_vector_scale
from hatcast.stream.mechanisms.laplace import smallest_scale
from hatcast.stream.policy.method import NoiseKind

IMPULSE = 2**30
_MILLI = 1000
_CHUNK = 20_000


@dataclass
class Impulses:
    """Noise that is `IMPULSE` for draw number j of cell j and 0 for all others; cells take turns within a call.

    scales   of the draws of a cell so far
    """

    cells: int
    scales: list[float] = field(default_factory=list)

    def laplace_many(self, values: NDArray[np.int64], distance: int, epsilon: float) -> NoisyVector:
        return self._moved(values, smallest_scale(distance, epsilon))

    def gaussian_many(
        self, values: NDArray[np.int64], distances: Distances, epsilon: float, delta: float
    ) -> NoisyVector:
        return self._moved(values, smallest_vector_scale(distances, epsilon, delta))

    def _moved(self, values: NDArray[np.int64], scale: float) -> NoisyVector:
        moved = values.reshape(self.cells, -1).copy()
        drawn, new = len(self.scales), moved.shape[1]
        for cell in range(drawn, min(drawn + new, self.cells)):
            moved[cell, cell - drawn] += IMPULSE
        self.scales += [scale] * new
        return NoisyVector(moved.reshape(-1), scale)


def decoded(mechanism: Mechanism) -> tuple[Floats, list[float]]:
    """The decode matrix [n, draws], the running sums of noise that is 1 in one draw; and the scales of the draws."""
    if isinstance(mechanism, WithholdRelease):
        assert all(stream.least == 1 for stream in mechanism.streams), "searches of medians are not linear"
    draws = len(_run(mechanism, 1)[1].scales)
    totals, impulses = _run(mechanism, draws + 1)  # the last cell has no noise
    return (totals[:, :-1] - totals[:, -1:]) / IMPULSE, impulses.scales


def _run(mechanism: Mechanism, cells: int) -> tuple[Floats, Impulses]:
    """Advance cells with one user in each slot, who stays for all its slots, and the value 0."""
    setting, noise = mechanism.setting, Impulses(cells)
    states: list[bytes | None] = [None] * cells
    totals = []
    for index in range(setting.slots):
        turn, place = divmod(index, setting.min_separation)
        user = turn // setting.participations * setting.min_separation + place
        entries = Entries(np.array([user], np.uint64), np.zeros(1, np.int64))
        advanced = mechanism.advance([Step(state, index, entries) for state in states], noise)
        states = [each.state for each in advanced]
        totals.append([each.total for each in advanced])
    return np.array(totals), noise


def measured(mechanism: Mechanism, users: UsersBySlot, bound: float, runs: int, random: np.random.Generator) -> Errors:
    """The errors of the running sums of so many runs. How many values a mean has does not depend on noise."""
    matrix, scales = decoded(mechanism)
    draw = random.laplace if mechanism.setting.noise is NoiseKind.LAPLACE else random.normal
    squares = np.zeros(len(matrix))
    for first in range(0, runs, _CHUNK):
        noise = draw(0, scales, (min(_CHUNK, runs - first), matrix.shape[1]))
        squares += ((noise @ matrix.T) ** 2).sum(axis=0)
    deviations = np.sqrt(squares / runs)[None, :] / _MILLI
    return errors_of(PlannedRun(deviations, run_of(mechanism, users).values), users, bound)
