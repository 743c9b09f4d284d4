"""A user key that is lost with its node of a Redis Cluster, while partition states survive, or the reverse."""

from contextlib import closing
from typing import Any

import pytest

from hatcast.agents.redis import identity
from hatcast.agents.redis.partition_store import PartitionStore
from tests.integration.harness import Pipeline
from tests.integration.readings import traffic
from tests.services import Record

pytestmark = pytest.mark.pipeline({"policy": {"lateness": "48h"}}, topics=True)


def an_hour() -> list[Record]:
    return [sample.record() for sample in traffic(1)]


def fold(pipeline: Pipeline, records: int) -> None:
    worker = pipeline.worker()
    pipeline.kafka.produce(pipeline.name, an_hour())
    pipeline.wait(lambda: pipeline.folded() == records, f"{records} records", worker)
    assert worker.terminate() == 0


def lose_the_domains_node(pipeline: Pipeline) -> None:
    """What a cluster loses with the node of the user key: everything of the domain, and no partition's state."""
    pipeline.redis_server.delete(f"{{{pipeline.name}}}:*")


def fingerprint(pipeline: Pipeline) -> str:
    with closing(pipeline.redis_server.client()) as redis:
        stored: Any = redis.hget(f"{{{pipeline.name}}}:user-key", "fingerprint")
    return str(stored.decode())


def test_a_key_that_is_lost_with_its_node_is_restored_from_the_states_folded_under_it(pipeline: Pipeline) -> None:
    fold(pipeline, 36)
    before = fingerprint(pipeline)
    lose_the_domains_node(pipeline)
    fold(pipeline, 72)
    assert fingerprint(pipeline) == before
    assert pipeline.outcomes() == {"accepted": 36, "duplicate": 36}, "no bus counts twice"
    assert pipeline.contributions() == pipeline.oracle()


def test_a_state_that_was_opened_under_another_key_and_holds_no_user_stops_no_worker(pipeline: Pipeline) -> None:
    """Redis was emptied while an older worker opened a partition and a newer one made a key."""
    fold(pipeline, 36)
    with closing(pipeline.redis_server.client()) as redis:
        opened: Any = redis.hmget(f"{{{pipeline.settings.policy.name}:0}}:state", ["user_key", "made_key"])
        pipeline.forget()
        worker = pipeline.worker()
        pipeline.wait(lambda: pipeline.folded() == 36, "readings under another key", worker)
        assert worker.terminate() == 0
        pipeline.redis_server.delete(f"{{{pipeline.settings.policy.name}:0}}:*")
        state = f"{{{pipeline.settings.policy.name}:0}}:state"
        redis.hset(state, mapping={"user_key": opened[0], "made_key": opened[1], "offset": "0", "owner": "older"})
    worker = pipeline.worker()
    pipeline.wait(lambda: pipeline.folded() == 36, "readings of the partition that was only opened", worker)
    assert pipeline.contributions() == pipeline.oracle()


def look_at_no_key() -> None:
    """The mutant: a lost key is made anew, and states are opened whatever they were folded under."""
    product = PartitionStore.open

    async def open_any(self, partition, log_start, user_key=None, *, accept_gap=False):  # type: ignore[no-untyped-def]
        del user_key
        return await product(self, partition, log_start, accept_gap=accept_gap)

    async def restore_none(*_: object) -> None:
        pass

    async def folded_under_none(*_: object) -> list[object]:
        return []

    PartitionStore.open = open_any  # type: ignore[method-assign]
    identity.__dict__.update(restore_made_key=restore_none, stored_user_keys=folded_under_none)


def test_the_test_sees_a_worker_that_does_not_compare_user_keys(pipeline: Pipeline) -> None:
    fold(pipeline, 36)
    lose_the_domains_node(pipeline)
    worker = pipeline.worker(wrap=look_at_no_key)
    pipeline.kafka.produce(pipeline.name, an_hour())
    pipeline.wait(lambda: pipeline.folded() == 72, "the hour again", worker)
    assert pipeline.outcomes() == {"accepted": 72}, "12 buses, 24 users"


def test_a_state_that_comes_back_folded_under_another_key_is_refused_with_both_and_the_fix(pipeline: Pipeline) -> None:
    fold(pipeline, 36)
    first = fingerprint(pipeline)
    with closing(pipeline.redis_server.client()) as redis:
        copies = {key: redis.dump(key) or b"" for key in redis.scan_iter(f"{{{pipeline.name}:3}}*")}
    pipeline.forget()
    fold(pipeline, 72)
    second = fingerprint(pipeline)
    assert first != second
    pipeline.redis_server.delete(f"{{{pipeline.name}:3}}*")
    with closing(pipeline.redis_server.client()) as redis:
        for key, copy in copies.items():
            redis.restore(key, 0, copy)
    worker = pipeline.worker()
    assert worker.wait() == 1
    last = worker.logged().splitlines()[-1]
    assert f"partition 3, was folded under user key {first}, and this worker has {second}" in last
    # The fix that it names: the states are deleted, and all is folded again.
    pipeline.redis_server.delete(f"{{{pipeline.name}:*")
    worker = pipeline.worker()
    pipeline.wait(lambda: pipeline.folded() == 72, "all again", worker)
    assert pipeline.contributions() == pipeline.oracle()
