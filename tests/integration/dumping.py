"""`hatcast dump` and `hatcast tail` as processes, and records for them to read."""

import csv
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer

from tests.integration.harness import HATCAST, Pipeline
from tests.services import Record
from tests.services.data import ROOT
from tools.schemas import FOLDER as SCHEMAS
from tools.schemas.asyncapi import version

GOLDENS = SCHEMAS / "golden" / version()


RELEASED = {
    "release_id": "p/2022-01-02T09:00/87608b0d2ffffff",
    "status": "released",
    "cell": "87608b0d2ffffff",
    "date": "2022-01-02",
    "slot": "09:00",
    "end": "2022-01-02T10:00:00+05:30",
    "mean": 21.310,
    "unit": "km/h",
    "interval95": [19.681, 22.947],
    "estimator": "baseline",
}


ANSWER = RELEASED | {"release_id": f"{RELEASED['release_id']}/speed", "query": "speed", "kind": "mean_speed"}


SUPPRESSED = {key: RELEASED[key] for key in ("release_id", "cell", "date", "slot", "end")} | {"status": "suppressed"}


RAW = "reads raw data, not private\n"


def spawn(pipeline: Pipeline, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*HATCAST, *arguments, "--config", str(pipeline.config)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def send(pipeline: Pipeline, *releases: dict[str, Any]) -> list[bytes]:
    values = [json.dumps(release).encode() for release in releases]
    pipeline.kafka.produce(
        pipeline.settings.topics.means, [Record(value, b"id", partition=n % 3) for n, value in enumerate(values)]
    )
    return values


def transaction(pipeline: Pipeline, topic: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": topic + name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", b"key", partition=0)
    producer.flush(30)
    return producer


def stored(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of records."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    if path.suffix == ".geojson":
        return [each["properties"] for each in json.loads(path.read_bytes())["features"]]
    with path.open(newline="") as file:
        return [*csv.DictReader(file)] if path.suffix == ".csv" else [json.loads(line) for line in file]
