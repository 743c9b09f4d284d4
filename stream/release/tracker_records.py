"""Release of a tracker's HAT, or of a query of its settlement: the bytes of a `hats.means` record.

All fields except `query.sum`, `mean`, `raw` and `interval95` follow from public counts, the policy, its timetable and
the scale of a guessed prior; these four also from released numbers, among them `query.sum`, which has the noise.
[docs/specification/tracker.md, section 2]
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import msgspec

from hatcast.stream.estimators import Estimate
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.mechanisms.grid import Grid, clip, quantile95
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.records import ResidualQueryRecord
from hatcast.stream.records.fields import PULSE, SETTLEMENT, Status, query_id, release_id
from hatcast.stream.release.hats import estimate_fields
from hatcast.stream.release.placed import Placed, exact_json
from hatcast.stream.tracker.query import STEPS, ResidualQuery
from hatcast.stream.tracker.tracker import HatUsers

_MILLI: Final = 1000
_DIGITS: Final = 6  # of `squares`
_ALIKE: Final = 1e-9  # relative difference of floats that two machines may compute for one query


@dataclass(frozen=True, slots=True, eq=False)
class MadeQuery:
    """A query with its released number."""

    number: int  # of the query on its date, from 1
    design: ResidualQuery
    hats: tuple[tuple[str, str], ...]  # slot and cell of each of `design.members.hats`
    released: int  # Y
    predicted: float  # what the model expected of the weighted HATs before, above the value's lower bound
    limit: int  # of the date's queries for a user, 1e-9

    @property
    def cell(self) -> str:
        """The cell that it is about; of a pulse the first of its cells."""
        return self.hats[0][1]

    @property
    def is_pulse(self) -> bool:
        """Whether it is about several cells of one slot."""
        return not self.design.members.is_of_one_cell

    @property
    def largest(self) -> int:
        """Largest charge of a user, 1e-9."""
        return int(self.design.charges.max())

    def fields(self) -> dict[str, Any]:
        """Return the record's field `query`. Floats are written so that a reader has exactly these."""
        design, observation = self.design, self.design.observation
        slots, cells = zip(*self.hats, strict=True)
        hats = zip(slots, observation.weights.tolist(), observation.betas.tolist(), strict=True)
        return {
            "number": self.number,
            "sum": self.released,
            "clip": design.scale / (2 * STEPS),
            "scale": design.scale,
            "steps": STEPS,
            "weight": design.total,
            "kept": design.kept,
            "members": len(design.members.buses),
            "charges": exact_json(int(design.charges.sum())),
            "limit": exact_json(self.limit),
            "hats": [[slot, weight, beta] for slot, weight, beta in hats],
            **({"cells": cells} if self.is_pulse else {}),
            "variance": observation.variance,
            "noise_variance": design.noise,
        }

    def estimate(self, policy: Policy) -> Estimate:
        """Return the noisy mean of the weighted HATs: the prediction plus the buses' noisy distance from it."""
        grid, design = Grid(policy.grid), self.design
        unit = 1 / (STEPS * design.total * design.kept)  # value of one step of Y
        step = float(grid.milli) / _MILLI
        raw = grid.nearest(Fraction((self.predicted + self.released * unit) * _MILLI))
        half_width = math.ceil(quantile95(float(design.scale)) * unit / step + 0.5)  # `raw` was rounded to the grid
        top = grid.floor(policy.upper_bound)
        return Estimate(
            raw, design.scale * unit / step, top, (clip(raw - half_width, top), clip(raw + half_width, top))
        )


