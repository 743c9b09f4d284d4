"""Two whole pipelines whose logs differ in one bus: all that is public is the same, or is noised and charged.

The noise of the workers answers by distances alone, and writes down what it was added to. So topics must be equal, byte
for byte, with keys, headers, order and counts; what the noise was added to may differ by what the bus's day is charged.
"""

import json
import re
import secrets
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.release.kind import release_partition_of
from hatcast.stream.hybrid import DeviceReport, encode_report
from hatcast.stream.ledger import rows
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.vehicles import by_murmur2
from tests.integration.days import cell
from tests.integration.deaf_worker import deafen
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.hidden import CELLS, stamp_by
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, ticks, traffic
from tests.integration.tables import merged
from tests.services import KafkaServer, Received, Record, RedisServer
from tests.services.kafka_server import PARTITIONS

K: Final = 4
HATS: Final = 4  # with readings: K lets every bus into four of the six that it is in
OVER_MS: Final = NOON_MS + 3 * HOUR_MS + 300_000
NEXT_DAY_MS: Final = NOON_MS + 13 * HOUR_MS  # past the close of the day
BUS: Final = "GJ05BX0000"
REPLACE: Final[dict[str, Any]] = {
    "policy": {
        "hours": [11, 15],
        "privacy": {"max_hats_per_day": K, "min_users": 3},
        "estimator": {"name": "array_averaging"},
        "query": [
            {"name": "day", "kind": "mean_speed", "days": 1, "epsilon": 0.5, "min_n": 3},
            {"name": "fast", "kind": "over_speed_limit", "days": 1, "epsilon": 0.25, "speed_limit": 50.0},
        ],
    }
}
TRACKER: Final[dict[str, Any]] = {
    "policy": {
        "hours": [11, 15],
        "privacy": {"epsilon": None, "max_hats_per_day": None, "daily_limit": 5.0, "min_users": 3},
        "estimator": {"name": "tracker"},
    }
}
RUNNING: Final[dict[str, Any]] = {
    "policy": {
        "hours": [11, 15],
        "privacy": {"epsilon": 1.0, "max_hats_per_day": None, "daily_limit": None, "min_users": 3},
        "estimator": None,
        "continual": {"kind": "laplace", "horizon_days": 1, "max_slots": 2, "max_cells": 2},
    }
}
DEVICES: Final[dict[str, Any]] = {
    "policy": {
        "hours": [11, 15],
        "privacy": {"max_hats_per_day": K, "min_users": 3, "local_epsilon": 1.0},
        "estimator": {"name": "pwh"},
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


@dataclass(frozen=True)
class Case:
    """A policy, and what its pipeline has to do.

    most       that the bus may lose in all
    least      that it loses, since its speed is at one end of the range and then at the other
    releases   number of records; None: it follows from noise
    answers    to queries over days
    """

    changes: dict[str, Any]
    most: float
    least: float
    releases: int | None = HATS
    answers: int = 0

    @property
    def with_devices(self) -> bool:
        return self.changes is DEVICES

    @property
    def hidden(self) -> bool:
        return self.changes is ADD_REMOVE


CASES: Final = {
    "replace": Case(REPLACE, K * 1.75, K * 1.6, answers=2 * HATS),
    "add_remove": Case(ADD_REMOVE, K, 0.9 * K, 3 * len(CELLS)),
    "tracker": Case(TRACKER, 5, 0.5, None),
    "running": Case(RUNNING, 2, 1.9),
    "devices": Case(DEVICES, K, 0.9 * K),
}
_CLOCK: Final = re.compile(rb'"released_at":"[^"]*"')
Requests = dict[str, list[tuple[int, int, float]]]
"""by HAT: value, distance and epsilon of each request of noise"""


def _place(policy: Policy, record: Received) -> tuple[int, int, int]:
    """Where a record is in its topic. Producers of release partitions send at once, so each has an order of its own."""
    name = (record.key or b"").decode()
    of_release = name.count("/") >= 2
    sender = release_partition_of(policy, name, name.split("/")[2], PARTITIONS) if of_release else 0
    return record.partition, sender, record.offset


class Seen:
    """What came out of a pipeline: its topics, and the requests of noise."""

    def __init__(self, pipeline: Pipeline, requests: Path) -> None:
        topics, hidden = pipeline.settings.topics, pipeline.settings.policy.relation == "add_remove"
        self.topics: dict[str, list[str]] = {}
        for topic in (topics.means, topics.queries, topics.budget, topics.dead_letters):
            records = sorted(pipeline.kafka.read(topic, committed=False), key=partial(_place, pipeline.settings.policy))
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


def reports(policy: Policy) -> list[Record]:
    """The same reports of four devices for two HATs, whatever the buses do."""
    made = [
        DeviceReport(f"{number:032x}", policy.policy_id, cell(0), "2022-01-02", slot, Decimal(20 + number), 1.0)
        for number in range(4)
        for slot in ("12:00", "13:00")
    ]
    arrivals = {"12:00": NOON_MS + HOUR_MS, "13:00": NOON_MS + 2 * HOUR_MS}
    return [
        Record(encode_report(each), each.id.encode(), by_murmur2(each.id.encode(), PARTITIONS), arrivals[each.slot])
        for each in sorted(made, key=lambda each: each.slot)
    ]


def run(pipeline: Pipeline, samples: Iterable[Sample], case: Case) -> Seen:
    """A worker from the first reading to the last release."""
    requests, settings, hidden = pipeline.folder / "requests", pipeline.settings, case.hidden
    ensure_topics(settings)
    if hidden:  # as if the worker had been started at noon: the first slot is that of the first start
        with closing(pipeline.redis_server.client()) as redis:
            key = DomainKeys(settings.topics.telemetry).row(rows.progress(settings.policy.name))
            redis.hset(key, "first", str(NOON_MS))
        stamp_by(pipeline.kafka, pipeline, "CreateTime")
    pipeline.kafka.produce(
        settings.topics.telemetry,
        [*(each.record() for each in samples), *ticks(NEXT_DAY_MS if case.releases is None else OVER_MS)],
    )
    if case.with_devices:
        pipeline.kafka.produce(settings.topics.reports, [*reports(settings.policy), *ticks(OVER_MS)])
    if hidden:
        stamp_by(pipeline.kafka, pipeline, "LogAppendTime")
    worker = pipeline.worker(wrap=partial(deafen, requests))

    def is_released() -> bool:
        is_all = case.releases in (None, len(pipeline.published())) and len(pipeline.answers()) == case.answers
        return is_all and pipeline.is_settled()

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
@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_logs_that_differ_in_one_bus_lead_to_the_same_topics_but_for_noise_that_is_charged(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, case: Case
) -> None:
    name = f"replayed-{secrets.token_hex(4)}"  # of both, since keys follow from it
    others = [sample for sample in traffic() if sample.vehicle != BUS]
    bus = [sample for sample in traffic() if sample.vehicle == BUS]
    slow, fast = ([replace(each, speed=speed) for each in bus] for speed in (0.001, 65.0))

    def seen(title: str, own: list[Sample]) -> Seen:
        folder = tmp_path / title
        folder.mkdir()
        (folder / "cells.txt").write_text('source = "public"\n' + "\n".join(CELLS))
        named = merged(case.changes, {"policy": {"name": name}})
        try:
            with open_pipeline(kafka, redis_server, folder, "replayed", named) as pipeline:
                return run(pipeline, sorted([*others, *own], key=lambda each: each.time_ms), case)
        finally:
            redis_server.delete(f"{{{name}*")

    one, other = seen("one", fast), seen("other", [] if case.hidden else slow)
    assert one.topics == other.topics
    assert case.with_devices == ('"local":4' in str(one.topics)), "reports are in the means"
    found = losses(one.requests, other.requests)
    assert case.least < sum(found.values()) <= case.most + 1e-9
    assert one.charged == other.charged
    assert sum(found.values()) <= sum(one.charged)
