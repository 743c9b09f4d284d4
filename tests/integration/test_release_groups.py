"""Groups of batches on real services: what is committed is sent, and the release partitions send at once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from redis.exceptions import ConnectionError as RedisConnectionError

import hatcast.agents.release.batching
from hatcast.agents.clock import cancel_all
from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import OutputMessage, ProducerGone, TransactionalProducers
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.stream.ledger import rows as ledger_rows
from hatcast.stream.ledger.rejections import Behind, Unrecovered
from tests.integration.harness import Pipeline
from tests.integration.readings import Stores, open_stores, store_closed, traffic
from tests.integration.test_release import (
    OVER_MS,
    CrashError,
    assert_one_value_and_one_charge,
    before,
    due_hats,
    finish,
    releasing,
    stored_records,
)

HATS = 6
WAIT_S = 30
pytestmark = pytest.mark.pipeline(topics=True)


@pytest.fixture
def one_hat_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hatcast.agents.release.batching, "MAX_BATCH", 1)


def fail_at(owner: object, name: str, call: int, error: Exception, *, done: bool) -> None:
    """Let the call with this number fail, before or after it is done."""
    wrapped, calls = getattr(owner, name), 0

    async def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        answer = await wrapped(*arguments) if done or calls != call else None
        if calls == call:
            raise error
        return answer

    setattr(owner, name, failing)


async def close_two_hours(pipeline: Pipeline, stores: Stores) -> None:
    await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)


def run_then_finish(
    pipeline: Pipeline, prepare: Callable[[ReleaseLoop], None], error: type[Exception]
) -> tuple[set[str], int]:
    """A round that ends with an error, then one of another worker: return what the first published and committed."""

    async def run() -> tuple[set[str], int, dict[bytes, bytes]]:
        async with open_stores(pipeline) as stores:
            await close_two_hours(pipeline, stores)
            async with releasing(pipeline, stores) as releaser:
                prepare(releaser)
                with pytest.raises(error):
                    await releaser.round(asyncio.Event())
            published = set(await asyncio.to_thread(pipeline.published))
            committed = len(await stored_records(pipeline, stores))
            await finish(pipeline, stores)
            return published, committed, await stored_records(pipeline, stores)

    published, committed, kept = asyncio.run(run())
    assert_one_value_and_one_charge(pipeline, kept, HATS)
    return published, committed


@pytest.mark.usefixtures("one_hat_a_batch")
def test_what_is_committed_is_published_if_a_later_batch_of_its_group_cannot_be_drawn(pipeline: Pipeline) -> None:
    def prepare(releaser: ReleaseLoop) -> None:
        fail_at(releaser.hats_path, "draw", 3, CrashError(), done=False)  # the group has the second and third batch

    published, committed = run_then_finish(pipeline, prepare, CrashError)
    assert (len(published), committed) == (2, 2)


@pytest.mark.usefixtures("one_hat_a_batch")
def test_after_a_commit_whose_answer_is_lost_nothing_of_its_release_partitions_is_sent_before_they_are_taken_over(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known whether the ledger has the record, so the owner's sequence shows nothing."""

    def prepare(releaser: ReleaseLoop) -> None:
        monkeypatch.setattr(ReleaseContext, "release_partition", lambda *_: 3)  # one for all
        rows = releaser.hats_path._ledger._rows  # the first apply pins the rules of the date
        fail_at(rows, "apply", 4, RedisConnectionError("the answer is lost"), done=True)

    published, committed = run_then_finish(pipeline, prepare, RedisConnectionError)
    assert (len(published), committed) == (1, 3)


def partitions_of(releaser: ReleaseLoop, due: Iterable[Any]) -> list[int]:
    return sorted({releaser._context.release_partition(each) for each in due})


@pytest.mark.parametrize("error", [ProducerGone, KafkaConnectionError])
def test_if_one_release_partition_cannot_send_the_others_are_published(
    error: type[Exception], pipeline: Pipeline
) -> None:
    names: list[str] = []

    def prepare(releaser: ReleaseLoop) -> None:
        async def hinder(pending: Mapping[int, Sequence[Any]]) -> None:
            first = min(pending)
            assert len(pending) > 1
            names.extend(due.release_id for due, _ in pending[first])
            if error is ProducerGone:
                client = aiokafka_options(pipeline.settings)
                other = TransactionalProducers(pipeline.name, pipeline.settings.policy.name, client)
                await other.start_missing(frozenset([first]))  # which fences ours
                await other.stop()
            else:
                producer = releaser._producers._producers[first]

                async def commit() -> None:
                    await producer.abort_transaction()  # else it would hide the others' records that come after it
                    raise KafkaConnectionError

                producer.commit_transaction = commit

        before(releaser.hats_path, "send", hinder)

    published, committed = run_then_finish(pipeline, prepare, error)
    assert committed == HATS
    assert len(published) == HATS - len(names)
    assert published.isdisjoint(names)


