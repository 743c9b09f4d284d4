"""What a commit compares before it writes: each comparison, and the script without it."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.agents.redis.stored_values import Damaged
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.rejections import Behind, DaySealed, Unrecovered
from tests.integration.recovering import finish, guard_of_all
from tests.replayed import policy_of
from tests.services import RedisServer

DATE = "2022-01-02"


@dataclass
class Ledger:
    """A domain's ledger, recovered, and a worker that owns it."""

    redis: Redis
    name: str
    guard: CommitGuard

    @property
    def recovery(self) -> RecoveryStore:
        return RecoveryStore(self.redis, self.name, self.name)

    async def commit(self, slot: str, release_partition: int = 0) -> None:
        """One release."""
        parts = (b'{"seq":', b"}"), (b"{", b"}")
        one = Proposal(
            f"{self.name}/{DATE}T{slot}/c", DATE, f"c/{slot}", 10**9, *parts, release_partition=release_partition
        )
        await LedgerStore(self.redis, self.name, policy_of(name=self.name)).commit([one], self.guard)


@asynccontextmanager
async def opened(server: RedisServer) -> AsyncIterator[Ledger]:
    name = f"t-guard-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(server.url) as redis:
        ledger = Ledger(redis, name, await guard_of_all(redis, name, name))
        await ledger.commit("09:00")
        yield ledger
    server.delete(f"{{{name}}}*")


async def recovered_by_another(ledger: Ledger) -> None:
    """Another worker recovers the ledger."""
    await finish(ledger.recovery, await ledger.recovery.begin())


async def recovery_began(ledger: Ledger) -> None:
    """Another worker begins to recover the ledger."""
    await ledger.recovery.begin()


async def went_back(ledger: Ledger) -> None:
    """All keys go back by one commit of ours, while the server lives on."""
    async with restored(ledger):
        await ledger.commit("10:00")


async def went_back_elsewhere(ledger: Ledger) -> None:
    """All keys go back by one commit of another worker, which we had seen. None of ours is lost."""
    async with restored(ledger):
        other = Ledger(ledger.redis, ledger.name, await guard_of_all(ledger.redis, ledger.name, ledger.name))
        await other.commit("10:00", release_partition=1)
        ledger.guard.commits = (await ledger.recovery.read_state()).commits


@asynccontextmanager
async def restored(ledger: Ledger) -> AsyncIterator[None]:
    """Every key goes back to what it held before the block."""
    keys = [key async for key in ledger.redis.scan_iter(f"{{{ledger.name}}}*")]
    copy = {key: await ledger.redis.dump(key) for key in keys}
    yield
    await ledger.redis.delete(*[key async for key in ledger.redis.scan_iter(f"{{{ledger.name}}}*")])
    for key, value in copy.items():
        await ledger.redis.restore(key, 0, value or b"")


async def written_by_another(ledger: Ledger) -> None:
    """Another worker that owns the release partition commits."""
    other = Ledger(ledger.redis, ledger.name, await guard_of_all(ledger.redis, ledger.name, ledger.name))
    await other.commit("10:00")


async def sealed(ledger: Ledger) -> None:
    """The day is sealed."""
    assert await ledger.recovery.seals.seal(ledger.name, DATE, ledger.guard.token)


async def lives_another_life(ledger: Ledger) -> None:
    """The server was restarted since: its run_id is another one."""
    await ledger.redis.hset(DomainKeys(ledger.name).row(rows.RECOVERY), "run_id", "of another life")


async def attempt(server: RedisServer, event: Callable[[Ledger], Awaitable[None]]) -> None:
    """Commit after an event."""
    async with opened(server) as ledger:
        await event(ledger)
        await ledger.commit("11:00")


CASES = [
    pytest.param(recovered_by_another, Unrecovered, id="recovered by another"),
    pytest.param(lives_another_life, Unrecovered, id="another life"),
    pytest.param(went_back_elsewhere, Behind, id="went back by another's commit"),
    pytest.param(written_by_another, Behind, id="written by another"),
    pytest.param(sealed, DaySealed, id="sealed"),
]


@pytest.mark.parametrize(("event", "why"), CASES)
async def test_a_commit_writes_nothing_where_the_ledger_is_not_what_its_owner_knows(
    event: Callable[[Ledger], Awaitable[None]], why: type[Exception], redis_server: RedisServer
) -> None:
    with pytest.raises(why):
        await attempt(redis_server, event)


async def test_a_commit_writes_nothing_once_a_recovery_has_begun(redis_server: RedisServer) -> None:
    """Two comparisons hold that: of the token, and of the server's life."""
    with pytest.raises(Unrecovered):
        await attempt(redis_server, recovery_began)


async def test_a_commit_writes_nothing_once_our_own_commits_are_lost(redis_server: RedisServer) -> None:
    """Two comparisons hold that: of the sequence, and of the domain's commits."""
    with pytest.raises(Behind):
        await attempt(redis_server, went_back)


async def test_a_release_that_is_drawn_again_keeps_its_first_bytes_and_costs_once(redis_server: RedisServer) -> None:
    async with opened(redis_server) as ledger:
        store = LedgerStore(ledger.redis, ledger.name, policy_of(name=ledger.name))
        before = (await store.summary(DATE)).epsilon_user_day
        first, again = [(await store.commit([drawn_as(ledger, mean)], ledger.guard))[0] for mean in (b"20.1", b"31.7")]
        assert (first.new, again.new) == (True, False)
        assert first.record == again.record
        assert b"20.1" in first.record
        assert (await store.summary(DATE)).epsilon_user_day == before + 10**9


def drawn_as(ledger: Ledger, mean: bytes) -> Proposal:
    """A release of one HAT with this mean."""
    parts = (b'{"mean":' + mean + b',"seq":', b"}"), (b"{", b"}")
    return Proposal(f"{ledger.name}/{DATE}T10:00/c", DATE, "c/10:00", 10**9, *parts, release_partition=0)


@pytest.mark.parametrize("digits", [16, 20, 25])
async def test_a_number_of_commits_that_no_script_can_count_is_damaged_also_once_a_worker_has_read_it(
    redis_server: RedisServer, digits: int
) -> None:
    async with opened(redis_server) as ledger:
        await ledger.redis.hset(DomainKeys(ledger.name).row(rows.SEQUENCES), "*", "9" * digits)
        ledger.guard.commits = (await ledger.recovery.read_state()).commits
        with pytest.raises(Damaged, match="sequences"):
            await ledger.commit("10:00")
