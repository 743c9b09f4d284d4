"""A policy with `[policy.continual]` at work: the running sum of each cell, slot after slot of a horizon.

The state of a cell is private. It has the exact sums and all drawn values that later slots need. A record and the state
after it are stored in one step, and only if the state before is still the stored one: so of each drawn value at most
one leaves the process, whatever crashes.    [docs/specification/release.md, Running sums]
"""

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from hatcast.stream.continual import KINDS, BadState, Entries, Mechanism, Setting, Step
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.horizons import SlotIndex, horizon_of
from hatcast.stream.fold.packing import columns
from hatcast.stream.mechanisms import VectorNoise
from hatcast.stream.policy.continual_keys import part_of_delta
from hatcast.stream.policy.policy import NoiseKind, Policy
from hatcast.stream.records.fields import Status
from hatcast.stream.release.continual_records import ContinualRelease, Horizon, RunningSum
from hatcast.stream.release.hats import HatChunks

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">BIQ")  # version, index of the last slot, values entered; then the mechanism's state


class CellHat(NamedTuple):
    """A final HAT, and the state of its cell after the last slot of the horizon; None: it has had none."""

    cell: str
    chunks: HatChunks
    state: bytes | None


class _Stored(NamedTuple):
    """A decoded state: index of the last slot, values entered, and the mechanism's state."""

    last: int
    entered: int
    state: bytes | None


class RunningSums:
    """The running sums of one policy. Raises ValueError for a policy without `[policy.continual]`."""

    def __init__(self, policy: Policy) -> None:
        if policy.continual is None:
            raise ValueError(f"{policy.name} has no running sums")
        self._policy = policy
        self._keys = policy.continual
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
        return [self._closed(horizon, slot, hat, status) for hat in hats]

    def _closed(self, horizon: Horizon, slot: Slot, hat: CellHat, status: Status) -> ContinualRelease:
        index = self._indexes.of(slot.date, slot.name)
        end = self._calendar.local(slot.end_ms)
        return ContinualRelease(self._policy, horizon, slot, end, index, hat.cell, status, before=hat.state)

    def _entries(self, chunks: HatChunks) -> Entries:
        """Return each user's mean in a HAT, rounded half up to milli-units."""
        read = [columns(chunk) for chunk in chunks.readings]
        if not read:
            return Entries(np.empty(0, np.uint64), np.empty(0, np.int64))
        pseudonyms, counts, totals = (np.concatenate(column) for column in zip(*read, strict=True))
        means = (2 * totals + counts) // (2 * counts)
        return Entries(pseudonyms, np.clip(means, 0, self._policy.upper_bound))


def setting_of(policy: Policy) -> Setting:
    """Return the public parameters of a policy's running sums. Raises ValueError for a policy without them."""
    keys = policy.continual
    if keys is None:
        raise ValueError(f"{policy.name} has no running sums")
    return Setting(
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


def _decoded(state: bytes | None) -> _Stored:
    """Raises BadState."""
    if state is None:
        return _Stored(-1, 0, None)
    if len(state) < _HEAD.size or state[0] != _VERSION:
        raise BadState("a stored running sum is damaged, or of another version of hatcast")
    _, index, entered = _HEAD.unpack_from(state)
    return _Stored(index, entered, state[_HEAD.size :])