@dataclass(frozen=True, slots=True)
class TrackerRelease(Placed):
    """A release of a tracker policy, before the ledger assigns its `seq`.

    slot         of the HAT, or of the first HAT that the query is about
    start, end   of these HATs, local time
    """

    name: str  # its release_id, of a HAT or of a query of the settlement or of a whole slot
    hat: HatUsers | None  # the HAT's users; None for a query that is not of one HAT
    query: MadeQuery | None = None  # None unless the status is `released`
    # speed of the HAT's cell in the timetable that holds on its date, 0.1 km/h; None: it has none
    scheduled: int | None = None
    prior_scale: int | None = None  # of the model on its date; None: the prior is no guess

    @property
    def release_id(self) -> str:
        """It never changes."""
        return self.name

    @property
    def charge(self) -> int:
        """0: the date's reservation has all of its queries."""
        return 0

    @property
    def is_hat(self) -> bool:
        """Whether its record is that of a HAT, and not of a query of the settlement or of a whole slot."""
        return self.hat is not None

    def exhausted(self) -> "TrackerRelease":
        """Return the release with status `budget_exhausted` and without a query."""
        if self.status in (Status.RELEASED, Status.DEFERRED):
            return replace(self, status=Status.BUDGET_EXHAUSTED, query=None)
        return self

    def fields(self) -> Mapping[str, Any]:
        """Return the record's fields from the estimate on."""
        policy, query, fields = self.policy, self.query, dict[str, Any]()
        if query is not None:
            grid = Grid(policy.grid, policy.lower)
            fields |= estimate_fields(query.estimate(policy), grid, policy.released_value.unit)
        if self.hat is not None:
            fields["counts"] = _counts_fields(self.hat)
        if self.scheduled is not None:
            fields["scheduled"] = self.scheduled / 10
        if self.prior_scale is not None:
            fields["prior_scale"] = self.prior_scale
        if query is not None:
            fields["query"] = query.fields()
        return fields | {"estimator": TRACKER, "epsilon": exact_json(0 if query is None else query.largest)}


def _counts_fields(hat: HatUsers) -> dict[str, Any]:
    readings = int(hat.counts.sum())
    squares = sum(int(count) ** 2 for count in hat.counts)
    return {"users": len(hat.counts), "readings": readings, "squares": round(squares / readings**2, _DIGITS)}


def hat_release(
    policy: Policy, calendar: Calendar, slot: Slot, hat: HatUsers, status: Status, query: MadeQuery | None = None
) -> TrackerRelease:
    """Return the release of a HAT."""
    name = release_id(policy.name, slot.key, hat.cell)
    start, end = calendar.local(slot.start_ms), calendar.local(slot.end_ms)
    return TrackerRelease(policy, slot, hat.cell, start, end, status, name, hat, query)


def query_release(policy: Policy, calendar: Calendar, slots: Mapping[str, Slot], query: MadeQuery) -> TrackerRelease:
    """Return the release of a pulse or of a query of the settlement. slots: those of the date with HATs, by name."""
    about = sorted((slots[name] for name in {name for name, _ in query.hats}), key=lambda slot: slot.start_ms)
    name = query_id(policy.name, about[0].date, PULSE if query.is_pulse else SETTLEMENT, query.number)
    start, end = calendar.local(about[0].start_ms), calendar.local(max(slot.end_ms for slot in about))
    return TrackerRelease(policy, about[0], query.cell, start, end, Status.RELEASED, name, None, query)


class StoredDraw(msgspec.Struct, frozen=True):
    """Fields of a stored record with which a tracker resumes a date: the query, and the scale of the prior."""

    release_id: str
    cell: str
    query: ResidualQueryRecord | None = None
    prior_scale: int | None = None

    @classmethod
    def of(cls, record: bytes) -> "StoredDraw":
        """Decode a stored record."""
        return _STORED.decode(record)

    def is_of(self, made: MadeQuery, release_id: str, cell: str) -> bool:
        """Return whether its query is the one that the same counts lead to now, whatever was released.

        Integers have to be equal: they are what each user pays. Floats may differ in their last bits, because the
        record may be of another machine.
        """
        if self.query is None:
            return False
        fields = made.fields() | {"sum": self.query.sum}
        ours = msgspec.json.decode(msgspec.json.encode(fields), type=ResidualQueryRecord)
        is_there = (self.release_id, self.cell) == (release_id, cell)
        return is_there and _alike(msgspec.structs.astuple(self.query), msgspec.structs.astuple(ours))


_STORED: Final = msgspec.json.Decoder(StoredDraw)


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=_ALIKE, abs_tol=_ALIKE)
    return bool(one == other)
