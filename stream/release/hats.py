"""Release of a HAT: its estimate, and the bytes of its record.    [docs/specification/topics.md]

Privacy of each field. Under `replace`, cell, date, slot and status depend only on counts, which are public. `mean`,
`raw` and `interval95` depend on values only through the noise. `noise.scale` depends on counts, and on values only
through the interval that `levy` and `quantile` draw for a share of epsilon. `counts` are counts. `released_at` depends
on the worker's clock. `seq` numbers commits, so it reveals the number of HATs with data: counts again.

Under `add_remove` counts are private. `status`, `mean`, `raw` and `interval95` depend on them only through the noise,
which is charged for `suppressed` too. No other field depends on them. There is no `seq` and no scale, and `released_at`
is a public instant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from hatcast.stream.estimators import ESTIMATORS, Estimate, Parameters, Users
from hatcast.stream.estimators._one_draw import OneDraw
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.packing import joined_columns
from hatcast.stream.hybrid.release import Blend, blend_fields, blend_of, device_fields
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.records.fields import Status, release_id
from hatcast.stream.release.counts import counts_fields, counts_fields_of
from hatcast.stream.release.encoding import JSON, exact_json, place_fields, record_parts, utc_text
from hatcast.stream.release.placed import Placed
from hatcast.stream.release.schedule import released_at_ms
from hatcast.stream.release.spending import day_epsilon, fineness_of
from hatcast.stream.release.values import ValueEstimates, estimate_values, published_scales, values_fields


def is_charged(status: str, relation: str) -> bool:
    """Return whether noise was drawn: under `add_remove` this includes suppressed HATs, where the noise decides."""
    return status == Status.RELEASED or (status == Status.SUPPRESSED and relation == Relation.ADD_REMOVE)


AnyEstimate = Estimate | Blend | ValueEstimates
Drawn = tuple[AnyEstimate | None, Mapping[str, Any] | None]
"""A HAT's estimate, None if suppressed, and the field `counts` of its record, None without one."""


