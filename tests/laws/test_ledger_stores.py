"""The law of the ledger's decisions on a real Redis: rows, conditions and older copies, as in a file."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis.asyncio import Redis

from hatcast.agents.ledger.redis import RedisStore
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.view import Changes, View, Wanted
from tests.laws.test_ledger_decisions import Writers
from tests.ledgers import Rows
from tests.services import RedisServer


class RedisRows:
    """The store of a domain in Redis, whose answers are waited for at once; its rows can be copied and brought back."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.domain = f"t-stores-{uuid.uuid4().hex[:8]}"
        self._redis = Redis.from_url(url)
        self._store = RedisStore(self._redis, self.domain)

    async def read(self, wanted: Wanted) -> View:
        return self._loop.run_until_complete(self._store.read(wanted))

    async def apply(self, changes: Changes) -> bool:
        return self._loop.run_until_complete(self._store.apply(changes))

    @property
    def rows(self) -> Rows:
        return self._loop.run_until_complete(self._rows())

    def restore(self, copy: Rows) -> None:
        self._loop.run_until_complete(self._restore(copy))

    def close(self) -> None:
        self.restore({})
        self._loop.run_until_complete(self._redis.aclose())
        self._loop.close()

    async def _rows(self) -> Rows:
        found: Rows = {}
        prefix = f"{{{self.domain}}}:"
        for raw in await self._redis.keys(prefix + "*"):
            key = raw.decode().removeprefix(prefix)
            if rows.is_set(key):
                found[key] = {member.decode(): b"" for member in await self._redis.smembers(raw)}
            else:
                found[key] = {name.decode(): value for name, value in (await self._redis.hgetall(raw)).items()}
        return found

    async def _restore(self, copy: Rows) -> None:
        prefix = f"{{{self.domain}}}:"
        async with self._redis.pipeline(transaction=True) as pipe:
            for raw in await self._redis.keys(prefix + "*"):
                pipe.delete(raw)
            for key, fields in copy.items():
                if rows.is_set(key):
                    pipe.sadd(prefix + key, *fields)
                else:
                    pipe.hset(prefix + key, mapping=dict(fields))
            await pipe.execute()


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[Any]:
    made = RedisRows(redis_server.url)
    yield made
    made.close()


def test_on_redis_too_each_apply_is_what_the_definition_decides_then(store: Any) -> None:
    class OnRedis(Writers):
        def new_store(self) -> Any:
            store.restore({})
            return store

    few = settings(max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(OnRedis, settings=few)
