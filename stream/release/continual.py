"""A policy with `[policy.continual]` at work: the running sum of each cell, slot after slot of a horizon.

The state of a cell is private. It has the exact sums and all drawn values that later slots need. A record and the state
after it are stored in one step, and only if the state before is still the stored one: so of each drawn value at most
one leaves the process, whatever crashes.    [docs/specification/release.md, Running sums]

Under `replace` all fields of a record except `mean`, `raw`, `interval95` and `running.sum` follow from public counts
and the policy. These four depend on values only through the noise, which is charged to the horizon's reservation.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from hatcast.stream.continual import KINDS, BadState, Entries, Mechanism, Step, SumSetting
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.fold.packing import joined_columns
from hatcast.stream.fold.users import SlotIndex, horizon_of
from hatcast.stream.ledger.proposals import StateChange
from hatcast.stream.ledger.sums import StoredStates
from hatcast.stream.mechanisms import VectorNoise
from hatcast.stream.mechanisms.grid import Grid, clip
from hatcast.stream.policy.continual_keys import CONTINUAL, ContinualKeys, part_of_delta
from hatcast.stream.policy.policy import NoiseKind, Policy
from hatcast.stream.records.fields import Status
from hatcast.stream.release.hats import HatChunks
from hatcast.stream.release.placed import Placed

_MILLI: Final = 1000
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">BIQ")  # version, index of the last slot, values entered; then the mechanism's state


@dataclass(frozen=True, slots=True)
class Horizon:
    """A horizon of a policy."""

    # first, last: local dates; the first one is its name
    first: str
    last: str
    start: datetime  # of its first slot


@dataclass(frozen=True, slots=True)
class RunningSum:
    """A noisy running sum."""

    count: int  # number of values in it
    total: float  # milli-units above `count` times the value's lower bound
    sd: float  # standard deviation of its noise, milli-units
    half_width95: float  # the noise is within this distance of 0 with a probability of at least 0.95, milli-units


@dataclass(frozen=True, slots=True)
class ContinualRelease(Placed):
    """The running sum of a cell at the end of a slot, before the ledger assigns the record's `seq`.

    start     of the horizon
    end       of the slot
    """

    horizon: Horizon
    index: int  # of the slot in the horizon
    running: RunningSum | None = None  # None unless it was drawn
    before: bytes | None = None  # stored state of the cell; None: there was none
    state: bytes | None = None  # after the slot; None: the state does not change
    closes: Status | None = None  # status with which its horizon ends; None: it goes on

    @property
    def charge(self) -> int:
        """0: the horizon's reservation has all of its releases."""
        return 0

    @property
    def change(self) -> StateChange:
        """Change of its horizon by the commit."""
        ends = None if self.closes is None else self.closes.value
        return StateChange(self.horizon.first, self.cell, self.before, self.state, ends)

    def drawn(self, status: Status, running: RunningSum, state: bytes) -> "ContinualRelease":
        """Return the release with a drawn running sum, and the state after it."""
        return replace(self, status=status, running=running, state=state)

    def exhausted(self) -> "ContinualRelease":
        """Return the release with status `budget_exhausted`, without the draw and its state."""
        if self.status is Status.INCOMPLETE:
            return self
        return replace(self, status=Status.BUDGET_EXHAUSTED, running=None, state=None)

    def fields(self) -> Mapping[str, Any]:
        """Return the record's fields from the mean on."""
        is_released = self.running is not None and self.status is Status.RELEASED
        return {
            **(_mean_fields(self.running, self.policy) if self.running is not None and is_released else {}),
            "running": self._running_fields(self.policy.keys_of(ContinualKeys)),
            "estimator": CONTINUAL,
            "epsilon": self.policy.epsilon,
        }

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


class CellHat(NamedTuple):
    """A final HAT, and the state of its cell after the last slot of the horizon; None: it has had none."""

    cell: str
    chunks: HatChunks
    state: bytes | None


class _StoredSums(NamedTuple):
    """A decoded state: index of the last slot, values entered, and the mechanism's state."""

    last: int
    entered: int
    state: bytes | None


