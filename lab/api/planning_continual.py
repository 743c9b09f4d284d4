"""`hatcast.plan_continual`: the kinds of running sums and means, compared."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from hatcast.agents.api.inputs import ArrowStream, Data, Reading
from hatcast.agents.api.keywords import ContinualKeywords
from hatcast.agents.api.policy import plain_policy
from hatcast.agents.config.settings import Settings
from hatcast.agents.recordings.dump_file import DUMP
from hatcast.lab.api.planned_rows import PlannedRows
from hatcast.lab.api.planning import default_settings, rows_of
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Columns, DeriveSpeed

if TYPE_CHECKING:
    from hatcast.lab.plan.continual.choose import ContinualPlan
    from hatcast.lab.plan.continual.inputs import Recorded


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
    """Compare the kinds of running sums and means, as `hatcast plan --continual` does.

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
    from hatcast.lab.plan.continual import inputs
    from hatcast.lab.plan.continual.choose import choose
    from hatcast.lab.plan.continual.criterion import Criterion

    if by not in [*Criterion]:
        raise HatcastError(f"by: {by!r} is not a criterion; {name_fix(by, [*Criterion])}")
    if sum(each is not None for each in (data, counts, users_per_slot)) > 1:
        raise HatcastError("plan_continual takes one of data, counts and users_per_slot")
    checked = plain_policy(default_settings(policy, format).policy)
    if checked.values:
        raise HatcastError("the policy has policy.values, but running sums are of one value: remove them in a copy")
    least = min_users or (inputs.MIN_USERS if policy is None else checked.min_users)
    wanted = inputs.Wanted(
        slots, horizon_days, max_slots, min_separation, max_cells, epsilon, delta, upper_bound, users_per_slot
    )
    recorded = _recorded(data, Reading(format, columns, unit, derive_speed), checked, least)
    if counts is not None:
        rows = inputs.rows_of_counts(rows_of(counts), checked)
        recorded = inputs.Recorded("counts", rows, checked.hours[0], least)
    found = inputs.inputs_of(wanted, checked, recorded, is_given=policy is not None)
    return PlannedKinds(choose(found.stream, found.users, Criterion(by), found.observed), checked.released_value.unit)


def _recorded(data: Data | None, reading: Reading, policy: Policy, min_users: int) -> "Recorded | None":
    from hatcast.lab.days import Recordings
    from hatcast.lab.plan.continual.inputs import recorded

    if data is None:
        return None
    given = reading.input(data, policy)
    if given.feed is DUMP:
        raise HatcastError("plan_continual does not read dumps: give recordings, or counts")
    with given.open() as recording:
        return recorded(Recordings(recording, given.name), policy, min_users, lambda _: None)


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
