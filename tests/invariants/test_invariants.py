"""The invariants of design section 3, one named test or more for each. What else holds them is named beside it."""

import inspect
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.cli import main
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.stream.fold.packing import unpack_day
from hatcast.stream.mechanisms.system import SystemNoise
from tests.faults.check import violations
from tests.faults.facts import Seen
from tests.faults.observe import fold_again, is_settled, look, promise_of
from tests.integration.crashing_worker import STEPS_OF_HATS, die_after
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN, asked, scraped
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, ticks, traffic
from tests.integration.tables import DEFAULTS, merged, toml
from tests.services import KafkaServer, Record, RedisServer
from tests.services.data import ROOT
from tests.services.kafka_server import PARTITIONS
from tests.unit import test_imports

HATS = 6
DATE = "2022-01-02"
OVER_MS = NOON_MS + 3 * HOUR_MS


@dataclass(frozen=True)
class Crashes:
    """What a chain of workers left, each of which was killed with -9 at a later step of the same releases."""

    pipeline: Pipeline
    after: dict[str, Seen]


@pytest.fixture(scope="module")
def crashes(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crashes]:
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp("crashes"), "crashes") as pipeline:
        ensure_topics(pipeline.settings)
        # Two hours are over, the third is open.
        send(pipeline, *(sample.record() for sample in traffic(hours=3)), *ticks(OVER_MS))
        after: dict[str, Seen] = {}
        for step in STEPS_OF_HATS:
            worker = pipeline.worker(wrap=partial(die_after, step))
            assert worker.wait() == -9, worker.log_tail()
            after[step] = look(pipeline)
            pipeline.bury()
        last = pipeline.worker()
        pipeline.wait(lambda: is_settled(pipeline.settings), "releases", last)
        after["finished"] = look(pipeline)
        yield Crashes(pipeline, after)


def send(pipeline: Pipeline, *records: Record) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, records)


# I1. Also tests/integration/test_release.py, step by step and with two workers at once.


@pytest.mark.timeout(300)
def test_i1_one_value_however_many_workers_are_killed_at_whatever_step(crashes: Crashes) -> None:
    for before, following in pairwise(crashes.after.values()):
        assert before.stored.items() <= following.stored.items(), "a record was changed or lost"
    finished = crashes.after["finished"]
    assert len(finished.stored) == HATS
    assert {name: set(values) for name, values in finished.published.items()} == {
        name: {record} for name, record in finished.stored.items()
    }
    assert crashes.after["drawn"].stored == {}, "what was drawn and not committed is seen by nobody"


# I2. Also tests/integration/test_release.py: the ledger is looked at from inside `send`.


@pytest.mark.timeout(300)
def test_i2_the_charge_is_durable_before_a_byte_leaves_and_is_booked_once(crashes: Crashes) -> None:
    committed = crashes.after["committed"]
    assert (len(committed.stored), committed.ledgers[DATE].epsilon_sum) == (HATS, HATS * 10**9)
    assert committed.published == {}
    for each in crashes.after.values():
        assert each.published.keys() <= each.stored.keys()
    finished = crashes.after["finished"]
    assert finished.ledgers[DATE].epsilon_sum == HATS * 10**9
    assert finished.announced == finished.ledgers


@pytest.mark.timeout(300)
def test_i3_after_kills_at_every_step_of_a_release_the_state_is_that_of_the_log(crashes: Crashes) -> None:
    log = fold_again(crashes.pipeline, OVER_MS)
    assert len(log.hats) > len(log.final) == HATS
    assert violations(crashes.after["finished"], log, promise_of(crashes.pipeline.settings, exact=False)) == []


# I3, I4, I5: one storm, looked at from three sides.

CAP, BOUND = 2, 20.0
PLATES = re.compile(rb"GJ\s*05\s*BX")


@dataclass(frozen=True)
class Storm:
    """A run with a kill, a restart, records for wrong partitions and rubbish, and what was seen of it.

    contributions   before anything closed
    pseudonyms      of all users, as Redis had them
    served          what the last worker told operators over HTTP
    """

    pipeline: Pipeline
    contributions: dict[str, Any]
    oracle: dict[str, Any]
    pseudonyms: frozenset[bytes]
    served: dict[str, bytes]


