"""`hatcast.plan`: the keys of a tracker, from counts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hatcast.agents.api.inputs import ArrowStream, Data, Reading, paths_of, table_of
from hatcast.agents.api.keywords import TrackerKeywords
from hatcast.agents.api.policy import plain_policy, settings_of
from hatcast.agents.config.settings import Settings
from hatcast.agents.recordings.dump_file import DUMP
from hatcast.lab.api.planned_rows import PlannedRows
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import Columns, DeriveSpeed

if TYPE_CHECKING:
    from hatcast.lab.plan.counts import Counts, Row
    from hatcast.lab.plan.grid import Plans

_MIN_USERS: Final = 3


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
    daily_limits: Sequence[float] = (2, 5, 10, 20, 40),
    objective: str = "cells",
    min_users: int | None = None,
) -> PlannedLimits:
    """Choose the keys of a tracker, and say which errors to expect, from counts alone, as `hatcast plan` does.

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
    from hatcast.lab.plan import grid

    if (data is None) == (counts is None):
        raise HatcastError("plan needs either data or counts: give one of them")
    if objective not in [*Objective]:
        raise HatcastError(f"objective: {objective!r} is not one; {name_fix(objective, [*Objective])}")
    limits = sorted({float(limit) for limit in daily_limits})
    if not limits or not all(1e-3 <= limit <= 1e3 for limit in limits):
        raise HatcastError("daily_limits: give epsilons from 0.001 to 1000, such as (2, 5)")
    settings = default_settings(policy, format)
    if settings.policy.values:
        raise HatcastError("the policy has policy.values, but a tracker is for one value: remove them in a copy")
    least = min_users or (_MIN_USERS if policy is None else settings.policy.min_users)
    found = (
        _counts_of_table(counts, least)
        if data is None
        else _counts_of(data, Reading(format, columns, unit, derive_speed), settings, least)
    )
    if not found.days:
        raise HatcastError(f"the data have no HAT with {least} users: give more days, or a smaller min_users")
    first, bound = found.first_days(), settings.policy.upper_bound / 1000
    # One after the other: a process of its own would run the caller's script again.
    each = [grid.plan(first, bound, [limit], Objective(objective), lambda _: None) for limit in limits]
    return PlannedLimits([_planned(plans) for plans in each], each[0].constant)


def default_settings(policy: str | Path | Policy | Settings | None, format_name: str | None) -> Settings:
    """Return the settings of a policy; None: those with which recordings are planned without one."""
    if policy is not None:
        return settings_of(policy)
    from hatcast.lab.days import policy_of_recordings

    return settings_of(policy_of_recordings(None, format_name or ""))


def _counts_of(data: Data, reading: Reading, settings: Settings, min_users: int) -> "Counts":
    from hatcast.lab.days import Recordings
    from hatcast.lab.plan.counts import counts_of_opened

    policy = plain_policy(settings.policy)
    given = reading.input(data, policy)
    if given.feed is DUMP:
        raise HatcastError("plan does not read dumps: give recordings, or counts")
    with given.open() as recording:
        return counts_of_opened(Recordings(recording, given.name), policy, min_users, lambda _: None)


def _counts_of_table(counts: str | os.PathLike[str] | ArrowStream | None, min_users: int) -> "Counts":
    from hatcast.lab.plan.counts import counts_of_rows

    return counts_of_rows(rows_of(counts), min_users)


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