def test_the_transactions_of_release_partitions_run_at_once_and_each_has_its_days_budget(pipeline: Pipeline) -> None:
    sent: list[Sequence[OutputMessage]] = []

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await close_two_hours(pipeline, stores)
            async with releasing(pipeline, stores) as releaser:
                partitions = partitions_of(releaser, await due_hats(releaser))
                meeting = asyncio.Barrier(len(partitions))

                publish = releaser._producers.publish

                async def meet(release_partition: int, messages: Sequence[OutputMessage]) -> None:
                    sent.append(messages)
                    await asyncio.wait_for(meeting.wait(), WAIT_S)
                    await publish(release_partition, messages)

                setattr(releaser._producers, "publish", meet)  # noqa: B010 - as a step, wrapped from outside
                assert await releaser.round(asyncio.Event()) == HATS
                assert releaser._producers.sent == HATS + len(partitions)

    asyncio.run(run())
    budgets = [message.value for messages in sent for message in messages if message.topic.endswith("budget")]
    assert len(budgets) == len(sent) > 1
    assert len(set(budgets)) == 1


@pytest.mark.usefixtures("one_hat_a_batch")
async def test_a_batch_is_drawn_while_the_one_before_is_sent_and_committed_after_it(pipeline: Pipeline) -> None:
    steps: list[str] = []

    async with open_stores(pipeline) as stores:
        await close_two_hours(pipeline, stores)
        async with releasing(pipeline, stores) as releaser:
            drawn = [asyncio.Event() for _ in range(HATS)]
            draw = releaser.hats_path.draw

            async def drawing(*arguments: Any) -> Any:
                answer = await draw(*arguments)
                steps.append("drawn")
                drawn[steps.count("drawn") - 1].set()
                return answer

            async def commit(_: object) -> None:
                steps.append("commit")

            async def send(_: object) -> None:
                steps.append("send")
                if steps.count("send") == 1:
                    await asyncio.wait_for(drawn[1].wait(), WAIT_S)

            setattr(releaser.hats_path, "draw", drawing)  # noqa: B010 - a step, wrapped from outside
            before(releaser.hats_path, "commit", commit)
            before(releaser.hats_path, "send", send)
            assert await releaser.round(asyncio.Event()) == HATS
    # Groups of one, two and three batches: the second batch is drawn before the first is sent, committed after it.
    # Two HATs of one release partition are two sends here: a transaction has as many records as a batch.
    others = [step for step in steps if step != "drawn"]
    once = [step for last, step in pairwise(["", *others]) if (last, step) != ("send", "send")]
    assert once == ["commit", "send", "commit", "commit", "send", "commit", "commit", "commit", "send"]
    for number in range(HATS):
        committed = [at for at, step in enumerate(steps) if step == "commit"][number]
        assert steps[:committed].count("drawn") <= number + 2


@pytest.mark.usefixtures("one_hat_a_batch")
async def test_if_redis_goes_back_within_a_group_nothing_of_it_is_sent_and_the_first_error_is_raised(
    pipeline: Pipeline,
) -> None:
    """Between the second and the third commit: the second is committed and not sent."""
    commits = 0

    async with open_stores(pipeline) as stores:
        sequences = DomainKeys(pipeline.name).row(ledger_rows.SEQUENCES)

        async def go_back(_: object) -> None:
            nonlocal commits
            commits += 1
            if commits == 3:
                for name, written in (await stores.redis.hgetall(sequences)).items():
                    await stores.redis.hset(sequences, name, max(0, int(written) - 1))

        await close_two_hours(pipeline, stores)
        async with releasing(pipeline, stores) as releaser:
            before(releaser.hats_path, "commit", go_back)
            with pytest.raises(Unrecovered) as raised:
                await releaser.round(asyncio.Event())
        assert raised.type is Behind  # the loop logs a takeover, and no failure
        published = set(await asyncio.to_thread(pipeline.published, committed=False))
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
    assert len(published) == 1
    values = {release_id.encode(): set(sent) for release_id, sent in pipeline.published(committed=False).items()}
    assert values == {release_id: {record} for release_id, record in kept.items()}
    assert len(kept) == HATS
    (budget,) = pipeline.budget_records().values()
    assert (budget["releases"], budget["epsilon_sum"]) == (HATS, HATS * 1.0)


@pytest.mark.usefixtures("one_hat_a_batch")
@pytest.mark.parametrize("step", ["load", "publish"])
async def test_a_round_that_is_cancelled_while_it_loads_ahead_or_sends_leaves_one_value_and_one_charge(
    step: str, pipeline: Pipeline
) -> None:
    async with open_stores(pipeline) as stores:
        await close_two_hours(pipeline, stores)
        async with releasing(pipeline, stores) as releaser:
            calls, reached = 0, asyncio.Event()
            owner = releaser.hats_path if step == "load" else releaser._producers
            wrapped = getattr(owner, step)

            async def third(*arguments: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == 3:
                    reached.set()
                    if step == "load":  # Redis does not answer; a send goes on, to where it waits for Kafka
                        await asyncio.Event().wait()
                return await wrapped(*arguments)

            setattr(owner, step, third)
            others = asyncio.all_tasks()
            work = asyncio.create_task(releaser.round(asyncio.Event()))
            await asyncio.wait_for(reached.wait(), WAIT_S)
            await cancel_all([work])  # as a worker does: redis-py may swallow one cancellation
            assert work.cancelled()
            steps = [task for task in asyncio.all_tasks() - others if "release" in repr(task.get_coro())]
            assert steps == []
        await finish(pipeline, stores)
        assert_one_value_and_one_charge(pipeline, await stored_records(pipeline, stores), HATS)
