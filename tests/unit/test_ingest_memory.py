"""When the memory of an idle partition is dropped: Redis went back, and not only forward. What a rebalance forgets."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from hatcast.agents.clock import now_ms
from hatcast.agents.monitoring.declarations import READINGS
from hatcast.agents.worker.folds import EarlyRecord
from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.partition import OwnedPartition
from hatcast.agents.worker.source import IngestOptions, Source
from tests.folding import fold_of
from tests.replayed import policy_of


class Store:
    """Offsets as Redis has them when it is asked; what happens until its answer is there."""

    def __init__(self, offset: int, meanwhile: Callable[[], None]) -> None:
        self._offset, self._meanwhile = offset, meanwhile

    async def offsets(self) -> list[int]:
        self._meanwhile()
        return [self._offset]


def unforeseen(error: Exception) -> None:
    raise error


def keeps_its_memory(offset: int, stored_meanwhile: int) -> bool:
    """Whether a partition is still held whose memory stands at 8, or is stored further while Redis answers."""
    held = OwnedPartition(fold_of(policy_of()), 8, 8, 0.0)

    def go_on() -> None:
        held.base = held.next = stored_meanwhile

    async def look() -> bool:
        unused = cast("Any", None)
        source = Source("telemetry", "group", cast("Any", Store(offset, go_on)), unused, READINGS)
        ingest = Ingest(source, unused, unused, 1.0, IngestOptions(unforeseen))
        ingest.partitions[0] = held
        await ingest._reload_forgotten()
        return 0 in ingest.partitions

    return asyncio.run(look())


def test_a_partition_whose_stored_offset_is_its_own_keeps_its_memory() -> None:
    assert keeps_its_memory(offset=8, stored_meanwhile=8)


@pytest.mark.parametrize("offset", [0, 7, 9])
def test_a_partition_whose_stored_offset_is_another_is_loaded_again(offset: int) -> None:
    assert not keeps_its_memory(offset, stored_meanwhile=8)


def test_a_checkpoint_while_redis_answers_is_no_sign_that_it_went_back() -> None:
    assert keeps_its_memory(offset=8, stored_meanwhile=20)


class NoConsumer:
    """A consumer without partitions: its session has ended, or others have them all."""

    def __init__(self, *, in_group: bool) -> None:
        self._in_group = in_group

    def in_group(self) -> bool:
        return self._in_group

    def assigned(self) -> frozenset[int]:
        return frozenset()

    def partition_count(self) -> None:
        return None

    def blocked(self) -> dict[int, tuple[int, float]]:
        return {}

    async def park_partition(self, partition: int) -> None:
        """Do nothing: none is read."""


class Refusing(Store):
    """Redis answers, and takes no checkpoint."""

    partitions = 1

    async def checkpoint(self, *_: object) -> bool:
        raise RedisConnectionError


@pytest.mark.parametrize("in_group", [True, False])
async def test_failures_are_not_forgotten_while_nothing_is_assigned_outside_of_the_group(in_group: bool) -> None:  # noqa: FBT001 - a case
    """Or a worker would say of a checkpoint that it still has to repeat: retry not needed."""
    ended = ["retry not needed"] if in_group else []
    stopping = asyncio.Event()
    unused = cast("Any", None)
    store = Refusing(0, stopping.set)  # one round of checkpoints, which ends with a look at the offsets
    source = Source("telemetry", "group", cast("Any", store), unused, READINGS)
    ingest = Ingest(source, cast("Any", NoConsumer(in_group=in_group)), unused, 0.001, IngestOptions(unforeseen))
    ingest.partitions[0] = OwnedPartition(fold_of(policy_of()), 0, 8, 0.0)
    with capture_logs() as lines:
        await ingest.on_revoked(frozenset({0}))
        await ingest.checkpoint_regularly(stopping)
    assert [line["event"] for line in lines if line["event"].startswith(("operation failed", "retry"))] == [
        "operation failed, retrying",
        *ended,
    ]


async def test_a_partition_that_is_given_up_waits_for_the_clock_no_more() -> None:
    unused = cast("Any", None)
    source = Source("telemetry", "group", cast("Any", Store(0, lambda: None)), unused, READINGS)
    ingest = Ingest(source, unused, unused, 1.0, IngestOptions(unforeseen))
    ingest.early_records.add(0, EarlyRecord(5, now_ms() + 3_600_000, 120_000))
    ingest.early_records.add(1, EarlyRecord(7, now_ms() + 3_600_000, 120_000))
    await ingest.on_revoked(frozenset({0}))
    assert ingest.early_records.waiting().keys() == {1}
