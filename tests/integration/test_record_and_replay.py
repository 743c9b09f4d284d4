"""Two whole pipelines whose logs differ in one bus: all that is public is the same, or is noised and charged.

The noise of the workers answers by distances alone, and writes down what it was added to. So topics must be equal, byte
for byte, with keys, headers, order and counts; what the noise was added to may differ by what the bus's day is charged.
"""

import json
import re
import secrets
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import DomainKeys
from tests.integration.deaf_worker import deafen
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.hidden import CELLS, stamp_by
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, ticks, traffic
from tests.integration.tables import merged
from tests.services import KafkaServer, RedisServer

K: Final = 4
HATS: Final = 4  # with readings: K lets every bus into four of the six that it is in
OVER_MS: Final = NOON_MS + 3 * HOUR_MS + 300_000
BUS: Final = "GJ05BX0000"
REPLACE: Final[dict[str, Any]] = {
    "policy": {
        "hours": [11, 15],
        "privacy": {"max_hats_per_day": K, "min_users": 3},
        "estimator": {"name": "array_averaging"},
    }
}
ADD_REMOVE: Final[dict[str, Any]] = {
    "policy": {
        "hours": [11, 15],
        "cells": "cells.txt",
        "privacy": {"relation": "add_remove", "min_users": None, "max_hats_per_day": K},
        "estimator": {"name": "capped_ratio", "array_length": 1, "weight_threshold": 2.0},
    }
}
_CLOCK: Final = re.compile(rb'"released_at":"[^"]*"')
Requests = dict[str, list[tuple[int, int, float]]]
"""by HAT: value, distance and epsilon of each request of noise"""


class Seen:
    """What came out of a pipeline: its topics, and the requests of noise."""

    def __init__(self, pipeline: Pipeline, requests: Path) -> None:
        topics, hidden = pipeline.settings.topics, pipeline.settings.policy.relation == "add_remove"
        self.topics: dict[str, list[str]] = {}
        for topic in (topics.means, topics.queries, topics.budget, topics.dead_letters):
            records = sorted(pipeline.kafka.read(topic, committed=False))
            # Offsets tell where transactions end. Under `replace` clocks are public, those of brokers always.
            is_timed = hidden and topic == topics.means
            self.topics[topic.removeprefix(pipeline.name)] = [
                str(
                    replace(
                        each,
                        offset=at,
                        timestamp_ms=each.timestamp_ms if is_timed else 0,
                        headers=each.headers if hidden else tuple(h for h in each.headers if h[0] != "ce_time"),
                        value=each.value if hidden else _CLOCK.sub(b"", each.value or b""),
                    )
                ).replace(pipeline.name, "NAME")
                for at, each in enumerate(records)
            ]
        self.requests: Requests = {}
        for hat, value, distance, epsilon in map(json.loads, requests.read_text().splitlines()):
            self.requests.setdefault(hat, []).append((value, distance, epsilon))
        self.charged = [day["epsilon_user_day"] for day in pipeline.budget_records().values()]


def run(pipeline: Pipeline, samples: Iterable[Sample]) -> Seen:
    """A worker from the first reading to the last release."""
    requests, settings = pipeline.folder / "requests", pipeline.settings
    hidden = settings.policy.relation == "add_remove"
    ensure_topics(settings)
    if hidden:  # as if the worker had been started at noon: the first slot is that of the first start
        with closing(pipeline.redis_server.client()) as redis:
            key = DomainKeys(settings.topics.telemetry).progress(settings.policy.name)
            redis.hset(key, "first", str(NOON_MS))
        stamp_by(pipeline.kafka, pipeline, "CreateTime")
    pipeline.kafka.produce(settings.topics.telemetry, [*(each.record() for each in samples), *ticks(OVER_MS)])
    if hidden:
        stamp_by(pipeline.kafka, pipeline, "LogAppendTime")
    worker = pipeline.worker(wrap=partial(deafen, requests))
    number = 3 * len(CELLS) if hidden else HATS

    def is_released() -> bool:
        return len(pipeline.published()) == number and pipeline.is_settled()

    pipeline.wait(is_released, "releases of everything", worker)
    assert worker.terminate() == 0
    return Seen(pipeline, requests)


def losses(one: Requests, other: Requests) -> dict[str, float]:
    """Of each HAT whose requests differ: the epsilon of its requests that the difference uses."""
    assert one.keys() == other.keys(), "noise is drawn for other HATs"
    found = {}
    for hat, asked in one.items():
        assert [terms for _, *terms in asked] == [terms for _, *terms in other[hat]], "noise of another size"
        pairs = zip(asked, other[hat], strict=True)
        loss = sum(epsilon * abs(value - then) / distance for (value, distance, epsilon), (then, *_) in pairs)
        if loss:
            found[hat] = loss
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("changes", [REPLACE, ADD_REMOVE], ids=["replace", "add_remove"])
def test_logs_that_differ_in_one_bus_lead_to_the_same_topics_but_for_noise_that_is_charged(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, changes: dict[str, Any]
) -> None:
    name = f"replayed-{secrets.token_hex(4)}"  # of both, since keys follow from it
    others = [sample for sample in traffic() if sample.vehicle != BUS]
    bus = [sample for sample in traffic() if sample.vehicle == BUS]
    slow, fast = ([replace(each, speed=speed) for each in bus] for speed in (0.001, 65.0))
    hidden = changes is ADD_REMOVE

    def seen(title: str, own: list[Sample]) -> Seen:
        folder = tmp_path / title
        folder.mkdir()
        (folder / "cells.txt").write_text('source = "public"\n' + "\n".join(CELLS))
        named = merged(changes, {"policy": {"name": name}})
        try:
            with open_pipeline(kafka, redis_server, folder, "replayed", named) as pipeline:
                return run(pipeline, sorted([*others, *own], key=lambda each: each.time_ms))
        finally:
            redis_server.delete(f"{{{name}*")

    one, other = seen("one", fast), seen("other", [] if hidden else slow)
    assert one.topics == other.topics
    found = losses(one.requests, other.requests)
    assert 0.9 * K < sum(found.values()) <= K + 1e-9
    assert len(found) <= K
    assert one.charged == other.charged
    assert sum(found.values()) <= sum(one.charged)
