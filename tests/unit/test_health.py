"""What has to hold before a worker is ready."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.monitoring.declarations import PARTS
from hatcast.agents.monitoring.server import READY
from hatcast.agents.worker.folds import EarlyRecord
from hatcast.agents.worker.ingest import OpenTransactions
from hatcast.agents.worker.partition import EarlyRecords
from hatcast.agents.worker.readiness import Readiness


@dataclass
class FakeConsumer:
    """What readiness asks of the consumer."""

    partitions: frozenset[int] = frozenset({0, 1})
    joined: bool = True
    heard_ms: int | None = field(default_factory=now_ms)
    waits: dict[int, tuple[int, float]] = field(default_factory=dict)

    def assigned(self) -> frozenset[int]:
        return self.partitions

    def in_group(self) -> bool:
        return self.joined

    def epoch(self, partition: int) -> int | None:
        return 1 if partition in self.partitions else None

    def answered_ms(self) -> int | None:
        return self.heard_ms

    def blocked(self) -> dict[int, tuple[int, float]]:
        return self.waits


@dataclass
class Parts:
    """A worker's ingest and recovery, in one."""

    consumer: FakeConsumer = field(default_factory=FakeConsumer)
    partitions: dict[int, object] = field(default_factory=lambda: dict.fromkeys((0, 1)))
    answered_s: float | None = field(default_factory=monotonic_s)
    stored_s: float | None = field(default_factory=monotonic_s)
    is_recovered: bool = True
    early_records: EarlyRecords = field(default_factory=lambda: EarlyRecords("telemetry"))
    cluster_problem: str | None = None
    answers_s: Sequence[float] = (0.1, 0.1, 0.1)

    @property
    def open_transactions(self) -> OpenTransactions:
        return OpenTransactions("telemetry", cast("Any", self.consumer))

    def redis_problem(self) -> str | None:
        return self.cluster_problem


def missing(parts: Parts, checkpoint_interval_s: float = 1.0) -> dict[str, str]:
    found = Readiness(cast("Any", parts), cast("Any", parts), checkpoint_interval_s, session_timeout_s=10.0).parts()
    return {part: state for part, state in found.items() if state != READY}


def test_a_worker_is_ready_where_nothing_is_missing() -> None:
    assert missing(Parts()) == {}


def test_a_worker_whose_redis_cluster_moves_a_slot_is_not_ready_and_names_it() -> None:
    assert missing(Parts(cluster_problem="the cluster moves slot 7")) == {"redis": "the cluster moves slot 7"}


def test_a_worker_without_partitions_needs_no_recovered_ledger() -> None:
    assert missing(Parts(FakeConsumer(frozenset(), heard_ms=None), {}, is_recovered=False)) == {}


def test_a_worker_whose_queue_is_full_asks_nothing_of_kafka_and_does_not_blame_it() -> None:
    assert missing(Parts(FakeConsumer(heard_ms=None))) == {}


@pytest.mark.parametrize(
    ("consumer", "reason"),
    [
        (lambda: FakeConsumer(joined=False), "not in the consumer group"),
        (lambda: FakeConsumer(heard_ms=0), "no answer from Kafka yet"),
        (lambda: FakeConsumer(heard_ms=now_ms() - 3_600_000), "no answer from Kafka for 36"),
    ],
)
def test_a_worker_that_kafka_does_not_answer_is_not_ready(consumer: Callable[[], FakeConsumer], reason: str) -> None:
    found = missing(Parts(consumer()))
    assert found.keys() == {"group"}
    assert found["group"].startswith(reason)


def test_a_worker_is_ready_only_with_a_recovered_ledger_and_all_that_it_owns() -> None:
    assert missing(Parts(partitions={1: None}, is_recovered=False)) == {
        "partitions": "1 of 2 loaded",
        "ledger": "the ledger is not recovered yet",
    }


@pytest.mark.parametrize(("ago_s", "interval_s", "late"), [(4.0, 0.1, False), (60.0, 1.0, True), (60.0, 30.0, False)])
def test_five_intervals_may_pass_without_a_checkpoint_and_five_seconds_in_any_case(
    ago_s: float, interval_s: float, *, late: bool
) -> None:
    parts = replace(Parts(), stored_s=monotonic_s() - ago_s)
    assert set(missing(parts, interval_s)) == ({"checkpoint"} if late else set())


def test_a_worker_with_a_record_ahead_of_its_clock_is_not_ready_and_says_where_and_what_to_do() -> None:
    parts = Parts()
    parts.early_records.add(1, EarlyRecord(17, now_ms() + 3_600_000, 120_000))
    found = missing(parts)
    assert found.keys() == {"clock"}
    assert found["clock"].startswith("telemetry partition 1 waits at offset 17: ")
    assert "NTP" in found["clock"]


def test_a_worker_waits_a_minute_for_a_transaction_before_it_is_not_ready() -> None:
    now_s = monotonic_s()
    assert missing(Parts(FakeConsumer(waits={0: (5, now_s - 50), 1: (7, now_s - 40)}))) == {}
    found = missing(Parts(FakeConsumer(waits={0: (5, now_s - 70), 1: (7, now_s - 90)})))
    assert found.keys() == {"transactions"}
    assert found["transactions"].startswith("telemetry partition 1 waits at offset 7 for 9")
    assert "(1 more of its partitions wait)" in found["transactions"]


def test_a_wait_for_a_transaction_has_ended_only_where_the_partition_is_read_on() -> None:
    consumer = FakeConsumer(waits={0: (5, monotonic_s() - 70), 1: (7, monotonic_s() - 70)})
    transactions = Parts(consumer).open_transactions
    with capture_logs() as lines:
        transactions.look()
        consumer.waits, consumer.partitions = {}, frozenset({1})  # another worker has got partition 0
        transactions.look()
    ended = [line["partition"] for line in lines if line["event"].startswith("partition is read on")]
    assert ended == [1]


@pytest.mark.parametrize(("answers_s", "reason"), [((3.0, 2.0, 2.5), "2.0"), ((3.0, 0.2, 3.0), None), ((), None)])
def test_a_worker_whose_redis_takes_seconds_for_each_of_three_answers_is_not_ready(
    answers_s: Sequence[float], reason: str | None
) -> None:
    expected = {} if reason is None else {"redis": f"an answer takes {reason} s or more"}
    assert missing(Parts(answers_s=answers_s)) == expected


def test_before_the_first_answer_of_redis_a_worker_is_not_ready() -> None:
    assert missing(Parts(answered_s=None, stored_s=None)) == {
        "redis": "no answer yet",
        "checkpoint": "no checkpoint yet",
    }


def test_every_part_of_readyz_is_declared_of_both_topics() -> None:
    # A part that is not would fail the whole page, once a policy takes devices' reports.
    parts = Readiness(cast("Any", Parts()), cast("Any", Parts()), 1.0, 10.0).parts()
    assert {"worker", "topics", *parts, *(f"reports {part}" for part in parts)} == set(PARTS)
