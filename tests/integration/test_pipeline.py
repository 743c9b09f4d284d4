"""The main test: real recordings through four partitions and 2 workers, one of them killed in the middle."""

import json
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hatcast.agents.kafka.topics import topic_range
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.tables import golden_table, merged
from tests.services import KafkaServer, RedisServer
from tests.services.data import ROOT, golden, golden_recording

RELEASED = ("edge", "itms_30min", "capmetro_2017-03-21")
SPEEDUP = {"itms_30min": 200, "capmetro_2017-03-21": 8000}  # some ten seconds
_BURST_S = 0.25  # of a feed of some ten seconds
GRID = Fraction(1, 1000)  # km/h
EXACT = {"epsilon": 1e6, "acknowledge_weak_privacy": True, "daily_limit": 1e9, "min_users": 1}


def without_ticks(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "outcomes": {name: n for name, n in found["outcomes"].items() if name != "tick"}}


def records_of(name: str) -> int:
    counts: dict[str, int] = golden(name)["outcomes"]
    return sum(counts.values())


def sent(pipeline: Pipeline) -> int:
    """How many records are in the log, with ticks."""
    return sum(end - start for start, end in topic_range(pipeline.settings, pipeline.settings.topics.telemetry))


def kill_in_the_middle(pipeline: Pipeline, name: str, *options: object) -> None:
    """Replay with 2 workers, kill one with -9 while records come, start another; return when all is folded."""
    form, files = golden_recording(name)
    first, second = pipeline.worker(), pipeline.worker()
    for worker in (first, second):
        pipeline.wait_for_partitions(worker)
    speedup = SPEEDUP[name]
    feed = pipeline.start("feed", "replay", *files, "--format", form, "--speedup", speedup, *options)
    pipeline.wait(lambda: sent(pipeline) > 0, "first record", first, second)

    def enough_is_sent() -> bool:
        """Looked at while the feed rests: on a slow machine it could else send all before somebody has counted."""
        feed.resume()
        time.sleep(_BURST_S)
        feed.pause()
        return sent(pipeline) > 0.3 * records_of(name)

    pipeline.wait(enough_is_sent, "records", first, second)
    pipeline.wait(lambda: pipeline.folded() > 0, "progress", first, second)
    first.kill()
    at_the_kill = pipeline.folded()
    feed.resume()
    third = pipeline.worker()
    pipeline.wait(lambda: not feed.running, "end of the replay", second, third)
    assert feed.code == 0, feed.log_tail()
    pipeline.wait(pipeline.is_caught_up, "state of the whole log", second, third)
    assert 0 < at_the_kill < records_of(name), "the kill was not in the middle"


@pytest.mark.timeout(240)
def test_after_a_kill_9_in_the_middle_the_contributions_equal_batch_hat_by_hat(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    name = "capmetro_2017-03-21"
    form, _ = golden_recording(name)
    table = golden_table(golden(name), lateness="48h")
    with open_pipeline(kafka, redis_server, tmp_path, f"kill-{form}", table) as pipeline:
        kill_in_the_middle(pipeline, name, "--no-end")
        contributions = pipeline.contributions()
        # What batch makes of the recording: tests/unit/test_goldens.py.
        assert without_ticks(contributions) == {part: golden(name)[part] for part in ("outcomes", "hats")}
        # Idle for longer than idle_after by now: what is in the log is still the replay's, and the oracle agrees.
        assert contributions == pipeline.oracle()
        assert pipeline.published() == {}, "nothing is final within 48 h"


@pytest.mark.timeout(240)
def test_polls_of_many_vehicles_give_the_golden_contributions(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    form, files = golden_recording("gtfs_rt")
    table = golden_table(golden("gtfs_rt"), lateness="48h")
    with open_pipeline(kafka, redis_server, tmp_path, "polls", table) as pipeline:
        worker = pipeline.worker()
        pipeline.replay(files, form, "--speedup", 0, "--no-end")
        pipeline.wait(pipeline.is_caught_up, "state of the whole log", worker)
        found = without_ticks(pipeline.contributions())
        assert found == {part: golden("gtfs_rt")[part] for part in ("outcomes", "hats")}


@pytest.fixture(scope="module", params=RELEASED)
def exact(
    request: pytest.FixtureRequest,
    kafka: KafkaServer,
    redis_server: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Pipeline]]:
    """A golden's recording, all of it released with so large an epsilon that the noise is below the grid."""
    name = request.param
    form, files = golden_recording(name)
    table = golden_table(golden(name), privacy={**EXACT, "max_hats_per_day": golden(name)["policy"]["K"]})
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp(name), f"exact-{form}", table) as pipeline:
        if name == "itms_30min":
            kill_in_the_middle(pipeline, name)
        else:
            pipeline.worker()
            pipeline.replay(files, form)
        pipeline.wait(pipeline.is_settled, "releases of everything")
        yield name, pipeline


