"""`hatcast.plan` and `hatcast.plan_continual` of the Python API: plans as rows."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from hatcast.agents.api.batching import ArrowStream, Data, ReadingOptions, paths_of, table_of
from hatcast.agents.api.frames import Frame
from hatcast.agents.api.policy import ContinualKeywords, TrackerKeywords, plain_policy, settings_of
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import require
from hatcast.agents.kafka.dump import DUMP
from hatcast.agents.progress import progress_bars
from hatcast.agents.timetable.speeds import timetable_of
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import Columns, DeriveSpeed
from hatcast.stream.tracker.prior import Prior

if TYPE_CHECKING:
    import pyarrow as pa

    from hatcast.lab.days import Recordings
    from hatcast.lab.plan.continual.choose import ContinualPlan
    from hatcast.lab.plan.counts import Row
    from hatcast.lab.plan.tracker import Plans

R = TypeVar("R", bound=Any)  # a dataclass: no type of the standard library says so
_MIN_USERS: Final = 3


class PlannedRows(Frame, Generic[R]):
    """Rows of a plan, each a dataclass."""

    def __init__(self, rows: Iterable[R]) -> None:
        self._rows: Final = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> R:
        return self._rows[index]

    def to_arrow(self) -> "pa.Table":
        """Return the rows as a table."""
        require("pyarrow", "to_arrow()")
        import pyarrow as pa

        return pa.Table.from_pylist([asdict(row) for row in self._rows])


@dataclass(frozen=True, slots=True)
class PlannedLimit:
    """The keys of a tracker for one daily limit, and the errors to expect, in the unit of the value.

    live, end         error of a HAT's mean at the close of its slot, and at the end of its day, over the given days
    live_7 .. end_30  the same on the 7th and on the 30th day with these counts
    worth_having      whether the error at the end of the day is at least 10 % below that of a constant
    """

    daily_limit: float
    share: float
    price: float
    objective: str
    live: float
    end: float
    live_7: float
    end_7: float
    live_30: float
    end_30: float
    worth_having: bool

    @property
    def tracker(self) -> TrackerKeywords:
        """The argument `tracker` of `hatcast.Policy`."""
        return {"share": self.share, "price": self.price, "objective": self.objective}


class PlannedLimits(PlannedRows[PlannedLimit]):
    """Plans by daily limit, the least first. constant: the error of the better constant, which costs nothing."""

    def __init__(self, rows: Sequence[PlannedLimit], constant: float) -> None:
        super().__init__(rows)
        self.constant: Final = constant


def plan(  # noqa: PLR0913 - options by name
    data: Data | None = None,
    policy: str | Path | Policy | Settings | None = None,
    *,
    counts: str | os.PathLike[str] | ArrowStream | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    columns: Mapping[str, str] | Columns | None = None,
    unit: str | None = None,
    derive_speed: DeriveSpeed | None = None,
    daily_limits: Sequence[float] = (1, 2, 5, 10, 20, 40),
    objective: str = "cells",
    min_users: int | None = None,
) -> PlannedLimits:
    """Choose the keys of a tracker, and say which errors to expect, from counts alone, as `hatcast plan tracker` does.

    No speed and no noise enters, but who was where and how often. These counts are public under relation replace, so
    the plan is as public as they are. It takes minutes for a large city: name one limit to plan for.

    Args:
        data: readings as in `batch`; at most a week is used.
        policy: defines the HATs, as in `batch`; None: hexagons of resolution 7, all hours, an upper bound of 65 km/h.
        counts: instead of data, a CSV file or a table with the columns date, hour, cell, vehicle and readings.
        format: of the data, as in `batch`.
        columns: of the data, as in `batch`.
        unit: of the data's value, as in `batch`.
        derive_speed: as in `batch`, for data without speeds.
        daily_limits: epsilons that a bus may lose on one day.
        objective: what the end of a day makes accurate: `cells`, `buses` or `mix`.
        min_users: HATs with fewer users do not count; None: those of the policy, or 3.

    Raises:
        HatcastError: the arguments do not fit, or no HAT has so many users.
    """
    from hatcast.lab.plan import tracker
    from hatcast.lab.plan.counts import counts_of_opened, counts_of_rows

    if (data is None) == (counts is None):
        raise HatcastError("plan needs either data or counts: give one of them")
    if objective not in [*Objective]:
        raise HatcastError(f"objective: {objective!r} is not one; {name_fix(objective, [*Objective])}")
    limits = sorted({float(limit) for limit in daily_limits})
    if not limits or not all(1e-3 <= limit <= 1e3 for limit in limits):
        raise HatcastError("daily_limits: give epsilons from 0.001 to 1000, such as (2, 5)")
    reading = ReadingOptions(format, columns, unit, derive_speed)
    data = table_of(data) if isinstance(data, ArrowStream) else data  # a stream can be read once
    settings = default_settings(policy, data, reading)
    if len(settings.policy.released_values) > 1:
        raise HatcastError("the policy has policy.values, but a tracker is for one value: remove them in a copy")
    least = min_users or (_MIN_USERS if policy is None else settings.policy.min_users)
    if data is None:
        found = counts_of_rows(rows_of(counts), least)
    else:
        policy = plain_policy(settings.policy)
        with progress_bars() as add_bar, _opened("plan", data, reading, policy) as recordings:
            found = counts_of_opened(recordings, policy, least, add_bar("reading", None))
    if not found.days:
        raise HatcastError(f"the data have no HAT with {least} users: give more days, or a smaller min_users")
    first, prior, timetable = found.first_days(), Prior.of_policy(settings.policy), timetable_of(settings.policy)
    # One after the other: a process of its own would run the caller's script again.
    with progress_bars() as add_bar:
        bar = add_bar("planning: days of candidates", len(limits) * tracker.STEPS)
        each = [tracker.plan(first, prior, [limit], Objective(objective), bar, timetable) for limit in limits]
    return PlannedLimits([_planned(plans) for plans in each], each[0].constant)


def default_settings(
    policy: str | Path | Policy | Settings | None, data: Data | None, reading: ReadingOptions
) -> Settings:
    """Return the settings of a policy; None: those with which recordings of this format are planned without one."""
    if policy is not None:
        return settings_of(policy)
    from hatcast.lab.days import policy_of_recordings

    if data is None:
        name = reading.format or ""
    elif isinstance(data, ArrowStream):
        name = reading.choice_of_table(table_of(data).column_names).name
    else:
        name = reading.choice(paths_of(data)).name
    return settings_of(policy_of_recordings(None, name))


@contextmanager
def _opened(name: str, data: Data, reading: ReadingOptions, policy: Policy) -> "Iterator[Recordings]":
    """Open the readings for a function of this name."""
    from hatcast.lab.days import Recordings

    given = reading.input(data, policy)
    if given.feed is DUMP:
        raise HatcastError(f"{name} does not read dumps: give recordings, or counts")
    with given.open() as recording:
        yield Recordings(recording, given.name)


def rows_of(counts: str | os.PathLike[str] | ArrowStream | None) -> "list[Row]":
    """Return the rows of a CSV file or a table of counts. Raises HatcastError."""
    from hatcast.lab.plan.counts import HEADER, row_of, rows_of_file

    if not isinstance(counts, ArrowStream):
        return rows_of_file(paths_of(counts)[0])
    rows = table_of(counts).to_pylist()
    try:
        return [row_of({name: str(row[name]) for name in HEADER}) for row in rows]
    except (KeyError, ValueError):
        raise HatcastError(
            f"counts: a row is not counts: give the columns {', '.join(HEADER)}, such as 2016-11-24, 7,"
            " 8748e3a34ffffff, bus 12, 6"
        ) from None


def _planned(plans: "Plans") -> PlannedLimit:
    (plan,) = plans.plans
    stages = plan.stages
    return PlannedLimit(
        daily_limit=plan.total,
        share=plan.keys.share,
        price=plan.keys.price,
        objective=plan.keys.objective.value,
        live=stages["first"].live,
        end=stages["first"].end,
        live_7=stages["7"].live,
        end_7=stages["7"].end,
        live_30=stages["30"].live,
        end_30=stages["30"].end,
        worth_having=plans.is_worth_having(stages["first"].end),
    )


@dataclass(frozen=True, slots=True)
class PlannedKind:
    """One kind of running sums and means, and the standard deviations of its noise over a horizon.

    noise, branching    its best distribution, and the branching of kind `kary`
    mean_rms, mean_max  of the running mean, in the value's unit
    sum_rms, sum_max    of the running sum, in the value's unit times users; None if it lacks values
    factor              mean_rms with one user a slot, in standard deviations of a single slot's noise
    memory              bytes of a cell's state
    """

    kind: str
    noise: str
    branching: int | None
    mean_rms: float
    mean_max: float
    sum_rms: float | None
    sum_max: float | None
    factor: float
    memory: int


class PlannedKinds(PlannedRows[PlannedKind]):
    """Kinds of running sums and means.

    best       the kind with the least error
    continual  keys of [policy.continual] for it: the argument `continual` of `hatcast.Policy`
    free       least error of a running mean that costs nothing more, of a policy with the same cost of a day
    verdict    the comparison in sentences
    """

    def __init__(self, plan: "ContinualPlan", unit: str) -> None:
        from hatcast.lab.plan.continual.report import keys_of, verdict

        super().__init__(_rows(plan))
        self.best: Final = next(row for row in self if row.kind == plan.best.kind)
        # Its values are strings and integers of many keys: the type of each is that of the table that reads them.
        self.continual: Final = cast("ContinualKeywords", keys_of(plan))
        self.free: Final = plan.free.best(plan.criterion)
        self.verdict: Final = "\n".join(verdict(plan, unit))


def plan_continual(  # noqa: PLR0913 - options by name
    data: Data | None = None,
    policy: str | Path | Policy | Settings | None = None,
    *,
    counts: str | os.PathLike[str] | ArrowStream | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    columns: Mapping[str, str] | Columns | None = None,
    unit: str | None = None,
    derive_speed: DeriveSpeed | None = None,
    slots: int | None = None,
    horizon_days: int | None = None,
    max_slots: int | None = None,
    min_separation: int | None = None,
    max_cells: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    upper_bound: float | None = None,
    users_per_slot: float | None = None,
    by: str = "mean-rms",
    min_users: int | None = None,
) -> PlannedKinds:
    """Compare the kinds of running sums and means, as `hatcast plan sums` does.

    Without data each slot has the same number of users. With data the users are those of the recordings: their counts
    are public under relation replace, no value is read and no noise is drawn.

    Args:
        data: readings as in `batch`, or None.
        policy: defines the HATs and, with [policy.continual], the participation; None: as in `plan`.
        counts: instead of data, a CSV file or a table with the columns date, hour, cell, vehicle and readings.
        format: of the data, as in `batch`.
        columns: of the data, as in `batch`.
        unit: of the data's value, as in `batch`.
        derive_speed: as in `batch`, for data without speeds.
        slots: of the horizon; None: those of `horizon_days`.
        horizon_days: local days; None: those of the policy or the data.
        max_slots: most slots that a user enters in one cell; None: that of the policy, or what 95 % in the data have.
        min_separation: slots between two of them, at least; None: that of the policy, or 1.
        max_cells: most cells that a user enters; None: that of the policy, what 95 % in the data have, or 1.
        epsilon: of a cell and horizon; None: that of the policy, or 1.
        delta: of all cells of a user; 0: only kinds with pure epsilon; None: that of the policy, or 1e-6.
        upper_bound: width of the value's range; None: that of the policy, or 65 km/h.
        users_per_slot: without data; None: 10.
        by: error that the best kind has least: `mean-rms`, `mean-max`, `sum-rms` or `sum-max`.
        min_users: HATs with fewer users do not count; None: those of the policy, or 3.

    Raises:
        HatcastError: a parameter is missing, parameters do not fit each other, or no HAT has so many users.
    """
    from hatcast.lab.plan.continual import Criterion, inputs
    from hatcast.lab.plan.continual.choose import choose

    if by not in [*Criterion]:
        raise HatcastError(f"by: {by!r} is not a criterion; {name_fix(by, [*Criterion])}")
    if sum(each is not None for each in (data, counts, users_per_slot)) > 1:
        raise HatcastError("plan_continual takes one of data, counts and users_per_slot")
    reading = ReadingOptions(format, columns, unit, derive_speed)
    data = table_of(data) if isinstance(data, ArrowStream) else data  # a stream can be read once
    checked = plain_policy(default_settings(policy, data, reading).policy)
    if len(checked.released_values) > 1:
        raise HatcastError("the policy has policy.values, but running sums are of one value: remove them in a copy")
    least = min_users or (inputs.MIN_USERS if policy is None else checked.min_users)
    wanted = inputs.RequestedPlan(
        slots, horizon_days, max_slots, min_separation, max_cells, epsilon, delta, upper_bound, users_per_slot
    )
    recorded = None
    if data is not None:
        with _opened("plan_continual", data, reading, checked) as recordings:
            recorded = inputs.recorded(recordings, checked, least, lambda _: None)
    elif counts is not None:
        rows = inputs.rows_of_counts(rows_of(counts), checked)
        recorded = inputs.RecordedCounts("counts", rows, checked.hours[0], least)
    found = inputs.inputs_of(wanted, checked, recorded, is_given=policy is not None)
    return PlannedKinds(choose(found.stream, found.users, Criterion(by), found.observed), checked.released_value.unit)


def _rows(plan: "ContinualPlan") -> Iterator[PlannedKind]:
    for each in plan.candidates:
        mean, total = each.errors.mean, each.errors.sum
        yield PlannedKind(
            kind=each.kind.value,
            noise=each.setting.noise.value,
            branching=each.setting.branching,
            mean_rms=mean.rms,
            mean_max=mean.maximum,
            sum_rms=None if total is None else total.rms,
            sum_max=None if total is None else total.maximum,
            factor=each.factor,
            memory=each.memory,
        )
