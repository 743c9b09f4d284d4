"""The report's pipeline, end to end: four days of CapMetro's buses, surveyed, then on real Kafka and Redis, and both of
its queries.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import Any

import h3.api.basic_str as h3
import pytest
from jsonschema import Draft202012Validator

from hatcast.stream.time_zones import time_zone
from tests.integration.crashing_worker import die_after_answers
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.tables import golden_table
from tests.services import KafkaServer, RedisServer
from tests.services.data import ROOT, golden, recording

DATES = ["2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27"]
FILES = [f"capmetro/{date}.csv.gz" for date in DATES]
SLOTS = [f"{hour:02}:00" for hour in range(9, 21)]
USERS = 10
LIMIT = 50.0  # km/h
ENOUGH = 60  # user-days: some HATs have less
EPSILON = 1e6  # acknowledged: noise below the grid
QUERIES = [
    {"name": "speed", "kind": "mean_speed", "days": 4, "from": DATES[0], "epsilon": EPSILON, "min_n": ENOUGH},
    {"name": "fast", "kind": "over_speed_limit", "days": 4, "from": DATES[0], "epsilon": EPSILON, "speed_limit": LIMIT},
    {"name": "today", "kind": "mean_speed", "days": 1, "epsilon": EPSILON, "min_n": 1},
]
PRIVACY = {
    "epsilon": EPSILON,
    "acknowledge_weak_privacy": True,
    "max_hats_per_day": 300,
    "daily_limit": 1e9,
    "min_users": 1,
}
MOST = 21 * len(SLOTS)  # HATs that a day can enter: there are no more in 21 cells
ZONE = time_zone("America/Chicago")

UserDay = tuple[str, str]  # date, vehicle
Hats = dict[tuple[str, str], dict[UserDay, list[int]]]  # (slot, cell) -> speeds in milli-units of km/h


def readings() -> Iterator[dict[str, str]]:
    """The rows of all four files, by the standard library."""
    for file in FILES:
        with gzip.open(recording(file)) as unpacked:
            yield from csv.DictReader(io.TextIOWrapper(unpacked, "utf-8"))


def direct() -> Hats:
    """What counts, by the rules of the fold, with nothing of the product."""
    hats: Hats = {}
    seen = set()
    for row in readings():
        place, speed = (float(row["latitude"]), float(row["longitude"])), Fraction(float(row["speed"])) * 3600
        local = datetime.fromisoformat(row["timestamp"]).astimezone(ZONE)
        if place == (0.0, 0.0) or not 0 < round(speed) <= 150_000 or not 9 <= local.hour < 21:
            continue
        if (row["vehicle_id"], local) in seen:
            continue
        seen.add((row["vehicle_id"], local))  # what is at the same place at the same second is there once
        users = hats.setdefault((f"{local.hour:02}:00", h3.latlng_to_cell(*place, 7)), {})
        value = min(round(speed), 65_000)
        users.setdefault((local.date().isoformat(), row["vehicle_id"]), []).append(value)
    return hats


def busy(hats: Hats) -> list[str]:
    """The cells with more than `USERS` vehicles a day, on average, in every slot."""
    cells = {cell for _, cell in hats}
    return sorted(cell for cell in cells if all(len(hats.get((slot, cell), {})) > USERS * len(DATES) for slot in SLOTS))


def expected(hats: Hats) -> dict[str, tuple[str, Fraction | None]]:
    """release_id without the policy -> status and answer."""
    found: dict[str, tuple[str, Fraction | None]] = {}
    for (slot, cell), users in hats.items():
        missing = {
            date for date in DATES if not any(day == date for s, c in hats if s == slot for day, _ in hats[s, c])
        }
        assert not missing, "the four days have data in every hour"
        means = {of: Fraction(sum(speeds), len(speeds)) / 1000 for of, speeds in users.items()}
        name = f"{DATES[-1]}T{slot}/{cell}"
        enough = len(means) >= ENOUGH
        mean = Fraction(sum(means.values())) / len(means)
        found[f"{name}/speed"] = ("released", mean) if enough else ("suppressed", None)
        fast = sum(max(speeds) > LIMIT * 1000 for speeds in users.values())
        found[f"{name}/fast"] = "released", Fraction(fast, len(DATES))
        for date in {day for day, _ in users}:
            of_day = [mean for (day, _), mean in means.items() if day == date]
            found[f"{date}T{slot}/{cell}/today"] = "released", Fraction(sum(of_day)) / len(of_day)
    return found


@pytest.fixture(scope="module")
def pipeline(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """All of it replayed to two workers, one of which is killed with -9 between commit and sending of its answers."""
    folder = tmp_path_factory.mktemp("report")
    policy = {"lateness": "2h", "hours": [9, 21], "privacy": PRIVACY, "query": QUERIES}
    table = golden_table(golden("capmetro_2017-03-21"), **policy)
    with open_pipeline(kafka, redis_server, folder, "survey", table) as surveying:
        files = [recording(file) for file in FILES]
        options = ("--format", "capmetro", "--users", USERS, "--cells", folder / "cells.txt")
        surveying.run("survey", *files, *options, config=surveying.folder / "hatcast.toml")
    table = golden_table(golden("capmetro_2017-03-21"), cells="cells.txt", **policy)
    with open_pipeline(kafka, redis_server, folder, "report", table) as opened:
        dying, other = opened.worker(wrap=partial(die_after_answers, "committed")), opened.worker()
        for worker in (dying, other):
            opened.wait_for_partitions(worker)
        for file in FILES:
            opened.replay(recording(file), "capmetro", "--speedup", 0, *([] if file == FILES[-1] else ["--no-end"]))
        opened.wait(lambda: dying.code == -9, "kill -9 in an answer", other)
        opened.wait(opened.is_settled, "all releases and answers", other)
        yield opened


def answers(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """release_id without the policy -> the one record, also of transactions that were not committed."""
    published = pipeline.answers(committed=False)
    assert {name: len(set(values)) for name, values in published.items() if len(set(values)) != 1} == {}
    return {name.partition("/")[2]: json.loads(values[0], parse_float=Fraction) for name, values in published.items()}


@pytest.mark.timeout(240)
def test_both_queries_over_four_days_have_the_answers_of_a_direct_computation(pipeline: Pipeline) -> None:
    hats = direct()
    first, *cells = (pipeline.folder / "cells.txt").read_text().split("\n")
    assert first == 'source = "survey"'
    assert [cell for cell in cells if cell and not cell.startswith("#")] == busy(hats)
    listed = {of: users for of, users in hats.items() if of[1] in cells}
    found, wanted = answers(pipeline), expected(listed)
    assert {status for status, _ in wanted.values()} == {"released", "suppressed"}
    assert len(wanted) > 1_000
    assert {name: record["status"] for name, record in found.items()} == {
        name: status for name, (status, _) in wanted.items()
    }
    wrong = {}
    for name, (_, answer) in wanted.items():
        if answer is not None and abs(found[name]["mean"] - answer) > Fraction(2, 1000):
            wrong[name] = (float(answer), float(found[name]["mean"]))
    assert wrong == {}


def test_the_ledger_reserved_every_query_on_each_of_its_days_and_nothing_is_kept(pipeline: Pipeline) -> None:
    for record in answers(pipeline).values():
        assert record["epsilon_user_day"] == MOST * EPSILON
    for key, budget in pipeline.budget_records().items():
        date = key.rpartition("/")[2]
        places = dict.fromkeys(["speed", "fast", "today"], MOST)
        assert {each["query"]: each["places"] for each in budget["queries"]} == places, date
        assert budget["epsilon_user_day"] == (min(300, budget["releases"]) + 3 * MOST) * EPSILON
    status = pipeline.status()
    assert (status["unanswered"], status["kept_slots"]) == (0, [])


def test_the_records_follow_their_schema_and_are_keyed_by_their_release_id(pipeline: Pipeline) -> None:
    follows = validator("query")
    for received in pipeline.kafka.read(pipeline.settings.topics.queries):
        record = json.loads(received.value or b"")
        follows(record)
        assert received.key == record["release_id"].encode() == dict(received.headers)["ce_id"]
    follows = validator("budget")
    for value in {received.value or b"" for received in pipeline.kafka.read(pipeline.settings.topics.budget)}:
        follows(json.loads(value))


def validator(schema: str) -> Callable[[Any], None]:
    """Raises where a record does not follow the schema."""
    return Draft202012Validator(json.loads((ROOT / "schemas" / f"{schema}.schema.json").read_bytes())).validate
