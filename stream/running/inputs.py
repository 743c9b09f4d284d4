"""Inputs of running means, a weight, a number and the parts of its error for each HAT, and windows of slots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.fold.calendar import Calendar, later
from hatcast.stream.policy.estimator_keys import Relation
from hatcast.stream.policy.policy import HybridKeys, Policy
from hatcast.stream.policy.running_keys import Running, RunningOf, Window
from hatcast.stream.records import ReleaseRecord
from hatcast.stream.tracker.observations import noise_variance
from hatcast.stream.tracker.smoother import DayParts, SmootherSetting
from hatcast.stream.units import HOUR_MS

Numbers = NDArray[np.float32]
_LAPLACE_EXCESS: Final = 3.0  # excess kurtosis of the Laplace distribution
_SPAN_MS: Final = {Window.DAY: 24 * HOUR_MS, Window.WEEK: 7 * 24 * HOUR_MS}
_SATURDAY: Final = 5


class Weights(StrEnum):
    """Weight of a slot in a mean: a number that the records publish, or 1."""

    READINGS = "readings"
    USERS = "users"
    SLOTS = "slots"

    @classmethod
    def of(cls, policy: Policy) -> "Weights":
        """Return the weights under a policy: readings or, of blends, users; slots if counts are private."""
        if policy.relation is Relation.ADD_REMOVE:
            return cls.SLOTS
        return cls.USERS if isinstance(policy.method, HybridKeys) else cls.READINGS

    def weight(self, record: ReleaseRecord) -> int | None:
        """Return the weight of a HAT; None if its record does not have it."""
        if self is Weights.READINGS:
            return None if record.counts is None else record.counts.readings
        if self is Weights.USERS:
            return None if record.users is None else record.users.central + record.users.local
        return 1


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs of one slot: N cells, each once. In float32, so that memory is 24 bytes for each."""

    cells: NDArray[np.int32]  # int32 [N]  numbers of cells
    weights: Numbers  # [N]
    values: Numbers  # [N]  above the policy's lower bound, in its unit
    common: Numbers  # [N]  standard deviation of the part of the error that a cell's slots share
    own: Numbers  # [N]  variance of the part that is independent of all other slots
    fourth: Numbers  # [N]  fourth cumulant of that part: 0 of a normal distribution

    @classmethod
    def of(cls, rows: Iterable[tuple[float, ...]]) -> Self:
        """Return the inputs of rows with the fields in their order."""
        columns = np.array([*rows], np.float64).reshape(-1, 6).T
        return cls(columns[0].astype(np.int32), *(column.astype(np.float32) for column in columns[1:]))


@dataclass(frozen=True, slots=True, eq=False)
class SlotInputs:
    """Inputs of one slot, by their kind."""

    date: str
    name: str
    # start_ms, end_ms: ms UTC
    start_ms: int
    end_ms: int
    of: Mapping[RunningOf, Inputs]


def release_inputs(
    records: Iterable[ReleaseRecord], number: Callable[[str], int], weights: Weights, lower: float
) -> Inputs:
    """Return the inputs of a slot's releases, each its noisy number before clipping.

    A HAT that is not released has no number, and one that is released without noise depends on no reading: both are
    left out. number: of a cell. lower: of the value, in its unit.
    """
    rows: list[tuple[float, ...]] = []
    distinct = {record.release_id: record for record in records}
    for record in sorted(distinct.values(), key=lambda each: each.cell):
        variance, weight = noise_variance(record), weights.weight(record)
        if record.is_released and record.raw is not None and variance is not None and weight is not None:
            # A variance without a scale is that of a normal distribution with the same interval.
            is_laplace = record.noise is not None and record.noise.scale is not None
            fourth = _LAPLACE_EXCESS * variance**2 if is_laplace else 0.0
            rows.append((number(record.cell), weight, record.raw - lower, 0.0, variance, fourth))
    return Inputs.of(rows)


def estimate_inputs(parts: DayParts, number: Callable[[str], int], weights: Weights) -> dict[str, Inputs]:
    """Return the inputs of a date's estimates, by name of the slot. number: of a cell."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    columns = zip(parts.records, parts.means.tolist(), parts.common.tolist(), parts.own.tolist(), strict=True)
    for record, mean, common, own in columns:
        weight = weights.weight(record)
        if weight is not None:
            rows.setdefault(record.slot, []).append((number(record.cell), weight, mean, common, own, 0.0))
    return {slot: Inputs.of(found) for slot, found in rows.items()}


@dataclass(frozen=True, slots=True)
class RunningSetting:
    """Public parameters of running means, from the policy."""

    means: Sequence[Running]  # the running means of the policy
    value: SmootherSetting  # range and unit of the value, its digits, and the policy's name and id
    weights: Weights
    calendar: Calendar

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the setting of a policy."""
        return cls(policy.running, SmootherSetting.of(policy), Weights.of(policy), Calendar(policy))

    @property
    def kinds(self) -> frozenset[RunningOf]:
        """Kinds of inputs that are read."""
        return frozenset(running.of for running in self.means)

    @property
    def days(self) -> int:
        """Number of local dates up to the present one whose inputs are kept."""
        return max((running.days for running in self.means), default=0)


def window_at(running: Running, at: SlotInputs) -> Callable[[SlotInputs], bool]:
    """Return whether a slot is in the window whose last slot is `at`. Slots after `at` must not be given."""
    if running.window is Window.TODAY:
        return lambda slot: slot.date == at.date
    if running.window in _SPAN_MS:
        # By its end: so the window has the slot itself, however long it is, and no part of an hour twice.
        start_ms = at.end_ms - _SPAN_MS[running.window]
        return lambda slot: slot.end_ms > start_ms
    first, weekend = later(at.date, 1 - running.days), _is_weekend(at.date)

    def is_in(slot: SlotInputs) -> bool:
        is_of_hour = running.has_hour(slot.name) if running.window is Window.PERIOD else slot.name == at.name
        return is_of_hour and slot.date >= first and _is_weekend(slot.date) == weekend

    return is_in


def window_start(running: Running, at: SlotInputs, calendar: Calendar) -> int:
    """Return the start of the window, ms UTC: of its first local date, or 24 hours or 7 days before its end.

    Of a period it is that of the first slot.
    """
    if running.window in _SPAN_MS:
        return at.end_ms - _SPAN_MS[running.window]
    day = at.date if running.window is Window.TODAY else later(at.date, 1 - running.days)
    slots = calendar.slots_of(day)
    while not any(running.has_hour(slot.name) for slot in slots):  # hours that the local clock skipped
        day = later(day, 1)
        slots = calendar.slots_of(day)
    if running.window is Window.PERIOD:
        return next(slot.start_ms for slot in slots if running.has_hour(slot.name))
    return calendar.day_start(day)


def _is_weekend(day: str) -> bool:
    return date.fromisoformat(day).weekday() >= _SATURDAY