@pytest.fixture(scope="module")
def storm(kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storm]:
    policy = {"upper_bound": BOUND, "lateness": "48h", "privacy": {"max_hats_per_day": CAP, "min_users": 3}}
    changes = {"policy": policy, **LISTEN}
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp("storm"), "storm", changes) as pipeline:
        first, second = pipeline.worker(), pipeline.worker()
        for worker in (first, second):
            pipeline.wait_for_partitions(worker)
        samples = traffic(hours=3, vehicles=30)
        send(pipeline, *(sample.record() for sample in samples[:90]))
        pipeline.wait(lambda: pipeline.folded() > 0, "first checkpoint", first, second)
        first.kill()
        wrong = [Sample(f"GJ05BX{n:04}", NOON_MS, n % 3).record(partition=n % PARTITIONS) for n in range(100, 140)]
        send(pipeline, Record(b"GJ05BX {", b"GJ05BX", 1, NOON_MS), *wrong)
        pipeline.wait(pipeline.is_caught_up, "the first hour", second)
        assert second.terminate() == 0
        third = pipeline.worker()
        send(pipeline, *(sample.record() for sample in samples[90:]))
        pipeline.wait(pipeline.is_caught_up, "the other hours", third)
        contributions, oracle = pipeline.contributions(), pipeline.oracle()
        pseudonyms = stored_pseudonyms(pipeline)
        send(pipeline, *ticks(NOON_MS + 60 * HOUR_MS))
        pipeline.wait(pipeline.is_settled, "releases", third)
        estimates = pipeline.settings.topics.estimates  # they follow the releases by a second
        pipeline.wait(lambda: len([*kafka.read(estimates)]) > 0, "estimates", third)
        served = {"/metrics": scraped(third).encode(), "/readyz": json.dumps(asked(third, "/readyz")).encode()}
        assert third.terminate() == 0
        yield Storm(pipeline, contributions, oracle, pseudonyms, served)


def stored_pseudonyms(pipeline: Pipeline) -> frozenset[bytes]:
    with closing(pipeline.redis_server.client()) as redis:
        chunks: list[Any] = [redis.get(key) for key in redis.scan_iter(f"{{{pipeline.name}:*d:{DATE}/*", count=1000)]
    return frozenset(pseudonym for chunk in chunks for pseudonym, _ in unpack_day(chunk))


@pytest.mark.timeout(300)
def test_i3_every_accepted_reading_is_counted_once_as_by_one_process_over_the_same_log(storm: Storm) -> None:
    assert storm.contributions == storm.oracle
    assert storm.contributions["outcomes"]["accepted"] > 0


@pytest.mark.timeout(300)
def test_i4_a_vehicle_enters_k_hats_a_day_through_one_partition_with_values_up_to_u(storm: Storm) -> None:
    outcomes, hats = storm.contributions["outcomes"], storm.contributions["hats"]
    # 30 vehicles at 9 HATs each, across a kill and a restart; 40 more at one, of which those at home count.
    assert outcomes["over_cap"] == 30 * (9 - CAP)
    assert outcomes["wrong_partition"] > 0
    assert outcomes["accepted"] + outcomes["wrong_partition"] == 30 * CAP + 40
    assert sum(users for users, _, _, _ in hats.values()) == outcomes["accepted"]
    assert max(maximum for _, _, _, maximum in hats.values()) == BOUND * 1000
    assert all(total <= count * BOUND * 1000 for _, count, total, _ in hats.values())


@pytest.mark.timeout(300)
def test_i5_no_vehicle_and_no_pseudonym_is_in_anything_public_nor_in_logs_metrics_and_dead_letters(
    storm: Storm,
) -> None:
    topics = storm.pipeline.settings.topics
    seen = {f"log {n}": process.log.read_bytes() for n, process in enumerate(storm.pipeline.processes)}
    assert b"hatcast_releases_total" in storm.served["/metrics"]
    seen |= storm.served
    for topic in (topics.means, topics.queries, topics.budget, topics.estimates, topics.dead_letters):
        seen[topic] = b"\n".join(
            part
            for each in storm.pipeline.kafka.read(topic, committed=False)
            for part in (each.key or b"", each.value or b"", repr(each.headers).encode())
        )
    assert all(seen[topic] for topic in (topics.means, topics.budget, topics.estimates, topics.dead_letters))
    assert len(storm.pseudonyms) >= 30
    for where, data in seen.items():
        assert not PLATES.search(data), where
        for pseudonym in storm.pseudonyms:
            assert pseudonym not in data, where
            assert pseudonym.hex().encode() not in data.lower(), where


@pytest.mark.timeout(300)
def test_i5_no_vehicle_is_in_a_key_or_value_of_redis(storm: Storm) -> None:
    found = list(everything_in_redis(storm.pipeline))
    assert len(found) > 20
    assert [data for data in found if PLATES.search(data)] == []


