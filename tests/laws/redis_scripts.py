"""Shared by the laws of the Redis scripts: a day, a charge, the contents of Redis, and mutants of scripts."""

from typing import Any

import pytest
from redis.asyncio import Redis

from hatcast.agents.redis import clients
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.proposals import Proposal

DAY = "2022-01-02"
NANO = 10**9
PARTS = (b'{"seq":', b"}"), (b"{", b"}")

Contents = dict[bytes, object]

Mutant = tuple[str, str, str]
"""A part of the scripts, a text in it, and the mutant's text in its place."""


async def contents(redis: Redis, name: str) -> Contents:
    """What the keys of a domain, and of a policy's partitions, hold."""
    keys: list[Any] = sorted(await redis.keys(f"{{{name}*"))
    async with redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        kinds = await pipe.execute()
        reads = {b"hash": pipe.hgetall, b"set": pipe.smembers, b"string": pipe.get, b"list": pipe.llen}
        for key, kind in zip(keys, kinds, strict=True):
            reads[kind](key)
        found = dict(zip(keys, await pipe.execute(), strict=True))
    for value in found.values():
        if isinstance(value, dict) and b"nonce" in value:
            value[b"nonce"] = b"random"
    nonces = found.get(f"{{{name}}}:{rows.NONCES}".encode())
    if isinstance(nonces, dict):
        nonces.update(dict.fromkeys(nonces, b"random"))
    return found


def proposal(name: str, slot: str, place: str, charge: int = NANO) -> Proposal:
    return Proposal(f"{name}/{DAY}T{slot}/{place}", DAY, place, charge, *PARTS, fineness=3, release_partition=0)


def break_scripts(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    """Run the mutant in place of the script's part for one test."""
    part, product, broken = mutant
    text = clients._text
    assert text(part).count(product) == 1

    def mutated(name: str) -> str:
        return text(name).replace(product, broken) if name == part else text(name)

    monkeypatch.setattr(clients, "_text", mutated)
