"""Snapshot of the model behind `hats.estimates`, with positions on `hats.means`.    [decisions/0032]

It saves reading, nothing else: whoever reads `hats.means` from its beginning has the same model. So a snapshot that is
lost, or older because Redis went back, is never wrong.
"""

from collections.abc import Mapping

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.tracker.smoother_state import VERSION, SmootherState


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State at the beginning of a date, and where to read on.

    positions   partition of `hats.means` -> offset; all records of the date and of later ones are there or after it
    """

    positions: Mapping[int, int]
    state: SmootherState


_DECODER = msgspec.msgpack.Decoder(StoredSnapshot)


class SnapshotStore:
    """The snapshot of one policy. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        self._key = DomainKeys(domain).estimates(name)

    async def read(self, policy_id: str) -> StoredSnapshot | None:
        """Return the snapshot; None without one of this policy and this version."""
        stored = await self._redis.get(self._key)
        if not isinstance(stored, bytes):
            return None
        try:
            snapshot = _DECODER.decode(stored)
        except msgspec.DecodeError:
            return None
        same = snapshot.state.version == VERSION and snapshot.state.policy_id == policy_id
        return snapshot if same else None

    async def write(self, snapshot: StoredSnapshot) -> None:
        """Replace the snapshot."""
        await self._redis.set(self._key, msgspec.msgpack.encode(snapshot))
