"""Target: what a worker reads from Redis, after one value of a real state was damaged.

Contributions, users, journals and states are refused or give the same release. Of everything else the readers return a
value or refuse it in one line: numbers and names have no checksum (docs/operations.md).
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.identity import check_user_key, policy_errors
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.policy_state import PolicyTransitionStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import restore, take_changes
from hatcast.stream.fold.packing import stripped_columns
from hatcast.stream.ledger import rows
from hatcast.stream.release.hats import HatChunks, releases_of
from tests.fuzz.target import Finding, Target, check_message
from tests.integration.readings import LATER_MS, NOON_MS, Sample, folds
from tests.laws.redis_scripts import DAY, proposal
from tests.laws.script_stage import Stage, empty_snapshot, staged
from tests.laws.test_stores import state
from tests.support import Scripted

_KINDS: Final = ("cut", "flip", "type", "swap", "delete", "replace", "huge", "append", "rename")
_FOLDED: Final = (b"}:c:", b"}:d:", b"}:journal", b"}:hats:")
_INDEX: Final = (b"slot:", b"day:", b"journal")  # fields of the state
_STATES: Final = {b"}:k:": "kept", b"}:tracker:": "tracker", b"}:running:": "sums", b"}:estimates:": "snapshot"}
_DRAWN_AGAIN: Final = ("sums", "snapshot")  # None is a refusal: the horizon ends, and the snapshot is made again

Read = Callable[[], Awaitable[object]]


class State:
    """A worker's state in Redis, and what reads it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, data: bytes) -> None:
        """Damage one value as the input says, and read everything."""
        if self._loop is None:  # in the process of the search
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(self._begin())
        self._loop.run_until_complete(self._try(data))

    async def _begin(self) -> None:
        self._open = AsyncExitStack()  # without this reference the state would be deleted at once
        self._stage: Stage = await self._open.enter_async_context(staged(self._url))
        stage, redis = self._stage, self._stage.redis
        fold = folds(stage.policy)[0]
        # Two chunks of users in each of two HATs; not in the first one, which the stage has released and retained.
        ours = [
            each for n in range(700) for place in (1, 2) if (each := Sample(f"v{n}", NOON_MS, place)).partition == 0
        ]
        fold.apply(LATER_MS, [NOON_MS] * len(ours), [each.value for each in ours])
        assert await stage.partition.checkpoint(0, 1, 2, take_changes(fold))
        vehicle = ours[0].vehicle
        for number in range(3):  # blocks of the journal
            more = [Sample(vehicle, NOON_MS + (10 + number) * 60_000, place=3)]
            fold.apply(LATER_MS, [NOON_MS], [each.value for each in more])
            assert await stage.partition.checkpoint(0, 2 + number, 3 + number, take_changes(fold, journal=number > 0))
        await stage.ledger.tracker.store(DAY, b"state", stage.token)
        await SnapshotStore(redis, stage.name, stage.name).write(empty_snapshot(stage.policy.policy_id), {})
        self._names = [f"{stage.name}/{DAY}T20:00/{cell}" for cell in "ab"]
        for name in self._names:
            parts = f'{{"release_id":"{name}","seq":'.encode(), b"}"
            await stage.commit([replace(proposal(stage.name, "20:00", name[-1]), release_id=name, record=parts)])
        await redis.hdel(DomainKeys(stage.name).row(rows.releases(DAY, stage.name)), *await self._of_others(redis))
        keys: list[bytes] = sorted([key async for key in redis.scan_iter(f"{{{stage.name}*")])
        self._dumps = {key: await redis.dump(key) or b"" for key in keys}
        self._values = {key: await self._value(key) for key in keys}
        self._hats = [
            FinalHat(slot, cell, 0)
            for slot in sorted(await stage.partition.open_slots())
            for cell in await stage.partition.cells(slot)
        ]
        self._reads = self._readers()
        self._whole = {name: await read() for name, read in self._reads.items()}
        assert all(self._whole[name] for name in ("restored", "released", *_STATES.values()))

    async def _of_others(self, redis: Redis) -> list[bytes]:
        """Return the ids of the stage's own records, which are not JSON."""
        stored: Any = await redis.hkeys(DomainKeys(self._stage.name).row(rows.releases(DAY, self._stage.name)))
        return [each for each in stored if each.decode() not in self._names]

    async def _value(self, key: bytes) -> Any:
        redis: Redis = self._stage.redis
        match await redis.type(key):
            case b"hash":
                return await redis.hgetall(key)
            case b"set":
                return await redis.smembers(key)
            case _:
                return await redis.get(key)

    def _readers(self) -> Mapping[str, Read]:
        stage, redis, name = self._stage, self._stage.redis, self._stage.name
        ledger, recovery, partition = stage.ledger, stage.recovery, stage.partition
        retained, keys, unsent = RetainedStore(redis, name, 1), DomainKeys(name), stage.recovery.unsent
        transition = PolicyTransitionStore(redis, name)

        async def sums() -> object:
            stored = await ledger.horizons.read(DAY, ["a"])
            return None if stored.closed or stored.damaged else stored.states

        async def kept() -> object:
            slots = sorted(await retained.slots())
            cells = sorted(await retained.cells(slots))
            found = await retained.load(slots, 0, cells)
            parts = {} if found is None else found.parts
            return [
                len(columns) for chunks in parts.values() for chunk in chunks for columns in stripped_columns(chunk)
            ]

        return {
            "restored": self._restored,
            "released": self._released,
            "kept": kept,
            "open_slots": partition.open_slots,
            "watermarks": partition.watermarks,
            "offsets": partition.offsets,
            "outcomes": partition.outcomes,
            "complete_from": partition.complete_from,
            "found": lambda: ledger.find(DAY, self._names),
            "unpublished": lambda: ledger.unpublished_records(DAY),
            "summary": lambda: ledger.summary(DAY),
            "total": ledger.total,
            "dates": ledger.dates,
            "unsealed": ledger.unsealed_dates,
            "sealed": ledger.sealed_through,
            "next_policy": ledger.next_policy,
            "progress": ledger.progress.read,
            "settled": ledger.tracker.settled,
            "tracker": ledger.tracker.read,
            "sums": sums,
            "known_horizons": ledger.horizons.known,
            "recovery": lambda: recovery.read_state([0]),
            "adopted": recovery.adopted,
            "ends": recovery.ends,
            "unsent": lambda: unsent.records(name, DAY),
            "nonces": unsent.nonces,
            "known": lambda: transition.known(name),
            "snapshot": lambda: SnapshotStore(redis, name, name).read(stage.policy.policy_id),
            "policy": lambda: policy_errors(redis, keys, stage.policy, 1),
            "user_key": lambda: check_user_key(redis, keys, None),
        }

    async def _restored(self) -> object:
        partition, fold = self._stage.partition, folds(self._stage.policy)[0]
        await partition.read_until(0, await partition.read(0), lambda stored: restore(fold, stored))
        return state(fold)

    async def _released(self) -> object:
        stage, policy = self._stage, self._stage.policy
        loaded = await stage.partition.final_hats.load(self._hats)
        if loaded is None:
            return None
        given = [(hat.slot, hat.cell, HatChunks(chunks)) for hat, chunks in zip(self._hats, loaded, strict=True)]
        released = releases_of(policy, Calendar(policy), given, Scripted(itertools.repeat(7)))
        return [each.record(NOON_MS) for each in released]

    async def _try(self, data: bytes) -> None:
        key, checked, commands = self._damage(data)
        redis = self._stage.redis
        async with redis.pipeline() as pipe:
            for command in commands:
                pipe.execute_command(*command)
            await pipe.execute(raise_on_error=False)
        try:
            for name, read in self._reads.items():
                await self._read(name, read, is_checked=name in checked)
        finally:
            await redis.restore(key, 0, self._dumps[key], replace=True)

    async def _read(self, name: str, read: Read, *, is_checked: bool) -> None:
        try:
            found = await read()
        except (HatcastError, RedisError) as error:
            check_message(error)
            return
        if is_checked and found != self._whole[name] and not (found is None and name in _DRAWN_AGAIN):
            raise Finding(f"{name}: a damaged state gives another result")

    def _damage(self, data: bytes) -> tuple[bytes, Sequence[str], list[tuple[Any, ...]]]:
        """Return the key that the input damages, the readers that must notice it, and the commands."""
        head, payload = data[:6].ljust(6, b"\0"), data[6:]
        keys = [*self._values]
        key = keys[int.from_bytes(head[:2]) % len(keys)]
        kind = _KINDS[head[2] % len(_KINDS)]
        value = self._values[key]
        folded: tuple[str, ...] = ("restored", "released") if any(part in key for part in _FOLDED) else ()
        checked = (*folded, *(name for part, name in _STATES.items() if part in key))
        if kind == "type":
            return key, checked, [("DEL", key), ("RPUSH", key, payload)]
        if isinstance(value, set):
            return key, (), [("SREM", key, *sorted(value)[: 1 + head[3]]), ("SADD", key, payload)]
        if isinstance(value, dict):
            field = sorted(value)[int.from_bytes(head[3:5]) % len(value)]
            if b"}:state" in key and field.startswith(_INDEX):
                folded = checked = ("restored",)
            if kind in ("delete", "rename"):
                more = [("HSET", key, payload, value[field])] if kind == "rename" else []
                # As many entries as counted, but one of another name: a HAT that is not in the index has no readings.
                return key, folded if kind == "delete" else folded[:1], [("HDEL", key, field), *more]
            new = self._changed(kind, value[field], head[5], payload)
            return key, checked, [("HSET", key, field, new)]
        if kind in ("delete", "rename"):
            return key, folded, [("DEL", key)]
        return key, checked, [("SET", key, self._changed(kind, value, head[5], payload))]

    def _changed(self, kind: str, value: bytes, at: int, payload: bytes) -> bytes:
        match kind:
            case "cut":
                return value[: at * len(value) // 256]
            case "flip":
                return bytes([*value[: at % max(1, len(value))], at, *value[at % max(1, len(value)) + 1 :]])
            case "swap":
                others = [each for each in self._values.values() if isinstance(each, bytes)]
                return others[at % len(others)]
            case "huge":
                return b"9" * (at % 40 + 1) if at % 2 else payload * (1 << (at % 16))
            case "append":
                return value + payload
            case _:
                return payload


def targets(url: str) -> Iterator[Target]:
    """Yield the target."""
    seeds = [
        bytes([0, n, kind, 0, n % 7, 40 * (n % 6)]) + b"17" for n in range(0, 48, 4) for kind in range(len(_KINDS))
    ]
    yield Target("redis", State(url).run, partial(list, seeds), max_bytes=512, share=6.0)
