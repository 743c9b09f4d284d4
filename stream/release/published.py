"""Read charge, place and reservation of a release back from its published record.

A recovery reads it. That it agrees with `proposal` is a law over every golden record (tests/laws/test_published.py).
"""

from datetime import date, datetime

from hatcast.stream.ledger.adoption import Answered, Published
from hatcast.stream.policy.continual_keys import CONTINUAL
from hatcast.stream.policy.policy import Relation
from hatcast.stream.policy.query import DAYS_MAX, RUNNING_SUMS, TRACKER_QUERIES, Period
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.records.fields import Status, policy_of
from hatcast.stream.records.projections import CHARGED, Charged
from hatcast.stream.release.hats import is_charged
from hatcast.stream.release.spending import Fineness
from hatcast.stream.units import nano_ceil


def published_of(value: bytes, policy_id: str, fineness: Fineness) -> Published:
    """Decode a release or answer record. Raises msgspec.DecodeError, ValueError.

    fineness   `hatcast.stream.release.spending.fineness_of` the policy with this id; unknown for other policies
    """
    record = CHARGED.decode(value)
    is_placed = not isinstance(record.query, str)  # an answer's charge is its reservation
    horizon = record.running if is_placed else None
    starts = is_placed and record.relation == Relation.ADD_REMOVE.value
    return Published(
        release_id=record.release_id,
        name=policy_of(record.release_id),
        date=record.date,
        place=f"{record.cell}/{record.slot}" if is_placed else "",
        charge=_charge(record) if is_placed else 0,
        seq=record.seq or 0,
        fineness=fineness(_scales(record)) if is_placed and record.policy_id == policy_id else 0,
        record=value,
        answered=_answered(record),
        slot_start_ms=int(datetime.fromisoformat(record.start).timestamp() * 1000) if starts else None,
        horizon="" if horizon is None else horizon.horizon,
        is_drawn=horizon is not None and record.status in (Status.RELEASED, Status.SUPPRESSED),
        start=record.start,
        end=record.end,
    )


def _charge(release: Charged) -> int:
    """Return the charge of a HAT (1e-9): the larger of the vehicles' and the devices'; 0 if a reservation pays."""
    charged = is_charged(release.status, release.relation) and release.estimator not in (TRACKER, CONTINUAL)
    return nano_ceil(max(release.epsilon, release.device_epsilon)) if charged else 0


def _scales(release: Charged) -> list[float | None]:
    if release.values:
        return [each.noise.scale for each in release.values]
    return [None if release.noise is None else release.noise.scale]


def _answered(record: Charged) -> Answered | None:
    """Return the record's reservation; None unless it is released, because a day may have lacked room."""
    if record.status is not Status.RELEASED or (record.query is None and record.running is None):
        return None
    name, epsilon = policy_of(record.release_id), nano_ceil(record.epsilon)
    if not isinstance(record.query, str):
        period = Period(date.fromisoformat(record.date), 1)
        if record.running is not None:
            return Answered(name, RUNNING_SUMS, period, record.running.max_cells, epsilon)
        return (
            None if record.query is None else Answered(name, TRACKER_QUERIES, period, 1, nano_ceil(record.query.limit))
        )
    first = date.fromisoformat(record.first_date)
    period = Period(first, (date.fromisoformat(record.last_date) - first).days + 1)
    if not 1 <= period.days <= DAYS_MAX:  # it would be reserved on each of its dates
        raise ValueError("not a period of a query")
    return Answered(name, record.query, period, record.most_hats, epsilon)