@dataclass(frozen=True, slots=True)
class HatChunks:
    """Packed contributions of a HAT from all partitions, in any order: of readings, and of devices' reports."""

    readings: Sequence[bytes]
    reports: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Release(Placed):
    """The release of one HAT, before the ledger assigns its `seq`.

    estimate    None unless the status is `released`
    counts      the record's field `counts`; None unless it has one
    """

    policy: Policy
    slot: Slot
    cell: str
    start: datetime
    end: datetime
    status: Status
    estimate: AnyEstimate | None
    counts: Mapping[str, Any] | None = None

    @property
    def release_id(self) -> str:
        """`policy/dateTslot/cell`; it never changes."""
        return release_id(self.policy.name, self.slot.key, self.cell)

    @property
    def is_hat(self) -> bool:
        """True: its record is that of a HAT."""
        return True

    @property
    def charge(self) -> int:
        """Charge in 1e-9 epsilon: the policy's epsilon, or 0 if no noise was drawn."""
        return self.policy.epsilon_nano if is_charged(self.status, self.policy.relation) else 0

    @property
    def fineness(self) -> int:
        """Fineness of the noise, equal to what `fineness_of` derives from the published record."""
        scales: list[float | None] = [None]
        if isinstance(self.estimate, ValueEstimates):
            scales = [*published_scales(self.estimate, self.policy)]
        elif isinstance(self.estimate, Estimate) and self.estimate.scale is not None:
            scales = [float(Grid(self.policy.grid).scale_text(self.estimate.scale))]
        return fineness_of(self.policy)(scales)

    def exhausted(self) -> "Release":
        """Return the release of this HAT with status `budget_exhausted` and without the estimate."""
        return replace(self, status=Status.BUDGET_EXHAUSTED, estimate=None, counts=None)

    def record(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return the record's bytes before and after `seq`, which the ledger assigns.

        Under `add_remove` there is no `seq`: then the first part has all bytes and the second is empty.
        """
        hidden = self.policy.relation is Relation.ADD_REMOVE
        head = {"release_id": self.release_id, "policy_id": self.policy.policy_id, "status": self.status.value}
        tail = place_fields(self.policy, self.cell, self.slot, self.start, self.end)
        unit = self.policy.released_value.unit
        if isinstance(self.estimate, Blend):
            tail |= blend_fields(self.estimate, self.policy, unit)
        elif isinstance(self.estimate, ValueEstimates):
            tail |= values_fields(self.estimate, self.policy)
        elif self.estimate is not None:
            tail |= estimate_fields(self.estimate, Grid(self.policy.grid, self.policy.lower), unit)
        if self.counts is not None:
            tail["counts"] = self.counts
        tail |= {
            "estimator": self.policy.estimator,
            "epsilon": self.policy.epsilon,
            **device_fields(self.policy),
            "relation": self.policy.relation.value,
            "released_at": utc_text(released_at_ms(self.slot, self.policy) if hidden else now_ms),
        }
        return record_parts(head, tail, hidden=hidden)


def release_of(policy: Policy, calendar: Calendar, slot: str, cell: str, chunks: HatChunks, noise: Noise) -> Release:
    """Estimate a final HAT, including its noise. `slot` is `date/name`."""
    if policy.values:
        drawn: Drawn = estimate_values(policy, chunks.readings, noise)
    elif policy.hybrid is not None:
        drawn = blend_of(policy, users_of(chunks.readings), chunks.reports, noise), None
    else:
        drawn = _estimate(policy, users_of(chunks.readings), noise)
    return drawn_release(policy, calendar, slot, cell, drawn)


def drawn_release(policy: Policy, calendar: Calendar, slot: str, cell: str, drawn: Drawn) -> Release:
    """Return the release of a HAT from its drawn estimate; without one it is suppressed."""
    status = Status.SUPPRESSED if drawn[0] is None else Status.RELEASED
    return _release(policy, calendar, slot, cell, status, drawn)


def _release(
    policy: Policy, calendar: Calendar, slot: str, cell: str, status: Status, drawn: Drawn = (None, None)
) -> Release:
    named = calendar.stored_slot(slot)
    return Release(
        policy=policy,
        slot=named,
        cell=cell,
        start=calendar.local(named.start_ms),
        end=calendar.local(named.end_ms),
        status=status,
        estimate=drawn[0],
        counts=drawn[1],
    )


def incomplete_of(policy: Policy, calendar: Calendar, slot: str, cell: str) -> Release:
    """Return the release of a HAT on a day with deleted records: without an estimate and without a charge."""
    return _release(policy, calendar, slot, cell, Status.INCOMPLETE)


def exhausted_of(policy: Policy, calendar: Calendar, slot: str, cell: str) -> Release:
    """Return the release of a HAT beyond the budget: without an estimate and without a charge."""
    return _release(policy, calendar, slot, cell, Status.BUDGET_EXHAUSTED)


def users_of(chunks: Iterable[bytes]) -> Users:
    """Unpack the users of a HAT in the estimators' order: by count, largest first, ties by pseudonym."""
    if not (read := list(chunks)):
        empty = np.empty(0, np.int64)
        return Users.sorted(empty.astype(np.uint64), empty, empty)
    return Users.sorted(*joined_columns(read))


def _estimate(policy: Policy, users: Users, noise: Noise) -> Drawn:
    if not has_enough(policy, users):
        return None, None
    estimator, parameters = ESTIMATORS[policy.estimator], Parameters.of(policy)
    if isinstance(estimator, OneDraw):
        before = estimator.before_noise(users, parameters)
        counts = counts_fields_of(before, users.counts, policy.estimator)
        return before.estimate(noise.laplace(before.value, before.distance, before.epsilon)), counts
    estimate = estimator.estimate(users, parameters, noise)
    if estimate is None or policy.relation is not Relation.REPLACE:
        return estimate, None
    return estimate, counts_fields(users.counts, policy.estimator, parameters)


def has_enough(policy: Policy, users: Users) -> bool:
    """Return whether a HAT has enough users for an estimate.

    Under `replace` their number is public, so it may decide. Under `add_remove` it may not.
    """
    return policy.relation is not Relation.REPLACE or len(users.counts) >= max(policy.min_users, 1)


def estimate_fields(estimate: Estimate, grid: Grid, unit: str) -> dict[str, Any]:
    """Return the record fields of an estimate. unit: the name of 1000 milli-units."""

    def number(steps: int) -> msgspec.Raw:
        return msgspec.Raw(grid.text(steps).encode())

    noise: dict[str, Any] = {"kind": "laplace_ratio"}
    if estimate.scale is not None:
        noise = {"kind": "laplace", "scale": msgspec.Raw(grid.scale_text(estimate.scale).encode())}
    return {
        "mean": number(estimate.mean),
        "raw": number(estimate.raw),
        "unit": unit,
        "noise": noise,
        "interval95": [number(steps) for steps in estimate.interval95],
        "covers": "noise",
    }


Spent = tuple[int, float]
"""What the users of a tracker have paid on a date, 1e-9: the largest and the mean. Functions of public counts."""


def budget_record(policy: Policy, date: str, summary: DaySummary, spent: Spent | None = None) -> bytes:
    """Encode the `hats.budget` record of a day. All of its fields follow from charges, which are public.

    Under `replace` charges reveal which HATs were released; under `add_remove` each listed HAT is charged.
    """
    cost = summary.epsilon_user_day
    limit = min(policy.daily_limit_nano, summary.limit or policy.daily_limit_nano)
    # Future charges of other policies are unknown here, so for a shared day only the limit bounds the cost.
    reserved = sum(query.amount for query in summary.queries.values())
    bound = limit if summary.shared else min(reserved + policy.most_hats * policy.epsilon_nano, limit)
    total, total_limit = summary.total, policy.total_limit_nano
    return JSON.encode(
        {
            "policy": policy.name,
            "policy_id": policy.policy_id,
            "date": date,
            "seq": summary.sequence,
            "releases": summary.releases,
            "epsilon_sum": exact_json(summary.epsilon_sum),
            "epsilon_user_day": exact_json(cost),
            "limit": exact_json(limit),
            "day_bound": exact_json(max(bound, cost)),
            "epsilon_delta": {"epsilon": day_epsilon(policy, summary), "delta": policy.delta},
            "max_hats_per_day": policy.max_hats_per_day,
        }
        | ({} if not summary.queries else {"queries": _reserved(summary.queries)})
        | ({} if spent is None else {"spent": {"largest": exact_json(spent[0]), "mean": exact_json(round(spent[1]))}})
        | ({} if policy.replaces is None else {"replaces": policy.replaces, "from": policy.from_date})
        | (
            {}
            if total_limit is None
            else {
                "total": exact_json(total.spent),
                "total_limit": exact_json(min(total_limit, total.limit or total_limit)),
            }
        )
    )


def _reserved(queries: Mapping[str, Reserved]) -> list[dict[str, Any]]:
    return [
        {"query": name, "epsilon": exact_json(reserved.epsilon), "places": reserved.places}
        for name, reserved in sorted(queries.items())
    ]
