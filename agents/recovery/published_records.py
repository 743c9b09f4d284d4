"""Decode records on `hats.means` and `hats.queries`, reduced to the fields that the ledger needs."""

from datetime import date, datetime
from typing import Annotated, Final, Literal

import msgspec

from hatcast.stream.ledger.adoption import Answered, Published
from hatcast.stream.policy.continual_keys import CONTINUAL
from hatcast.stream.policy.policy import Relation
from hatcast.stream.policy.query_keys import DAYS_MAX
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.queries import RUNNING_SUMS, TRACKER_QUERIES, Period
from hatcast.stream.records.fields import NAME, Date, Epsilon, text
from hatcast.stream.release.hats import is_charged
from hatcast.stream.release.spending import Fineness
from hatcast.stream.units import nano_ceil

# A charge below 0 would lower the ledger, and a name with ":" would be another policy's row there.
_ReleaseId = Annotated[str, text(f"^{NAME}/", "policy name, then what is released")]
_Places = Annotated[int, msgspec.Meta(ge=0)]


class _Noise(msgspec.Struct):
    scale: float | None = None


class _Value(msgspec.Struct):
    """One of several values of a release."""

    noise: _Noise


class _Residual(msgspec.Struct):
    """A tracker's query. limit: epsilon that all queries of its date can cost a user."""

    limit: Epsilon


class _Running(msgspec.Struct):
    """A running sum. max_cells: each costs a user the record's epsilon."""

    horizon: Date
    max_cells: _Places


class _Release(msgspec.Struct):
    """The needed fields of `ReleaseRecord` and `QueryRecord`: decoding all fields takes four times as long."""

    release_id: _ReleaseId
    policy_id: str
    status: Literal["released", "suppressed", "budget_exhausted", "incomplete", "deferred"]
    cell: str
    date: Date
    slot: str
    start: str
    end: str
    epsilon: Epsilon
    relation: Relation
    seq: int | None = None
    noise: _Noise | None = None
    values: list[_Value] = []
    query: str | _Residual | None = None
    running: _Running | None = None
    estimator: str = ""
    first_date: Date = ""
    last_date: Date = ""
    most_hats: _Places = 0
    device_epsilon: Epsilon = 0.0

    @property
    def charge(self) -> int:
        """Charge of a HAT (1e-9): the larger of the vehicles' and the devices' epsilon; 0 if a reservation pays."""
        charged = is_charged(self.status, self.relation) and self.estimator not in (TRACKER, CONTINUAL)
        return nano_ceil(max(self.epsilon, self.device_epsilon)) if charged else 0

    def answered(self) -> Answered | None:
        """Return the record's reservation; None unless it is released, because a day may have lacked room."""
        name = self.release_id.partition("/")[0]
        if self.running is not None and self.status == "released":
            period = Period(date.fromisoformat(self.date), 1)
            return Answered(name, RUNNING_SUMS, period, self.running.max_cells, nano_ceil(self.epsilon))
        if self.query is None or self.status != "released":
            return None
        if isinstance(self.query, _Residual):
            period = Period(date.fromisoformat(self.date), 1)
            return Answered(name, TRACKER_QUERIES, period, 1, nano_ceil(self.query.limit))
        first = date.fromisoformat(self.first_date)
        period = Period(first, (date.fromisoformat(self.last_date) - first).days + 1)
        if not 1 <= period.days <= DAYS_MAX:  # it would be reserved on each of its dates
            raise ValueError("not a period of a query")
        return Answered(name, self.query, period, self.most_hats, nano_ceil(self.epsilon))


_RELEASE: Final = msgspec.json.Decoder(_Release)


def published_of(value: bytes, policy_id: str, fineness: Fineness) -> Published:
    """Decode a release or answer record. Raises msgspec.DecodeError, ValueError.

    fineness   `hatcast.stream.release.spending.fineness_of` the policy with this id; unknown for other policies
    """
    release = _RELEASE.decode(value)
    hidden = release.relation is Relation.ADD_REMOVE
    scales = [each.noise.scale for each in release.values]
    if not scales:
        scales = [None if release.noise is None else release.noise.scale]
    if isinstance(release.query, str):  # its charge is its reservation, not the charge of a HAT
        return Published(
            release_id=release.release_id,
            name=release.release_id.partition("/")[0],
            date=release.date,
            place="",
            charge=0,
            seq=release.seq or 0,
            fineness=0,
            record=value,
            answered=release.answered(),
            start=release.start,
            end=release.end,
        )
    return Published(
        release_id=release.release_id,
        name=release.release_id.partition("/")[0],
        date=release.date,
        place=f"{release.cell}/{release.slot}",
        charge=release.charge,
        seq=release.seq or 0,
        fineness=fineness(scales) if release.policy_id == policy_id else 0,
        record=value,
        answered=release.answered(),
        slot_start_ms=int(datetime.fromisoformat(release.start).timestamp() * 1000) if hidden else None,
        horizon="" if release.running is None else release.running.horizon,
        is_drawn=release.running is not None and release.status in ("released", "suppressed"),
        start=release.start,
        end=release.end,
    )