@pytest.mark.timeout(300)
def test_i5_true_means_and_counts_of_users_are_in_no_public_record(storm: Storm) -> None:
    for values in storm.pipeline.published().values():
        record = json.loads(values[0])
        assert not record.keys() & {"users", "count", "sum", "max", "readings"}


def everything_in_redis(pipeline: Pipeline) -> Iterator[bytes]:
    """Keys and values of a pipeline, whatever their type."""
    with closing(pipeline.redis_server.client()) as redis:
        for key in redis.scan_iter(f"{{{pipeline.name}*", count=1000):
            yield key
            kind = redis.type(key)
            found: Any
            if kind == b"string":
                found = [redis.get(key)]
            elif kind == b"hash":
                found = (part for pair in redis.hgetall(key).items() for part in pair)
            else:
                assert kind == b"set"
                found = redis.smembers(key)
            yield from found


# I6. Also tests/unit/test_imports.py, which has mutants of its own.


def test_i6_noise_is_drawn_in_one_file_and_from_no_seed() -> None:
    test_imports.test_random_numbers_are_drawn_only_on_lines_marked_as_simulation()
    test_imports.test_only_the_system_mechanism_of_the_core_draws_noise()
    test_imports.test_the_system_mechanism_is_passed_in_and_imported_by_nothing_in_the_core()
    assert inspect.signature(SystemNoise).parameters.keys() == set()
    text = "\n".join(path.read_text() for path in (ROOT / "agents").rglob("settings.py"))
    assert not re.search(r"no_noise|without_noise|seed", text)


def test_i6_a_result_is_on_the_public_grid_and_no_two_draws_are_the_same() -> None:
    drawn = [SystemNoise().laplace(0, 10**9, 1.0).value for _ in range(20)]
    assert all(isinstance(value, int) for value in drawn)  # steps of the grid
    assert len(set(drawn)) > 15


# I7. Also tests/unit/test_policy.py, test_kafka_settings.py and tests/integration/test_worker_refusals.py.

KEPT_NOT: dict[str, tuple[Mapping[str, Any], str]] = {
    "one release above the day's limit": ({"privacy": {"epsilon": 6.0, "daily_limit": 5.0}}, "daily_limit"),
    "weak privacy without a word": ({"privacy": {"epsilon": 11.0}}, "acknowledge_weak_privacy = true"),
    "no cap": ({"privacy": {"max_hats_per_day": 0}}, "policy.privacy.max_hats_per_day"),
    "no bound": ({"upper_bound": 0.0}, "policy.upper_bound"),
    "a bound above what is rejected": ({"reject_above": 10.0}, "policy.reject_above"),
    "no epsilon": ({"privacy": {"epsilon": 0.0}}, "policy.privacy.epsilon"),
    "an epsilon that is no number": ({"privacy": {"epsilon": "one"}}, "policy.privacy.epsilon"),
    "an unknown relation": ({"privacy": {"relation": "swap"}}, "policy.privacy.relation"),
    "an estimator that is not proved for it": ({"privacy": {"relation": "add_remove"}}, "policy.privacy.relation"),
    "an unknown estimator": ({"estimator": {"name": "mean"}}, "policy.estimator.name"),
    "a key that the estimator does not use": ({"estimator": {"grouping": "bestfit"}}, "is not used by baseline"),
    "an unknown key": ({"privacy": {"epsilom": 1.0}}, "did you mean epsilon?"),
    "a seed": ({"seed": 1}, "policy.seed: is not a known key"),
    "a day that no zone has": ({"timezone": "Surat"}, "policy.timezone"),
    "a slot that does not divide a day": ({"slot_length": "7h"}, "policy.slot_length"),
    "hours of no day": ({"hours": [21, 9]}, "policy.hours"),
    "an interval above the slot": ({"min_interval": "2h"}, "policy.min_interval"),
    "a grid of nothing": ({"grid": 0.0}, "policy.grid"),
    "a name that would break keys": ({"name": "a:{b}"}, "policy.name"),
    "cells from nowhere": ({"cells": "none.txt"}, "none.txt cannot be read"),
}


@pytest.mark.parametrize("case", KEPT_NOT)
def test_i7_a_policy_that_cannot_keep_its_promise_does_not_start(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, word = KEPT_NOT[case]
    config = tmp_path / "hatcast.toml"
    config.write_text(toml(merged(DEFAULTS, {"policy": {"name": "i7", **changes}})))
    monkeypatch.setattr("sys.argv", ["hatcast", "worker", "--config", str(config)])
    began = time.monotonic()
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (1, "")
    assert err.startswith(f"hatcast: {config}: ")
    assert err.count("\n") == 1
    assert word in err
    assert time.monotonic() - began < 5, "it was refused before anything was connected"
