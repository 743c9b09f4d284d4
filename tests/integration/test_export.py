"""`hatcast export` against a real broker: its files hold each record once, however often it ran and was killed."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from hatcast.agents.export.run import STATE, ExportFolder
from tests.integration.forked import Forked
from tests.integration.harness import Pipeline
from tests.services import Record
from tests.services.data import ROOT

GOLDENS = ROOT / "schemas" / "golden" / "0.1.0"
pytestmark = pytest.mark.pipeline({"kafka": {"partitions": 3}}, topics=True)


def golden(kind: str, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((GOLDENS / kind / f"{name}.json").read_bytes())["value"]
    return value


def moved(record: dict[str, Any], key: str, day: int, **changes: Any) -> dict[str, Any]:
    """A golden record on another date of January 2022."""
    date = f"2022-01-{day:02}"
    return record | {key: record[key].replace(record["date"], date), "date": date} | changes


def send(pipeline: Pipeline, topic: str, records: Sequence[dict[str, Any]], key: str) -> None:
    pipeline.kafka.produce(
        getattr(pipeline.settings.topics, topic),
        [Record(json.dumps(each).encode(), each[key].encode()) for each in records],
    )


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """File -> rows."""
    return {
        str(path.relative_to(folder)): pq.read_table(path).to_pylist() for path in sorted(folder.glob("*/*.parquet"))
    }


def exported(pipeline: Pipeline, folder: Path, *options: str) -> list[dict[str, Any]]:
    done = pipeline.hatcast("export", "--to", folder, "--json", *options)
    assert (done.code, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


def fill(pipeline: Pipeline, days: range) -> None:
    released, live, answer = (
        golden("release", "replace_released"),
        golden("estimate", "live"),
        golden("query", "replace_released"),
    )
    send(pipeline, "means", [moved(released, "release_id", day) for day in days] * 2, "release_id")
    send(pipeline, "estimates", [moved(live, "estimate_id", day) for day in days], "estimate_id")
    send(pipeline, "estimates", [moved(live, "estimate_id", day, stage="settled") for day in days], "estimate_id")
    send(pipeline, "queries", [moved(answer, "release_id", day) for day in days], "release_id")


def die_before_the_offsets() -> None:
    """Kill the process where the files are written and the offsets are not."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    ExportFolder.set_progress = die  # type: ignore[assignment,method-assign]  # dies instead


def test_an_export_in_parts_equals_one_at_the_end(pipeline: Pipeline) -> None:
    parts, whole = pipeline.folder / "parts", pipeline.folder / "whole"
    fill(pipeline, range(1, 4))
    first = exported(pipeline, parts)
    assert [(each["table"], each["records"]) for each in first] == [
        ("releases", 6),
        ("estimates", 6),
        ("answers", 3),
        ("running", 0),
    ]
    assert [each["records"] for each in exported(pipeline, parts)] == [0, 0, 0, 0]
    fill(pipeline, range(3, 6))  # the third day again
    exported(pipeline, parts)
    exported(pipeline, whole)
    found = rows(parts)
    assert found == rows(whole)
    assert sorted(found) == sorted(
        f"{t}/2022-01-0{day}.parquet" for t in ("answers", "estimates", "releases") for day in range(1, 6)
    )
    assert all(len(each) == 1 for each in found.values())
    released = golden("release", "replace_released")
    [row] = found["releases/2022-01-02.parquet"]
    assert (row["mean"], [row["low"], row["high"]]) == (released["mean"], released["interval95"])
    assert json.loads(row["record"]) == moved(released, "release_id", 2)
    assert found["estimates/2022-01-02.parquet"][0]["stage"] == "settled"


def test_the_query_of_the_page_runs_on_the_files(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(pipeline, range(1, 4))
    exported(pipeline, pipeline.folder / "city", "--only", "estimates")
    page = (ROOT / "docs" / "consume.md").read_text()
    [query] = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(pipeline.folder)
    live = golden("estimate", "live")
    with duckdb.connect() as database:
        assert database.sql(query).fetchall() == [(live["cell"], 3, live["road"]["value"], 3)]


def test_every_golden_record_is_a_row(pipeline: Pipeline) -> None:
    for topic, kind, key in (("means", "release", "release_id"), ("queries", "query", "release_id")):
        names = sorted(path.stem for path in (GOLDENS / kind).glob("*.json"))
        send(pipeline, topic, [golden(kind, name) | {key: f"{name}{golden(kind, name)[key]}"} for name in names], key)
        done = exported(pipeline, pipeline.folder / "out", "--only", {"means": "releases", "queries": "answers"}[topic])
        assert [(each["records"], each["rejected"]) for each in done] == [(len(names), 0)]
        table = {"means": "releases", "queries": "answers"}[topic]
        found = [row for name, each in rows(pipeline.folder / "out").items() if name.startswith(table) for row in each]
        assert len(found) == len(names)


def test_a_killed_export_is_done_again_with_the_same_rows(pipeline: Pipeline) -> None:
    folder, whole = pipeline.folder / "killed", pipeline.folder / "whole"
    fill(pipeline, range(1, 4))
    out = pipeline.folder / "log"
    process = Forked(
        ["export", "--to", str(folder), "--config", str(pipeline.config)], out, out, die_before_the_offsets
    )
    assert process.wait(60) == -signal.SIGKILL
    assert rows(folder)
    assert json.loads((folder / STATE).read_text())["topics"] == {}
    exported(pipeline, folder)
    exported(pipeline, whole)
    assert rows(folder) == rows(whole)


def test_what_is_aborted_or_of_another_telemetry_topic_is_left_out(pipeline: Pipeline) -> None:
    topic, released = pipeline.settings.topics.means, golden("release", "replace_released")
    value = json.dumps(released).encode()
    other = (("ce_source", b"hatcast/elsewhere"),)
    pipeline.kafka.produce(topic, [Record(value, b"k", headers=other), Record(b"{}", b"k"), Record(None, b"k")])
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value, b"k")
    producer.abort_transaction(30)
    [done] = exported(pipeline, pipeline.folder / "out", "--only", "releases")
    assert (done["records"], done["rejected"]) == (0, 1)
    told = pipeline.hatcast("export", "--to", pipeline.folder / "more", "--only", "releases")
    assert "0 new records of" in told.out
    assert "1 are not records of this version, left out" in told.out


def test_a_topic_that_was_created_again_asks_for_a_new_folder(pipeline: Pipeline) -> None:
    folder = pipeline.folder / "out"
    fill(pipeline, range(1, 3))
    exported(pipeline, folder)
    pipeline.kafka.delete_topics([pipeline.settings.topics.means])
    pipeline.kafka.create_topic(pipeline.settings.topics.means, 3)
    fill(pipeline, range(1, 9))
    before = rows(folder)
    done = pipeline.hatcast("export", "--to", folder)
    assert done.code == 1
    assert "it was created again, or this is another cluster; export to a new folder" in done.err
    assert done.err.count("\n") == 1
    assert rows(folder) == before
