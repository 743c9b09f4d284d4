"""Law of the scripts' keys: each reaches only keys that it declares.

While a Redis Cluster moves a slot, it answers a command on keys that are on two nodes with TRYAGAIN, but it knows only
keys that are declared: others look absent to the script.
"""

import uuid
from collections.abc import Mapping
from importlib import resources
from typing import Final

import pytest
from redis.asyncio import Redis

from hatcast.agents.redis.clients import Script
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.retained import RetainedStore
from tests.laws.redis_scripts import DAY, break_scripts
from tests.laws.script_stage import Act, Stage, staged
from tests.services import RedisServer

PARTS: Final = frozenset({"index", "staging"})
ONLY_KEYS: Final = frozenset({"DEL", "EXISTS", "MGET", "UNLINK"})  # each argument is a key
NO_KEY: Final = frozenset({"INFO"})


def others(stage: Stage) -> Mapping[str, Act]:
    """By script that only reads, and by one that the stage gives nothing to do: what a worker asks of it."""
    kept, hats = RetainedStore(stage.redis, stage.name, 1), stage.hats()

    async def restore_lost_key() -> None:
        await stage.redis.delete(DomainKeys(stage.name).user_key)
        await stage.acts()["restore_key"]()

    slots, cells = sorted({hat.slot for hat in hats}), sorted({hat.cell for hat in hats})
    return {
        "load": lambda: stage.partition.final_hats.load(hats),
        "list_retained": lambda: kept.cells(slots),
        "load_retained": lambda: kept.load(slots, 0, cells),
        "read": lambda: stage.ledger.summary(DAY),
        "apply": stage.acts()["commit"],
        "restore_key": restore_lost_key,
    }


async def undeclared(url: str, only: frozenset[str] = frozenset()) -> dict[str, set[str]]:
    """Run each script that a worker runs; return script -> keys that it reached and did not declare."""
    scripts = {
        path.name.removesuffix(".lua")
        for path in resources.files("hatcast.agents.redis").iterdir()
        if path.name.endswith(".lua")
    }
    found: dict[str, set[str]] = {}
    async with Redis.from_url(url) as redis:
        names = {Script(redis, name)._hash: name for name in scripts - PARTS}
        async with redis.monitor() as monitor:
            for script in sorted(only or scripts - PARTS):
                async with staged(url) as stage:
                    await {**stage.acts(), **others(stage)}[script]()
            end = uuid.uuid4().hex
            await redis.echo(end)
            declared: set[str] = set()
            running = ""
            while True:
                seen = await monitor.next_command()
                command, *args = seen["command"].split(" ")
                if args == [end]:
                    break
                if seen["client_type"] != "lua":
                    running = names.get(args[0], "") if command == "EVALSHA" else ""
                    declared = set(args[2 : 2 + int(args[1])]) if running else set()
                elif running and command not in NO_KEY:
                    reached = args if command in ONLY_KEYS else args[:1]
                    found.setdefault(running, set()).update(set(reached) - declared)
    assert only or found.keys() == scripts - PARTS, "scripts that were not run"
    return {script: keys for script, keys in found.items() if keys}


async def test_every_script_reaches_only_keys_that_it_declares(redis_server: RedisServer) -> None:
    assert await undeclared(redis_server.url) == {}


@pytest.mark.parametrize(
    ("part", "line", "broken"),
    [
        ("load", "local found = {}", "local found = {get(KEYS[2] .. 's', '') or nil}"),
        ("sweep", "remove(KEYS[i])", "remove(KEYS[1] .. i)"),
        ("delete", "redis.call('EXISTS', KEYS[at])", "redis.call('EXISTS', KEYS[at], KEYS[1] .. 's')"),
    ],
)
async def test_the_law_sees_a_script_that_makes_a_key(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, part: str, line: str, broken: str
) -> None:
    break_scripts(monkeypatch, (part, line, broken))
    assert part in await undeclared(redis_server.url, frozenset({part}))
