"""The PostgreSQL program of docs/consume.md: killed again and again, its table has each record once."""

import json
import random
import re
import sys
import time
from typing import Any, Final

import psycopg
import pytest

from tests.integration.harness import SECONDS, Pipeline
from tests.services import Record
from tests.services.data import ROOT
from tests.services.lifecycle import ServerProcess

PAGE: Final = (ROOT / "docs" / "consume.md").read_text()
DASHBOARD: Final = ROOT / "ops" / "grafana" / "means.json"
GOLDENS: Final = ROOT / "schemas" / "golden" / "0.1.0"
HOURS: Final = 3_000
pytestmark = pytest.mark.pipeline({"kafka": {"partitions": 3}}, topics=True)


def program() -> str:
    section = PAGE.partition("\n## PostgreSQL")[2].partition("\n## ")[0]
    [code] = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(code)


def golden(kind: str, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((GOLDENS / kind / f"{name}.json").read_bytes())["value"]
    return value


def send(pipeline: Pipeline) -> dict[tuple[str, str], tuple[str, float]]:
    """Publish many releases twice, and estimates that change; return (kind, id) -> status and value of the last."""
    released, live = golden("release", "replace_released"), golden("estimate", "live")
    expected = {}
    for topic, record, key in (("means", released, "release_id"), ("estimates", live, "estimate_id")):
        kind = "release" if topic == "means" else "estimate"
        sent = []
        for number in range(HOURS):
            name = f"{record[key]}-{number}"
            if kind == "release":
                one = record | {key: name, "mean": number / 100}
                sent += [one, one]
                expected[kind, name] = ("released", number / 100)
            else:
                mean = record["mean"] | {"value": number / 50}
                sent += [record | {key: name}, record | {key: name, "stage": "settled", "mean": mean}]
                expected[kind, name] = ("settled", number / 50)
        pipeline.kafka.produce(
            getattr(pipeline.settings.topics, topic),
            [Record(json.dumps(one).encode(), one[key].encode()) for one in sent],
        )
    return expected


def stored(database: psycopg.Connection[Any]) -> dict[tuple[str, str], tuple[str, float]]:
    if database.execute("SELECT to_regclass('hats')").fetchone() == (None,):
        return {}
    rows = database.execute("SELECT kind, id, status, value FROM hats").fetchall()
    return {(kind, name): (status, value) for kind, name, status, value in rows}


def test_a_program_that_is_killed_again_and_again_stores_each_record_once(pipeline: Pipeline, postgres: str) -> None:
    expected = send(pipeline)
    file = pipeline.folder / "consumer.py"
    file.write_text(program())
    topics = pipeline.settings.topics
    environment = {
        "KAFKA": pipeline.kafka.bootstrap_servers,
        "TOPICS": f"{topics.means},{topics.estimates}",
        "DATABASE": postgres,
    }
    choice = random.Random(7)
    kills = 0
    deadline = time.monotonic() + SECONDS
    with psycopg.connect(postgres, autocommit=True) as database:
        while True:
            process = ServerProcess([sys.executable, str(file)], pipeline.folder / "consumer.log", environment)
            process.start()
            try:
                before = len(stored(database))
                goal = min(len(expected), before + choice.randrange(500, 2500))
                while len(found := stored(database)) < goal or (goal == len(expected) and found != expected):
                    assert process.running, process.log_tail()
                    assert time.monotonic() < deadline, f"{len(found)} of {len(expected)}\n{process.log_tail()}"
                    time.sleep(0.02)
                if goal == len(expected):
                    break
                process.kill()
                kills += 1
            finally:
                process.close()
        assert kills >= 2
        ends = database.execute("SELECT topic, number, next FROM read_offsets").fetchall()
        for topic in (topics.means, topics.estimates):
            log = pipeline.kafka.read(topic)
            assert {number: after for each, number, after in ends if each == topic} == {
                partition: max(one.offset for one in log if one.partition == partition) + 1
                for partition in {one.partition for one in log}
            }
        check_dashboard(database)


def check_dashboard(database: psycopg.Connection[Any]) -> None:
    """Each query of the dashboard returns rows, with what Grafana puts in place of its variables."""
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["rawSql"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    assert len(queries) >= 4
    start = golden("release", "replace_released")["end"]
    replaced = {
        "$__timeFilter(slot_end)": f"slot_end BETWEEN timestamptz '{start}' AND timestamptz '{start}'",
        "${policy:sqlstring}": "'surat-speed'",
        "${kind:sqlstring}": "'estimate'",
        "${cell:sqlstring}": f"'{golden('release', 'replace_released')['cell']}'",
    }
    for written in queries:
        query = written
        for name, value in replaced.items():
            query = query.replace(name, value)
        assert "$" not in query, query
        assert database.execute(query).fetchall(), query
