"""Inputs of a plan of running means: the declared stream, and the users that recordings have in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hatcast.lab.plan.continual.choose import Observed
from hatcast.lab.plan.continual.kinds import PlannedSums
from hatcast.lab.plan.continual.users import (
    Participation,
    Presence,
    UsersBySlot,
    equal_users,
    kept_by,
    presence_of,
)
from hatcast.lab.plan.counts import Row, counts_of_rows, rows_of_days
from hatcast.lab.survey.figures import quantile
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import ContinualKeys, MeansKeys, Policy
from hatcast.stream.units import HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from hatcast.lab.days import RecordedSlot, Recordings

_COVERED: Final = 95  # % of users whose participation the defaults cover
_EPSILON: Final = 1.0
_DELTA: Final = 1e-6
_BOUND: Final = 65.0  # km/h
MIN_USERS: Final = 3
USERS: Final = 10.0  # default users of a cell in each slot, without data


@dataclass(frozen=True, slots=True)
class RequestedPlan:
    """Parameters as the user gives them; None: that of the policy, that of the data, or a default."""

    slots: int | None = None
    horizon_days: int | None = None
    max_slots: int | None = None
    min_separation: int | None = None
    max_cells: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    upper_bound: float | None = None
    users: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedCounts:
    """Public counts of recordings."""

    name: str
    rows: Sequence[Row]  # with the number of a slot within its day in place of the hour
    first_hour: int | None  # of the day; None if the slots are not hours, which a tracker's forecast needs
    min_users: int  # a HAT with fewer does not count

    @property
    def days(self) -> int:
        """Local dates with readings."""
        return len({row[0] for row in self.rows})


@dataclass(frozen=True, slots=True, eq=False)
class PlanInputs:
    """Inputs of a plan. users_per_slot: the same in each slot; None: those of recordings."""

    source: str | None
    stream: PlannedSums
    users: UsersBySlot
    users_per_slot: float | None
    observed: Observed | None


def inputs_of(wanted: RequestedPlan, policy: Policy, recorded: RecordedCounts | None, *, is_given: bool) -> PlanInputs:
    """Return the inputs of a plan.

    is_given  whether somebody gave the policy; if not, it only says which HATs the recordings have
    Raises HatcastError if a parameter is missing, or parameters do not fit each other.
    """
    is_fixed = is_given or recorded is not None
    slots, day_slots = _horizon_of(wanted, policy, None if recorded is None else recorded.days, is_fixed=is_fixed)
    presence = None if recorded is None else presence_of(recorded.rows, -(-slots // day_slots), day_slots)
    stream = _stream_of(wanted, policy if is_given else None, slots, day_slots, presence)
    if recorded is None or presence is None:
        users = wanted.users or USERS
        return PlanInputs(None, stream, equal_users(stream.slots, users), users, None)
    counted, observed = _observe(recorded, presence, stream)
    return PlanInputs(recorded.name, stream, counted, None, observed)


def recorded(
    recordings: "Recordings", policy: Policy, min_users: int, progress: Callable[[int], None]
) -> RecordedCounts:
    """Fold recordings and return their counts. A vehicle is the same user on all dates. Raises RecordingError."""
    from hatcast.lab.days import TRACKER_CAP

    first = slots_of_day(policy).start

    def number(slot: "RecordedSlot") -> int:
        hour, minute = map(int, slot.key.partition("/")[2].split(":"))
        return (hour * HOUR_MS + minute * MINUTE_MS) // policy.slot_length_ms - first

    unlimited = replace(policy, unit="user", method=MeansKeys(), max_hats_per_day=TRACKER_CAP)
    rows = [*rows_of_days(recordings.days(unlimited, progress), number)]
    return RecordedCounts(
        recordings.name, rows, policy.hours[0] if policy.slot_length_ms == HOUR_MS else None, min_users
    )


def rows_of_counts(rows: Sequence[Row], policy: Policy) -> list[Row]:
    """Return the rows of hours as rows of the policy's slots. Raises HatcastError if its slots are not hours."""
    if policy.slot_length_ms != HOUR_MS:
        raise HatcastError("counts: they are of hours, but policy.slot_length is not 1h; give recordings instead")
    return _moved(rows, -policy.hours[0])


