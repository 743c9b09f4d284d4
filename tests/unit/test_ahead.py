"""Records dated ahead of this machine's clock: which part of a batch waits, and what is logged of it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
import structlog
from structlog.testing import CapturedCall, CapturingLogger

import hatcast.agents.worker.folds
import hatcast.agents.worker.partition
from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.agents.worker.folds import EarlyRecord
from hatcast.agents.worker.partition import CALM_S, EarlyRecords, OwnedPartition
from tests.folding import MINUTE, NOON, fold_of, record
from tests.replayed import policy_of

POLICY = policy_of(max_ahead="2m")
AHEAD = NOON + 2 * MINUTE + 1
RECORD = EarlyRecord(17, AHEAD, 2 * MINUTE)


class Clocks:
    """Both clocks of a machine, as the module under test reads them."""

    def __init__(self) -> None:
        self.now_ms, self.monotonic_s = NOON, 1_000.0


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(hatcast.agents.worker.folds, "now_ms", lambda: made.now_ms)
    monkeypatch.setattr(hatcast.agents.worker.partition, "monotonic_s", lambda: made.monotonic_s)
    monkeypatch.setattr(hatcast.agents.worker.partition, "LOOK_S", 0.001)
    return made


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CapturedCall]]:
    logger = CapturingLogger()
    monkeypatch.setattr(hatcast.agents.worker.partition, "log", structlog.wrap_logger(logger, processors=[]))
    yield logger.calls


def batch_of(*timestamps: int, offsets: list[int] | None = None) -> RecordBatch:
    known = offsets or list(range(10, 10 + len(timestamps)))
    values = [record() for _ in timestamps]
    return RecordBatch(
        partition=3,
        epoch=1,
        base=10,
        next=known[-1] + 3,  # markers behind the last one
        offsets=known,
        timestamps=list(timestamps),
        values=values,
    )


def held() -> OwnedPartition:
    return OwnedPartition(fold_of(POLICY), 10, 10, 0.0)


def test_a_batch_that_the_clock_allows_stays_whole() -> None:
    batch = batch_of(NOON, AHEAD - 1, NOON)
    assert held().split(batch, NOON) == (batch, None)


def test_a_batch_ends_before_its_first_record_ahead_and_goes_on_there() -> None:
    batch = batch_of(NOON, AHEAD, NOON, AHEAD + 1, offsets=[11, 15, 16, 17])
    first, ahead = held().split(batch, NOON)
    assert ahead == EarlyRecord(15, AHEAD, 2 * MINUTE)
    assert (first.base, first.next, first.offsets, first.timestamps) == (10, 15, [11], [NOON])
    assert len(first.values) == 1


def test_a_batch_that_begins_ahead_has_no_record_but_the_hole_in_front_of_it() -> None:
    first, ahead = held().split(batch_of(AHEAD, NOON, offsets=[12, 13]), NOON)
    assert (first.base, first.next, list(first.offsets)) == (10, 12, [])
    assert ahead is not None


def test_a_batch_without_records_only_crosses_its_hole() -> None:
    batch = replace_records(batch_of(NOON))
    assert held().split(batch, NOON) == (batch, None)


def replace_records(batch: RecordBatch) -> RecordBatch:
    return RecordBatch(batch.partition, batch.epoch, batch.base, batch.next, range(0), [], [])


def test_a_wait_is_logged_once_with_its_place_and_the_way_out_and_once_when_it_is_over(
    clocks: Clocks, logged: list[CapturedCall]
) -> None:
    waits = EarlyRecords("telemetry")
    for later in range(5):
        waits.add(3, replace(RECORD, offset=17 + later))
        clocks.monotonic_s += CALM_S
        assert waits.waiting().keys() == {3}
    clocks.monotonic_s += 0.1
    assert waits.waiting() == {}
    assert waits.problem() is None
    begun, over = logged
    assert begun.method_name == "error"
    said = begun.kwargs["event"]
    assert said.startswith(
        "telemetry partition 3 waits at offset 17: the record there is dated 2022-01-02T12:02:00.001Z,"
    )
    for needed in (
        "policy.max_ahead (120 s)",
        "this machine's clock, 2022-01-02T12:00:00.000Z",
        "NTP",
        "message.timestamp.after.max.ms",
        "before offset 18 with kafka-delete-records.sh",
        "--accept-gap",
    ):
        assert needed in said
    assert over.kwargs == {
        "event": "no record is dated too far ahead any more",
        "topic": "telemetry",
        "partition": 3,
        "after_s": 4 * CALM_S,
    }


def test_a_wait_that_returns_at_once_is_one_wait(clocks: Clocks, logged: list[CapturedCall]) -> None:
    # A clock that is steadily behind allows a record, and the next one has to wait again.
    waits = EarlyRecords("telemetry")
    for _ in range(100):
        waits.add(3, RECORD)
        clocks.monotonic_s += 1.0
        assert waits.problem() is not None
    assert len(logged) == 1


def test_the_problem_is_that_of_the_record_furthest_ahead_and_says_how_many_wait(
    clocks: Clocks, logged: list[CapturedCall]
) -> None:
    del clocks
    waits = EarlyRecords("telemetry")
    waits.add(0, RECORD)
    waits.add(1, EarlyRecord(5, 4_102_444_800_000, 2 * MINUTE))
    waits.add(2, EarlyRecord(6, 10**15, 2 * MINUTE))
    assert "partition 2 waits at offset 6: the record there is dated 1000000000000000 ms" in (waits.problem() or "")
    waits.forget([2])
    problem = waits.problem() or ""
    assert "partition 1 waits at offset 5: the record there is dated 2100-01-01T00:00:00.000Z" in problem
    assert problem.endswith("(1 more of its partitions wait)")
    assert len(logged) == 3


async def test_the_wait_ends_when_the_clock_is_set_or_nobody_wants_it_any_more(
    clocks: Clocks, logged: list[CapturedCall]
) -> None:
    waits = EarlyRecords("telemetry")

    async def wait(looks: int, *, wanted: bool) -> float:
        left = [wanted] * looks

        def is_wanted() -> bool:
            if left:
                return left.pop()
            clocks.now_ms += 1  # the clock is set: the record is allowed from here on
            return wanted

        await asyncio.wait_for(waits.until_allowed(3, RECORD, is_wanted), 5.0)
        return RECORD.seconds()

    assert await wait(1, wanted=False) == 120.001
    assert clocks.now_ms == NOON
    assert await wait(3, wanted=True) == 120.0
    assert clocks.now_ms == NOON + 1
    assert len(logged) == 1