class RunningSums:
    """The running sums of one policy. Raises ValueError for a policy without `[policy.continual]`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._keys = policy.keys_of(ContinualKeys)
        self._calendar = Calendar(policy)
        self._indexes = SlotIndex(policy)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The policy's mechanism, made at first use: it may take a second."""
        return KINDS[self._keys.kind](setting_of(self._policy))

    def slot(self, key: str) -> Slot:
        """Return the slot with the key `date/slot`. Raises HatcastError for one that the policy does not release."""
        return self._calendar.stored_slot(key)

    def horizon(self, date: str) -> Horizon:
        """Return the horizon that contains a local date. Raises ValueError for a date outside of all horizons."""
        period = horizon_of(self._keys, date)
        first, last = period.dates[0], period.dates[-1]
        slots = (slot for day in period.dates for slot in self._calendar.slots_of(day) if slot.outside is None)
        return Horizon(first, last, self._calendar.local(next(slots).start_ms))

    def draw(
        self, slot: Slot, hats: Sequence[tuple[str, HatChunks]], stored: StoredStates, noise: VectorNoise, *, lost: bool
    ) -> list[ContinualRelease]:
        """Return the releases of a slot's HATs, in order: drawn, or without a draw where the horizon has ended.

        hats   cells and contributions
        stored their states. A horizon ends with one that cannot be used, or with lost records: for good
        lost   whether records since the horizon's first date were deleted unread
        """
        of_cells = [CellHat(*hat, state) for hat, state in zip(hats, stored.states, strict=True)]
        closes = stored.closed
        if closes is None and not (stored.damaged or lost):
            try:
                return self.advance(slot, of_cells, noise)
            except ValueError:  # BadState, or what the fold never lets in
                pass
        return self.closed(slot, of_cells, closes or Status.INCOMPLETE)

    def advance(self, slot: Slot, hats: Sequence[CellHat], noise: VectorNoise) -> list[ContinualRelease]:
        """Return the releases of a slot's HATs, each with the state after it, in the same order.

        A HAT of a slot before its cell's last one is incomplete, and changes no state.
        Raises BadState if a state cannot be used: then nothing of the horizon may be drawn any more.
        """
        index, horizon = self._indexes.of(slot.date, slot.name), self.horizon(slot.date)
        stored = [_decoded(hat.state) for hat in hats]
        entries = [self._entries(hat.chunks) for hat in hats]
        steps = [
            Step(known.state, index, entered)
            for known, entered in zip(stored, entries, strict=True)
            if known.last < index
        ]
        advanced = iter(self.mechanism.advance(steps, noise))
        releases = []
        for hat, known, entered in zip(hats, stored, entries, strict=True):
            release = self._closed(horizon, slot, hat, Status.INCOMPLETE)
            if known.last < index:
                after, total = next(advanced), known.entered + len(entered.values)
                count = total if after.count is None else after.count
                running = RunningSum(count, after.total, after.sd, after.half_width95)
                state = _HEAD.pack(_VERSION, index, total) + after.state
                is_enough = count >= max(self._policy.min_users, 1)
                status = Status.RELEASED if is_enough else Status.SUPPRESSED
                release = release.drawn(status, running, state)
            releases.append(release)
        return releases

    def closed(self, slot: Slot, hats: Sequence[CellHat], status: Status) -> list[ContinualRelease]:
        """Return the releases of a slot in a horizon that is closed: without a draw, without a state.

        status   `incomplete` or `budget_exhausted`
        """
        horizon = self.horizon(slot.date)
        return [replace(self._closed(horizon, slot, hat, status), closes=status) for hat in hats]

    def _closed(self, horizon: Horizon, slot: Slot, hat: CellHat, status: Status) -> ContinualRelease:
        index = self._indexes.of(slot.date, slot.name)
        end = self._calendar.local(slot.end_ms)
        return ContinualRelease(
            self._policy, slot, hat.cell, horizon.start, end, status, horizon, index, before=hat.state
        )

    def _entries(self, chunks: HatChunks) -> Entries:
        """Return each user's mean in a HAT, rounded half up to milli-units."""
        if not chunks.readings:
            return Entries(np.empty(0, np.uint64), np.empty(0, np.int64))
        pseudonyms, counts, totals = joined_columns(chunks.readings)
        means = (2 * totals + counts) // (2 * counts)
        return Entries(pseudonyms, np.clip(means, 0, self._policy.upper_bound))


def setting_of(policy: Policy) -> SumSetting:
    """Return the public parameters of a policy's running sums. Raises ValueError for a policy without them."""
    keys = policy.keys_of(ContinualKeys)
    return SumSetting(
        slots=keys.slots,
        max_slots=keys.max_slots,
        min_separation=keys.min_separation,
        bound=policy.upper_bound,
        epsilon=policy.epsilon,
        delta=part_of_delta(policy.delta, keys.max_cells) if keys.noise is NoiseKind.GAUSSIAN else 0.0,
        noise=keys.noise,
        branching=keys.branching,
        buffers=keys.buffers,
    )


def _decoded(state: bytes | None) -> _StoredSums:
    """Raises BadState."""
    if state is None:
        return _StoredSums(-1, 0, None)
    if len(state) < _HEAD.size or state[0] != _VERSION:
        raise BadState("a stored running sum is damaged, or of another version of hatcast")
    _, index, entered = _HEAD.unpack_from(state)
    return _StoredSums(index, entered, state[_HEAD.size :])


def _mean_fields(running: RunningSum, policy: Policy) -> dict[str, Any]:
    """Return the record fields of the mean, on the policy's grid."""
    grid = Grid(policy.grid, policy.lower)

    def steps(total: float) -> int:
        return grid.nearest(Fraction(total) / running.count)

    top, raw = grid.floor(policy.upper_bound), steps(running.total)
    bounds = (running.total - running.half_width95, running.total + running.half_width95)
    return {
        "mean": grid.json(clip(raw, top)),
        "raw": grid.json(raw),
        "unit": policy.released_value.unit,
        "noise": {"kind": "continual", "sd": _rounded(running.sd / running.count)},
        "interval95": [grid.json(clip(steps(bound), top)) for bound in bounds],
        "covers": "noise",
    }


def _sum_fields(running: RunningSum, lower: int) -> dict[str, Any]:
    total = running.total + running.count * lower
    bounds = (total - running.half_width95, total + running.half_width95)
    return {"value": _rounded(total), "sd": _rounded(running.sd), "interval95": [_rounded(bound) for bound in bounds]}


def _rounded(milli: float) -> float:
    """Return milli-units in the value's unit, with 3 digits."""
    return round(milli / _MILLI, 3)
