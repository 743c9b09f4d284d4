"""Release of a running sum: the bytes of a `hats.means` record.

Under `replace` all fields except `mean`, `raw`, `interval95` and `running.sum` follow from public counts and the
policy. These four depend on values only through the noise, which is charged to the horizon's reservation.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

import msgspec

from hatcast.stream.fold.hats import Slot
from hatcast.stream.mechanisms.grid import Grid, clip
from hatcast.stream.policy.continual_keys import CONTINUAL, ContinualKeys, part_of_delta
from hatcast.stream.policy.hybrid_keys import NoiseKind
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records.fields import Status, release_id
from hatcast.stream.release.encoding import place_fields, record_parts, utc_text
from hatcast.stream.release.placed import Placed

_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class Horizon:
    """A horizon of a policy.

    first, last   local dates; the first one is its name
    start         of its first slot
    """

    first: str
    last: str
    start: datetime


@dataclass(frozen=True, slots=True)
class RunningSum:
    """A noisy running sum.

    count         number of values in it
    total         milli-units above `count` times the value's lower bound
    sd            standard deviation of its noise, milli-units
    half_width95  the noise is within this distance of 0 with a probability of at least 0.95, milli-units
    """

    count: int
    total: float
    sd: float
    half_width95: float


@dataclass(frozen=True, slots=True)
class ContinualRelease(Placed):
    """The running sum of a cell at the end of a slot, before the ledger assigns the record's `seq`.

    end       of the slot
    index     of the slot in the horizon
    running   None unless it was drawn
    before    stored state of the cell; None: there was none
    state     after the slot; None: the state does not change
    """

    policy: Policy
    horizon: Horizon
    slot: Slot
    end: datetime
    index: int
    cell: str
    status: Status
    running: RunningSum | None = None
    before: bytes | None = None
    state: bytes | None = None

    @property
    def release_id(self) -> str:
        """`policy/dateTslot/cell`; it never changes."""
        return release_id(self.policy.name, self.slot.key, self.cell)

    @property
    def charge(self) -> int:
        """0: the horizon's reservation has all charges."""
        return 0

    @property
    def is_hat(self) -> bool:
        """True: its record is that of a HAT."""
        return True

    @property
    def fineness(self) -> int:
        """As `fineness_of` such a policy."""
        return 0

    def drawn(self, status: Status, running: RunningSum, state: bytes) -> "ContinualRelease":
        """Return the release with a drawn running sum, and the state after it."""
        return replace(self, status=status, running=running, state=state)

    def exhausted(self) -> "ContinualRelease":
        """Return the release with status `budget_exhausted`, without the draw and its state."""
        if self.status is Status.INCOMPLETE:
            return self
        return replace(self, status=Status.BUDGET_EXHAUSTED, running=None, state=None)

    def record(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return the record's bytes before and after `seq`, as `hatcast.stream.release.hats.Release.record`."""
        policy = self.policy
        keys = policy.continual
        if keys is None:
            raise ValueError(f"{policy.name} has no running sums")
        head = {"release_id": self.release_id, "policy_id": policy.policy_id, "status": self.status.value}
        tail = place_fields(policy, self.cell, self.slot, self.horizon.start, self.end)
        if self.running is not None and self.status is Status.RELEASED:
            tail |= _mean_fields(self.running, policy)
        tail["running"] = self._running_fields(keys)
        tail |= {
            "estimator": CONTINUAL,
            "epsilon": policy.epsilon,
            "relation": policy.relation.value,
            "released_at": utc_text(now_ms),
        }
        return record_parts(head, tail, hidden=False)

    def _running_fields(self, keys: ContinualKeys) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "horizon": self.horizon.first,
            "last_date": self.horizon.last,
            "index": self.index,
            "slots": keys.slots,
            "kind": keys.kind.value,
            "max_cells": keys.max_cells,
        }
        if keys.noise is NoiseKind.GAUSSIAN:
            fields["delta"] = part_of_delta(self.policy.delta, keys.max_cells)
        if self.running is not None:
            fields["count"] = self.running.count
            if self.status is Status.RELEASED:
                fields["sum"] = _sum_fields(self.running, self.policy.lower)
        return fields


def _mean_fields(running: RunningSum, policy: Policy) -> dict[str, Any]:
    """Return the record fields of the mean, on the policy's grid."""
    grid = Grid(policy.grid, policy.lower)

    def steps(total: float) -> int:
        return grid.nearest(Fraction(total) / running.count)

    def number(steps: int) -> msgspec.Raw:
        return msgspec.Raw(grid.text(steps).encode())

    top, raw = grid.floor(policy.upper_bound), steps(running.total)
    bounds = (running.total - running.half_width95, running.total + running.half_width95)
    return {
        "mean": number(clip(raw, top)),
        "raw": number(raw),
        "unit": policy.released_value.unit,
        "noise": {"kind": "continual", "sd": _rounded(running.sd / running.count)},
        "interval95": [number(clip(steps(bound), top)) for bound in bounds],
        "covers": "noise",
    }


def _sum_fields(running: RunningSum, lower: int) -> dict[str, Any]:
    total = running.total + running.count * lower
    bounds = (total - running.half_width95, total + running.half_width95)
    return {"value": _rounded(total), "sd": _rounded(running.sd), "interval95": [_rounded(bound) for bound in bounds]}


def _rounded(milli: float) -> float:
    """Return milli-units in the value's unit, with 3 digits."""
    return round(milli / _MILLI, 3)
