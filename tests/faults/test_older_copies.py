"""Redis goes back to an older copy within one round of a worker, after it looked and before it sends.

Each of these published a second value or passed a limit before a send was confirmed, and an older token was an alarm.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.stream.ledger.rejections import Behind
from tests.faults.test_lost_redis import close_hours, come_back, commit_and_die, copied, roll_back
from tests.faults.test_unsent import LIMIT, assert_within_the_limit, fork_history
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import open_stores
from tests.integration.test_release import CrashError, before, crash_after, due_hats, finish, releasing
from tests.services import KafkaServer, RedisServer

GoBack = Callable[[Pipeline, dict[bytes, bytes]], None]
LIMITED: Final = {"policy": {"privacy": {"daily_limit": LIMIT}}}
in_place_or_restarted = pytest.mark.parametrize("go_back", [roll_back, come_back])


@pytest.fixture
def pipeline(
    request: pytest.FixtureRequest, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path, "older", getattr(request, "param", None)) as opened:
        ensure_topics(opened.settings)
        yield opened


limited = pytest.mark.parametrize("pipeline", [LIMITED], indirect=True)


def after_its_look(releaser: ReleaseLoop, event: Callable[[], None]) -> None:
    """Let something happen in each round between the look at the recovery and what the round releases."""

    async def happen(owned: frozenset[int], stopping: asyncio.Event) -> None:
        del owned, stopping
        event()

    before(releaser.hats_path, "round", happen)


async def two_histories_in_a_round(pipeline: Pipeline, go_back: GoBack) -> None:
    """The budget is committed by one history, spent by another, and the first is back when a round has begun."""
    async with open_stores(pipeline) as stores:
        copy = await fork_history(pipeline, stores)
        await close_hours(pipeline, stores)
        async with releasing(pipeline, stores) as releaser:
            after_its_look(releaser, lambda: go_back(pipeline, copy))
            with suppress(Behind):
                await releaser.round(asyncio.Event())
        await finish(pipeline, stores)


@limited
@in_place_or_restarted
async def test_what_a_round_finds_in_an_older_copy_is_not_sent_beyond_the_limit(
    go_back: GoBack, pipeline: Pipeline
) -> None:
    await two_histories_in_a_round(pipeline, go_back)
    assert_within_the_limit(pipeline)


@limited
async def test_without_the_look_before_a_send_the_limit_is_passed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the test before."""

    async def trust(self: LedgerRecovery, sending: Iterable[int] = ()) -> None:
        del self, sending

    monkeypatch.setattr(LedgerRecovery, "confirm", trust)
    await two_histories_in_a_round(pipeline, come_back)
    with pytest.raises(AssertionError):
        assert_within_the_limit(pipeline)


@in_place_or_restarted
async def test_what_a_round_finds_in_an_older_copy_is_no_second_value(go_back: GoBack, pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await close_hours(pipeline, stores)
        await commit_and_die(pipeline, stores)
        copy = copied(pipeline)
        pipeline.forget()
        await close_hours(pipeline, stores)
        with pytest.raises(CrashError):  # Kafka has some of the other values
            async with releasing(pipeline, stores) as releaser:
                crash_after(releaser.hats_path, "acked")
                await releaser.round(asyncio.Event())
        async with releasing(pipeline, stores) as releaser:
            after_its_look(releaser, lambda: go_back(pipeline, copy))
            with suppress(Behind):
                await releaser.round(asyncio.Event())
        await close_hours(pipeline, stores)
        await finish(pipeline, stores)
    published = pipeline.published(committed=False)
    assert {release_id: len(set(values)) for release_id, values in published.items()} == dict.fromkeys(published, 1)
    assert len(published) == 6


def older_token(pipeline: Pipeline) -> list[str]:
    """Redis goes back in place to a copy with the token of an older recovery, while another worker is about to send.

    Returns what happened to the worker that looks first.
    """
    seen: list[str] = []

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await close_hours(pipeline, stores)
            async with releasing(pipeline, stores) as releaser:
                partitions = sorted({releaser._context.release_partition(each) for each in await due_hats(releaser)})
            some, others = frozenset(partitions[:1]), frozenset(partitions[1:])
            with pytest.raises(CrashError):
                async with releasing(pipeline, stores, owned=lambda: others) as first:
                    crash_after(first.hats_path, "committed")
                    await first.round(asyncio.Event())
            copy = copied(pipeline)
            pipeline.forget()
            await close_hours(pipeline, stores)
            async with (
                releasing(pipeline, stores, owned=lambda: others) as looks,
                releasing(pipeline, stores, owned=lambda: some) as sends,
            ):
                await looks._producers.start_missing(others)
                assert await looks._recovery.ensure(others)
                slow(sends, lambda: come_back(pipeline, copy), looks, seen)
                with suppress(Behind):
                    await sends.round(asyncio.Event())
            await close_hours(pipeline, stores)
            await finish(pipeline, stores)

    asyncio.run(run())
    return seen


def slow(sends: ReleaseLoop, event: Callable[[], None], looks: ReleaseLoop, seen: list[str]) -> None:
    """Before the first send of one worker something happens, and another worker makes a round."""

    async def later(*arguments: object) -> None:
        del arguments
        if not seen:
            event()
            generation, _ = looks._recovery.guard.newest
            await looks.round(asyncio.Event())
            seen.append("recovered" if looks._recovery.guard.newest[0] > generation else "caught up")

    before(sends.hats_path, "send", later)


@limited
def test_the_token_of_an_older_recovery_makes_a_worker_recover_and_not_only_catch_up(pipeline: Pipeline) -> None:
    assert older_token(pipeline) == ["recovered"]
    assert_within_the_limit(pipeline)