def _moved(rows: Sequence[Row], by: int) -> list[Row]:
    return [(date, hour + by, cell, vehicle, readings) for date, hour, cell, vehicle, readings in rows]


def slots_of_day(policy: Policy) -> range:
    """Return the numbers, from midnight, of the slots that start within the policy's hours."""
    first, end = (-(-hour * HOUR_MS // policy.slot_length_ms) for hour in policy.hours)
    return range(first, end)


def _horizon_of(wanted: RequestedPlan, policy: Policy, days: int | None, *, is_fixed: bool) -> tuple[int, int]:
    """Return the slots of the horizon, and of a local day.

    days      to use if neither `wanted` nor the policy has a number; None: none is known
    is_fixed  whether the slots of a day are those of the policy; if not, `wanted` may imply others
    Raises HatcastError if no length is known, or slots and days do not fit each other.
    """
    slots, day_slots = wanted.slots, len(slots_of_day(policy))
    given = wanted.horizon_days
    if slots is None:
        number = given or (policy.method.horizon_days if isinstance(policy.method, ContinualKeys) else days)
        if number is None:
            raise HatcastError("slots: the length of the horizon is missing; give slots or horizon_days")
        return number * day_slots, day_slots
    if given is not None and not is_fixed and slots % given == 0:
        return slots, slots // given
    if given is not None and given * day_slots != slots:
        raise HatcastError(
            f"slots: {given} days of {day_slots} slots have {given * day_slots}, not {slots}; give one of slots and"
            " horizon_days"
        )
    return slots, day_slots


def _stream_of(
    wanted: RequestedPlan, policy: Policy | None, slots: int, day_slots: int, presence: Presence | None
) -> PlannedSums:
    """Return the declared stream: as wanted, else as the policy declares, else as 95 % of the users in the data need.

    policy  None: none is given
    Raises HatcastError if max_slots is not known, or the participation does not fit into the horizon.
    """
    keys = policy.method if policy is not None and isinstance(policy.method, ContinualKeys) else None

    def chosen(name: str, default: int | None) -> int | None:
        found: int | None = getattr(wanted, name)
        return found if found is not None else default if keys is None else getattr(keys, name)

    max_slots = chosen("max_slots", None if presence is None else quantile(presence.slots, _COVERED))
    if max_slots is None:
        raise HatcastError("max_slots: the most slots that a user enters in a cell is missing; give it, or data")
    participation = Participation(
        max_slots,
        chosen("min_separation", 1) or 1,
        chosen("max_cells", 1 if presence is None else quantile(presence.cells, _COVERED)) or 1,
    )
    most = (slots - 1) // participation.min_separation + 1
    if participation.max_slots > most:
        raise HatcastError(
            f"max_slots: {participation.max_slots} slots that are {participation.min_separation} apart do not fit into"
            f" {slots}; give at most {most}"
        )
    return PlannedSums(
        slots=slots,
        day_slots=day_slots,
        participation=participation,
        epsilon=wanted.epsilon or (_EPSILON if keys is None or policy is None else policy.epsilon),
        delta=wanted.delta if wanted.delta is not None else _DELTA if keys is None or policy is None else policy.delta,
        bound=wanted.upper_bound or (_BOUND if policy is None else policy.upper_bound / 1000),
    )


def _observe(recorded: RecordedCounts, presence: Presence, stream: PlannedSums) -> tuple[UsersBySlot, Observed]:
    """Return the users that count under the declared participation. Raises HatcastError if no HAT has enough."""
    kept = kept_by(presence, stream.participation, stream.slots)
    running = kept.users.cumsum(axis=1).astype(np.float64)
    users = UsersBySlot(running, kept.users >= recorded.min_users, kept.entries)
    if not users.published.any():
        raise HatcastError(
            f"the data have no HAT with {recorded.min_users} users under this participation; give more days, a smaller"
            " min_users, or a larger max_slots or max_cells"
        )
    first, counts = recorded.first_hour, None
    if first is not None:
        counts = counts_of_rows(_moved(recorded.rows, first), recorded.min_users).first_days()
    return users, Observed(presence, kept.cut, counts)
