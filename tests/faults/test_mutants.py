"""The checker sees each mutant of the product after one aimed fault, and after the same fault nothing in the product.

What is sent is small, since the faults are aimed: tests/faults/test_storm.py is the large, random form.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.ledger import rows
from tests.faults.check import violations
from tests.faults.facts import Seen
from tests.faults.faulty_worker import REACHED
from tests.faults.mutants import MUTANTS, product, spoiled
from tests.faults.observe import fold_again, is_settled, look, promise_of
from tests.faults.test_tracker_steps import MUTANTS as OF_TRACKER
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.services import KafkaServer, RedisServer

# A query closes with every slot, and costs 40 a day: there is room for half of the HATs beside it.
CHANGES = {
    "policy": {
        "privacy": {"daily_limit": 45.0},
        "query": [{"name": "daily", "kind": "mean_speed", "days": 1, "epsilon": 1.0, "min_n": 2}],
    }
}
END_MS = NOON_MS + 3 * HOUR_MS - 60_000  # two of three hours are over

Fault = Callable[[Pipeline, str], list[Seen]]
"""Does its harm to a pipeline whose workers are a mutant, waits until all is made good; what was seen on the way."""

AT_ANY_TIME = {"one value", "ledger first", "reserved"}  # the other rules hold once all is settled


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    """With readings and ticks to read; no worker has started."""
    with open_pipeline(kafka, redis_server, tmp_path, "mutant", CHANGES) as opened:
        ensure_topics(opened.settings)
        readings = [sample.record() for sample in traffic(hours=3, vehicles=60, places=5)]
        kafka.produce(opened.name, [*readings, *ticks(END_MS)])
        yield opened


def start(pipeline: Pipeline, mutant: str, step: str = "", action: str = "") -> WorkerProcess:
    return pipeline.worker(wrap=partial(spoiled, mutant, step, action))


def settle(pipeline: Pipeline, *workers: WorkerProcess) -> None:
    pipeline.wait(lambda: is_settled(pipeline.settings), "settled state", *workers)


def forget(pipeline: Pipeline) -> None:
    """What FLUSHALL does, and as much at once, to the keys of this pipeline."""
    with closing(pipeline.redis_server.client()) as redis:
        redis.eval("return redis.call('UNLINK', unpack(redis.call('KEYS', ARGV[1])))", 0, f"{{{pipeline.name}*")


def killed_before_a_state_is_written(pipeline: Pipeline, mutant: str) -> list[Seen]:
    first = start(pipeline, mutant, "checkpointing", "kill")
    assert first.wait() == -9, first.log_tail()
    pipeline.bury()
    with closing(pipeline.redis_server.client()) as redis:  # else the next one waits half a minute for its recovery
        redis.delete(DomainKeys(pipeline.name).row(rows.RECOVERY))
    second = start(pipeline, mutant)
    pipeline.wait(pipeline.is_caught_up, "folded log", second)
    pipeline.kafka.produce(pipeline.name, ticks(END_MS))  # also for a partition whose clock was lost
    settle(pipeline, second)
    return []


def killed_when_kafka_has_answered(pipeline: Pipeline, mutant: str) -> list[Seen]:
    first = start(pipeline, mutant, "acked", "kill")
    assert first.wait() == -9, first.log_tail()
    halfway = look(pipeline)
    pipeline.bury()
    settle(pipeline, start(pipeline, mutant))
    return [halfway]


def killed_before_an_answer_is_committed(pipeline: Pipeline, mutant: str) -> list[Seen]:
    first = start(pipeline, mutant, "answers drawn", "kill")
    assert first.wait() == -9, first.log_tail()
    halfway = look(pipeline)
    pipeline.bury()
    settle(pipeline, start(pipeline, mutant))
    return [halfway]


def redis_forgets(pipeline: Pipeline, mutant: str) -> list[Seen]:
    worker = start(pipeline, mutant)
    settle(pipeline, worker)
    forget(pipeline)
    settle(pipeline, worker)
    return []


def stopped_before_it_sends_while_redis_forgets(pipeline: Pipeline, mutant: str) -> list[Seen]:
    zombie = start(pipeline, mutant, "committed", "stop")
    pipeline.wait(lambda: REACHED in zombie.logged(), "worker that has committed", zombie)
    forget(pipeline)
    pipeline.bury(zombie)
    settle(pipeline, start(pipeline, mutant))
    zombie.resume()
    pipeline.wait(lambda: has_sent_or_failed(zombie), "end of its send")
    settle(pipeline)
    return []


def has_sent_or_failed(zombie: WorkerProcess) -> bool:
    """It may also have ended: whoever came after it has made another user key."""
    log = zombie.logged()
    return zombie.code is not None or '"released"' in log or '"loop": "release"' in log


FAULTS: dict[Fault, dict[str, str]] = {
    killed_before_a_state_is_written: {"offset_before_state": "counted once"},
    killed_when_kafka_has_answered: {"noise_drawn_again": "one value", "charged_after": "ledger first"},
    killed_before_an_answer_is_committed: {"reserved_at_the_answer": "reserved", "forgotten_once_read": "due"},
    redis_forgets: {"no_recovery": "one value"},
    stopped_before_it_sends_while_redis_forgets: {"no_fencing": "one value"},
}


def broken(pipeline: Pipeline, fault: Fault, mutant: str) -> set[str]:
    """The rules of the checker that a fault has broken."""
    on_the_way = fault(pipeline, mutant)
    log, promise = fold_again(pipeline, END_MS), promise_of(pipeline.settings, exact=False)
    found = {each.rule for each in violations(look(pipeline), log, promise)}
    return found | {each.rule for seen in on_the_way for each in violations(seen, log, promise)} & AT_ANY_TIME


@pytest.mark.parametrize(
    ("fault", "mutant", "rule"),
    [pytest.param(f, mutant, rule, id=mutant) for f, seen in FAULTS.items() for mutant, rule in seen.items()],
)
def test_the_checker_sees_a_mutant_after_one_aimed_fault(
    fault: Fault, mutant: str, rule: str, pipeline: Pipeline
) -> None:
    assert rule in broken(pipeline, fault, mutant)


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.__name__) for fault in FAULTS])
def test_the_same_fault_does_no_harm_to_the_product(fault: Fault, pipeline: Pipeline) -> None:
    assert broken(pipeline, fault, product.__name__) == set()


def test_every_mutant_has_its_fault() -> None:
    aimed = [mutant for seen in FAULTS.values() for mutant in seen]
    assert sorted([*aimed, *OF_TRACKER, product.__name__]) == sorted(MUTANTS)