@pytest.mark.timeout(240)
def test_the_stored_outcomes_equal_the_golden_result(exact: tuple[str, Pipeline]) -> None:
    name, pipeline = exact
    status = pipeline.run("status", "--json")
    outcomes = without_ticks(status.json)["outcomes"]
    expected = {outcome: n for outcome, n in golden(name)["outcomes"].items() if outcome != "arrived_in_future"}
    assert outcomes == expected
    assert status.json["open_hats"] == 0
    assert status.json["unpublished"] == {}


def test_every_hat_of_the_golden_result_has_one_distinct_value_and_no_other_hat_has_one(
    exact: tuple[str, Pipeline],
) -> None:
    name, pipeline = exact
    published = pipeline.published(committed=False)
    expected = set()
    for hat in golden(name)["hats"]:
        cell, date, slot = hat.split("/")
        expected.add(f"{pipeline.name}/{date}T{slot}/{cell}")
    assert published.keys() == expected
    assert {release_id: len(set(values)) for release_id, values in published.items() if len(set(values)) != 1} == {}


def test_each_released_mean_is_the_true_one_to_two_grid_steps(exact: tuple[str, Pipeline]) -> None:
    name, pipeline = exact
    for values in pipeline.published().values():
        record = json.loads(values[0], parse_float=Fraction)
        assert record["status"] == "released"
        _, count, total, _ = golden(name)["hats"][f"{record['cell']}/{record['date']}/{record['slot']}"]
        assert abs(record["mean"] - Fraction(total, count) / 1000) <= 2 * GRID, record


def test_the_ledger_charges_each_release_once_and_tells_so_everywhere(exact: tuple[str, Pipeline]) -> None:
    name, pipeline = exact
    printed = pipeline.run("budget", "show", "--json")
    hats_by_day: dict[str, int] = {}
    for hat in golden(name)["hats"]:
        hats_by_day[hat.split("/")[1]] = hats_by_day.get(hat.split("/")[1], 0) + 1
    days = {day["date"]: day for day in printed.json}
    assert {date: day["releases"] for date, day in days.items()} == hats_by_day
    for day in days.values():
        assert day["releases"] * EXACT["epsilon"] == day["epsilon_sum"]
        cap = golden(name)["policy"]["K"]
        assert day["epsilon_user_day"] == min(cap, day["releases"]) * EXACT["epsilon"] <= day["limit"]
    assert pipeline.budget_records() == {f"{pipeline.name}/{date}": day for date, day in days.items()}


@pytest.mark.timeout(240)
def test_records_of_array_averaging_have_the_fields_of_the_contract(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    form, files = golden_recording("itms_30min")
    table = golden_table(golden("itms_30min"), privacy={"min_users": 10}, estimator={"name": "array_averaging"})
    table = merged(table, {"policy": {"privacy": {"max_hats_per_day": golden("itms_30min")["policy"]["K"]}}})
    with open_pipeline(kafka, redis_server, tmp_path, "contract", table) as pipeline:
        pipeline.worker()
        pipeline.replay(files, form)
        pipeline.wait(pipeline.is_settled, "releases of everything")
        means = kafka.read(pipeline.settings.topics.means)
        records = [json.loads(each.value or b"") for each in means]
        users = golden("itms_30min")["hats"]
        for received, record in zip(means, records, strict=True):
            assert_follows("release", record)
            few = users[f"{record['cell']}/{record['date']}/{record['slot']}"][0] < 10
            assert record["status"] == ("suppressed" if few else "released")
            answers = {"mean", "raw", "noise", "interval95"}
            assert record.keys() & answers == (set() if few else answers)
            assert received.key == record["release_id"].encode()
            assert dict(received.headers)["ce_id"] == received.key
            if not few:
                low, high = record["interval95"]
                assert 0 <= record["mean"] <= 65
                assert low <= record["mean"] <= high  # both are cut to the bound, `raw` is not
        assert sorted(record["seq"] for record in records) == list(range(1, len(records) + 1))
        for budget in kafka.read(pipeline.settings.topics.budget):
            assert_follows("budget", json.loads(budget.value or b""))
        released = sum(record["status"] == "released" for record in records)
        (day,) = pipeline.budget_records().values()
        assert 0 < released == day["releases"] == day["epsilon_sum"]


def assert_follows(schema: str, record: dict[str, Any]) -> None:
    validator(schema).validate(record)


@cache
def validator(schema: str) -> Draft202012Validator:
    """Read and checked once: there are a thousand records."""
    found = json.loads((ROOT / "schemas" / f"{schema}.schema.json").read_bytes())
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(found)
