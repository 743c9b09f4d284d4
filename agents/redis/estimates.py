"""Snapshot of the models behind `hats.estimates` and `hats.running`, with positions on `hats.means`.

    [decisions/0032]

It saves reading, nothing else: whoever reads `hats.means` from its beginning has the same model. So a snapshot that is
lost, damaged, or older because Redis went back, is never wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.checksums import with_checksum, without_checksum
from hatcast.stream.errors import UNREADABLE
from hatcast.stream.tracker.state import SMOOTHER_VERSION, SmootherState


class RunningSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of running means that are stored beside the snapshot."""

    days: int  # number of local dates up to the last one that are stored, if they have a slot
    dates: Sequence[str]  # those that have one, in order


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State at the beginning of a date, and where to read on."""

    # partition of `hats.means` -> offset; all records of the date and of later ones are there or after it
    positions: Mapping[int, int]
    state: SmootherState
    running: RunningSnapshot


_DECODER = msgspec.msgpack.Decoder(StoredSnapshot)


class SnapshotStore:
    """The snapshot of one policy."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        self._key = DomainKeys(domain).estimates(name)
        self._dates_key = DomainKeys(domain).running(name)

    async def read(self, policy_id: str) -> StoredSnapshot | None:
        """Return the snapshot; None without one of this policy and this version."""
        stored = _whole(self._key, await self._redis.get(self._key))
        if stored is None:
            return None
        try:
            snapshot = _DECODER.decode(stored)
        except UNREADABLE:
            return None
        same = snapshot.state.version == SMOOTHER_VERSION and snapshot.state.policy_id == policy_id
        return snapshot if same else None

    async def read_dates(self, snapshot: StoredSnapshot | None) -> dict[str, bytes]:
        """Return the inputs of a snapshot's running means, by local date; without those that are not there."""
        dates = [] if snapshot is None else [*snapshot.running.dates]
        if not dates:
            return {}
        found: Any = await self._redis.hmget(self._dates_key, dates)
        states = {date: _whole(self._of_date(date), state) for date, state in zip(dates, found, strict=True)}
        return {date: state for date, state in states.items() if state is not None}

    async def write(self, snapshot: StoredSnapshot, dates: Mapping[str, bytes]) -> None:
        """Replace the snapshot.

        dates   inputs of those of its local dates that are not stored as they are now
        """
        # In this order each step leaves a snapshot whose dates are there.
        for date, state in dates.items():
            await self._redis.hset(self._dates_key, date, with_checksum(self._of_date(date), state))
        await self._redis.set(self._key, with_checksum(self._key, msgspec.msgpack.encode(snapshot)))
        names: Any = await self._redis.hkeys(self._dates_key)  # bytes, but the types allow text
        if left := [name for name in names if name.decode() not in snapshot.running.dates]:
            await self._redis.hdel(self._dates_key, *left)

    def _of_date(self, date: str) -> str:
        return f"{self._dates_key}/{date}"


def _whole(key: str, stored: object) -> bytes | None:
    """Return a value without its checksum; None for one that is not there, or damaged."""
    return without_checksum(key, stored) if isinstance(stored, bytes) else None
