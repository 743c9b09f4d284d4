"""Law of the scripts in Redis: each writes all of its changes or none, whatever it finds."""

from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.stored_values import Damaged, Overflow
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.rejections import AlreadyAdopted, RecoveryEnded, Unrecovered
from tests.laws.redis_scripts import DAY, Contents, Mutant, break_scripts, contents
from tests.laws.script_stage import staged
from tests.services import RedisServer


def harms(before: Contents, after: Contents) -> Iterator[tuple[str, bytes, bytes | None, object]]:
    """What may be wrong with a key: another type, a number that is none, and one that is too large."""
    for key in sorted(before.keys() | after.keys()):
        yield "type", key, None, None
        found = [fields for fields in (before.get(key), after.get(key)) if isinstance(fields, dict)]
        for field in sorted({field for fields in found for field, value in fields.items() if value.isdigit()}):
            yield "text", key, field, b"x"
            yield "size", key, field, b"9" * 40


async def harm(redis: Redis, key: bytes, field: bytes | None, value: Any) -> None:
    if field is None:
        await redis.delete(key)
        await redis.rpush(key, "of another type")
    else:
        await redis.hset(key, field, value)


def without(found: Contents, key: bytes, field: bytes | None) -> Contents:
    """All but what was harmed."""
    rest = {each: value for each, value in found.items() if each != key}
    fields = found.get(key)
    if field is not None and isinstance(fields, dict):
        rest[key] = {each: value for each, value in fields.items() if each != field}
    return rest


OF_PARTITIONS = frozenset({"checkpoint", "claim", "delete", "delete_retained", "open", "restore_key", "skip", "sweep"})
# Of the ledger: with new records, without, with deletions of fields, of members and of keys, and with none of these.
OF_LEDGER = frozenset({"adopt", "commit", "discard", "finish", "seal", "shrink"})


async def check_each_harm(url: str, only: frozenset[str]) -> dict[str, int]:
    """Act beside each harm: an act writes all or nothing. Returns how often each wrote nothing."""
    refused: dict[str, int] = {}
    async with staged(url) as stage:
        redis, saved = stage.redis, dict[bytes, bytes]()
        async for key in redis.scan_iter(f"{{{stage.name}*"):
            saved[key] = await redis.dump(key) or b""

        async def go_back() -> None:
            async with redis.pipeline() as pipe:
                pipe.delete(*await redis.keys(f"{{{stage.name}*"), "-")
                for key, dump in saved.items():
                    pipe.restore(key, 0, dump)
                await pipe.execute()

        intact = await contents(redis, stage.name)
        for script, act in stage.acts().items():
            if script not in only:
                continue
            await go_back()
            await act()
            whole, refused[script] = await contents(redis, stage.name), 0
            for what, key, field, value in harms(intact, whole):
                await go_back()
                await harm(redis, key, field, value)
                before = await contents(redis, stage.name)
                try:
                    await act()
                except (RedisError, ValueError, Unrecovered, RecoveryEnded, AlreadyAdopted):  # another state
                    refused[script] += 1
                after = await contents(redis, stage.name)
                unchanged = after == before
                done = without(after, key, field) == without(whole, key, field)
                assert unchanged or done, f"{script} wrote a part beside {what} of {key!r} {field!r}"
    return refused


@pytest.mark.parametrize("script", sorted(OF_PARTITIONS | OF_LEDGER))
async def test_a_script_writes_all_or_nothing_whatever_is_wrong_with_a_key(
    redis_server: RedisServer, script: str
) -> None:
    refused = await check_each_harm(redis_server.url, frozenset({script}))
    assert refused[script], "without a key that it could stumble over, a script proves nothing here"


def test_every_script_that_writes_is_harmed() -> None:
    files = resources.files("hatcast.agents.redis").iterdir()
    writing = {path.name.removesuffix(".lua") for path in files if path.name.endswith(".lua")}
    assert OF_PARTITIONS | {"apply", "index", "list_retained", "load", "load_retained", "read", "staging"} >= writing


WRITES_ANYWAY = ("staging", "if rejection then return rejection end", "")
WRITES_AT_ONCE = (
    "staging",
    "hash.known[field] = value\n",
    "hash.known[field] = value\n  if value then redis.call('HSET', key, field, value) end\n",
)


APPLIES_AT_ONCE = (
    "apply",
    "kept[#kept + 1], kept[#kept + 2] = field, string.format('%.0f', after)",
    "redis.call('HSET', KEYS[key], field, string.format('%.0f', after))",
)
APPLIES_TO_ANY_TYPE = ("apply", "if type(held) == 'table' then", "if false then")


@pytest.mark.parametrize(
    ("mutant", "acts"),
    [
        (WRITES_ANYWAY, frozenset({"checkpoint", "delete_retained"})),
        (WRITES_AT_ONCE, frozenset({"checkpoint"})),
        (APPLIES_AT_ONCE, frozenset({"commit"})),
        (APPLIES_TO_ANY_TYPE, frozenset({"commit"})),
    ],
)
async def test_the_check_sees_scripts_that_write_before_they_know(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, acts: frozenset[str]
) -> None:
    break_scripts(monkeypatch, mutant)
    with pytest.raises(AssertionError, match="wrote a part"):
        await check_each_harm(redis_server.url, acts)


async def test_a_script_that_writes_nothing_says_so_in_one_line_with_the_key_and_what_to_do(
    redis_server: RedisServer,
) -> None:
    async with staged(redis_server.url) as stage:
        ledger = DomainKeys(stage.name).row(rows.ledger(DAY))
        await stage.redis.hset(ledger, f"releases:{stage.name}", "x")
        with pytest.raises(Damaged, match=r"ledger:2022-01-02.*nothing was written: restore all of Redis"):
            await stage.acts()["commit"]()
        await stage.redis.hset(ledger, f"releases:{stage.name}", "9" * 25)
        with pytest.raises(Overflow, match=r"ledger:2022-01-02.*nothing was written: start"):
            await stage.acts()["commit"]()
