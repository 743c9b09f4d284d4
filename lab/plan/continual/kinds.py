"""Errors and memory of each kind of running sum and mean. All numbers come from the mechanisms themselves."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from hatcast.lab.plan.continual import Criterion
from hatcast.lab.plan.continual.users import (
    Floats,
    Participation,
    PlannedRun,
    UsersBySlot,
    equal_users,
    memory_of,
    run_of,
)
from hatcast.stream.continual import KINDS, Mechanism, SumSetting
from hatcast.stream.continual.toeplitz import MAX_SLOTS
from hatcast.stream.policy.continual_keys import BUFFERS, NOISES, ContinualKind, part_of_delta
from hatcast.stream.policy.method import NoiseKind

INDEPENDENT: Final = (ContinualKind.LAPLACE, ContinualKind.GAUSSIAN)  # kinds that add noise to each slot alone
_BRANCHINGS: Final = (3, 5, 7, 9, 11, 13, 17, 21)
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class ErrorSpread:
    """Maximum and root mean square of standard deviations over slots and cells, in the value's unit."""

    maximum: float
    rms: float

    @classmethod
    def of(cls, deviations: Floats) -> Self:
        """Return maximum and root mean square."""
        return cls(float(deviations.max()), float(np.sqrt(np.mean(deviations**2))))

    def by(self, criterion: Criterion) -> float:
        """Return the maximum for a criterion of maxima, and the root mean square for others."""
        return self.maximum if criterion in (Criterion.MEAN_MAX, Criterion.SUM_MAX) else self.rms


@dataclass(frozen=True, slots=True)
class Errors:
    """Standard deviations of running sums around the sums of all values, and of running means around their means."""

    sum: ErrorSpread | None  # None: of kind `withhold_release`, whose sums lack values
    mean: ErrorSpread

    def by(self, criterion: Criterion) -> float:
        """Return the error of a criterion."""
        found = self.sum if criterion in (Criterion.SUM_MAX, Criterion.SUM_RMS) else self.mean
        return math.inf if found is None else found.by(criterion)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kind with its best noise and branching, and its errors."""

    kind: ContinualKind
    setting: SumSetting
    errors: Errors
    # root mean square of the running mean's noise with one user in each slot, in standard deviations of the noise that
    # one slot of one user needs
    factor: float
    memory: int  # bytes of a cell's state, at most

    @property
    def name(self) -> str:
        """Kind and branching, as in a table."""
        branching = self.setting.branching
        return self.kind.value if branching is None else f"{self.kind.value} {branching}"


@dataclass(frozen=True, slots=True)
class PlannedSums:
    """Public parameters of the running sum of each cell."""

    slots: int
    day_slots: int  # slots of a local day
    participation: Participation
    epsilon: float  # of a cell and horizon
    delta: float  # of all cells of a user; 0: only Laplace noise
    bound: float  # width of the value's range, in its unit

    def setting(self, noise: NoiseKind, branching: int | None = None, buffers: int | None = None) -> SumSetting:
        """Return the setting of a mechanism with this noise."""
        return SumSetting(
            slots=self.slots,
            max_slots=self.participation.max_slots,
            min_separation=self.participation.min_separation,
            bound=round(_MILLI * self.bound),
            epsilon=self.epsilon,
            delta=part_of_delta(self.delta, self.participation.max_cells) if noise is NoiseKind.GAUSSIAN else 0.0,
            noise=noise,
            branching=branching,
            buffers=buffers,
        )

    @property
    def days(self) -> int:
        """Local days of the horizon, the last one perhaps in part."""
        return -(-self.slots // self.day_slots)


def compare(stream: PlannedSums, users: UsersBySlot, criterion: Criterion) -> list[Candidate]:
    """Return each kind with the noise and branching that have its least error by the criterion."""
    best: dict[ContinualKind, tuple[Mechanism, PlannedRun, Errors]] = {}
    for kind, mechanism in mechanisms_of(stream):
        run = run_of(mechanism, users)
        errors = errors_of(run, users, stream.bound)
        if kind not in best or errors.by(criterion) < best[kind][2].by(criterion):
            best[kind] = mechanism, run, errors
    return [
        Candidate(kind, mechanism.setting, errors, _factor(mechanism), run.memory or memory_of(mechanism, users))
        for kind, (mechanism, run, errors) in best.items()
    ]


def mechanisms_of(stream: PlannedSums) -> Iterator[tuple[ContinualKind, Mechanism]]:
    """Yield the mechanisms to compare: each kind with each noise that delta allows, and several branchings."""
    for kind in KINDS:
        if kind is ContinualKind.TOEPLITZ and stream.slots > MAX_SLOTS:
            continue
        for noise in NOISES[kind]:
            if noise is NoiseKind.LAPLACE or stream.delta:
                branchings = _BRANCHINGS if kind is ContinualKind.KARY else (None,)
                buffers = BUFFERS if kind is ContinualKind.BLT else None
                yield from ((kind, KINDS[kind](stream.setting(noise, branching, buffers))) for branching in branchings)


def errors_of(run: PlannedRun, users: UsersBySlot, bound: float) -> Errors:
    """Return the errors of running sums and means."""
    of_mean = mean_errors(run, users, bound)
    has_record = np.isfinite(of_mean)
    if not has_record.any():
        return Errors(None, ErrorSpread(math.inf, math.inf))
    has_all_values = run.values is users.running
    return Errors(ErrorSpread.of(run.deviations) if has_all_values else None, ErrorSpread.of(of_mean[has_record]))


def mean_errors(run: PlannedRun, users: UsersBySlot, bound: float) -> Floats:
    """Return the errors of running means, float64 [C, n]; NaN without a record.

    Without some of the values, a running mean is that of a sample: this adds U^2 / 12 (1 / values in it - 1 / all), for
    independent values that are spread evenly over the range.
    """
    has_record = users.published & (run.values > 0)
    values, running = (np.where(has_record, each, np.nan) for each in (run.values, users.running))
    found: Floats = np.sqrt((run.deviations / values) ** 2 + bound**2 / 12 * (1 / values - 1 / running))
    return found


def _factor(mechanism: Mechanism) -> float:
    setting = mechanism.setting
    alone = ContinualKind.LAPLACE if setting.noise is NoiseKind.LAPLACE else ContinualKind.GAUSSIAN
    one = KINDS[alone](replace(setting, slots=1, max_slots=1, min_separation=1, branching=None, buffers=None))
    users = equal_users(setting.slots, 1)
    return errors_of(run_of(mechanism, users), users, 0).mean.rms * _MILLI / one.sd(0)
