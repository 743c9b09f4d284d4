"""What tests of queries over days share: a release loop that answers them, and what has to be true afterwards."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, Final

import pytest

from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.redis.retained import Retained
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.release.path import ReleasePath
from hatcast.agents.release.queries import DueAnswer
from hatcast.stream.ledger.proposals import Committed
from tests.integration.days import DATES, EPSILON, expected
from tests.integration.harness import Pipeline
from tests.integration.readings import Sample, Stores
from tests.integration.test_release import ALL, CrashError, CrashingProducers, crash_after, releasing

ANSWERS: Final = 2 * 4 + 12  # of `mean` and `over` one for each place and hour, of `daily` also for each day


@asynccontextmanager
async def answering(
    pipeline: Pipeline,
    stores: Stores,
    producers: type[TransactionalProducers] = TransactionalProducers,
    owned: Callable[[], frozenset[int]] = lambda: ALL,
) -> AsyncIterator[tuple[ReleaseLoop, ReleasePath[DueAnswer, Retained]]]:
    """A worker's release loop with its queries."""
    async with releasing(pipeline, stores, producers, owned=owned, queries=True) as releaser:
        assert releaser.answers is not None
        yield releaser, releaser.answers.path


async def crash_at(step: str, pipeline: Pipeline, stores: Stores) -> None:
    """A round of a worker that crashes right after this step of an answer."""
    producers = CrashingProducers if step == "sent" else TransactionalProducers
    with pytest.raises(CrashError):
        async with answering(pipeline, stores, producers) as (releaser, queries):
            if step == "sent":  # of an answer, not of a HAT
                releaser._producers.__class__ = TransactionalProducers
                wrapped = queries.send

                async def send(
                    pending: Mapping[int, Sequence[tuple[DueAnswer, Committed]]],
                ) -> dict[int, BaseException]:
                    releaser._producers.__class__ = CrashingProducers
                    return await wrapped(pending)

                setattr(queries, "send", send)  # noqa: B010 - a step, wrapped from outside
            crash_after(queries, step)
            await releaser.round(asyncio.Event())


def answers(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """release_id without the policy -> the one record; those of aborted transactions count too."""
    published = pipeline.answers(committed=False)
    assert {name: len(set(values)) for name, values in published.items() if len(set(values)) != 1} == {}
    return {name.partition("/")[2]: json.loads(values[0]) for name, values in published.items()}


def assert_true(
    pipeline: Pipeline, samples: Sequence[Sample], names: Sequence[str] = ("mean", "over", "daily")
) -> None:
    """Every query has one answer about each cell and slot, and it is the true one."""
    wanted = {key: value for name in names for key, value in expected(samples, name).items()}
    means = {key: record["mean"] for key, record in answers(pipeline).items() if record["status"] == "released"}
    assert means.keys() == wanted.keys()
    for key, mean in means.items():
        assert mean == pytest.approx(wanted[key], abs=0.002), key


def kept_keys(pipeline: Pipeline) -> list[bytes]:
    """What is left in Redis of what queries read."""
    with closing(pipeline.redis_server.client()) as redis:
        return [
            key
            for kind in ("k:*", "kept")
            for key in redis.scan_iter(match=f"{{{pipeline.name}:*}}:{kind}", count=10_000)
        ]


def assert_charged_once(pipeline: Pipeline) -> None:
    """Each day cost its dearest HATs and each query in all the places that a user can be in."""
    budgets = pipeline.budget_records()
    assert {key.rpartition("/")[2] for key in budgets} == set(DATES)
    for budget in budgets.values():
        assert (budget["releases"], budget["epsilon_sum"]) == (4, 4 * EPSILON)
        assert {each["query"]: each["places"] for each in budget["queries"]} == {"mean": 40, "over": 40, "daily": 40}
        assert budget["epsilon_user_day"] == (4 + 3 * 40) * EPSILON
