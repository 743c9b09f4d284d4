"""`hatcast dump` as a process, against a real broker."""

import base64
import gzip
import os
import pty
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from tests.integration.dumping import (
    RAW,
    RELEASED,
    lines,
    send,
    spawn,
    transaction,
)
from tests.integration.harness import HATCAST, Pipeline
from tests.services import Record
from tests.services.data import ROOT

pytestmark = pytest.mark.pipeline({"kafka": {"partitions": 3}}, topics=True)


def test_a_dump_tells_every_record_of_the_log(pipeline: Pipeline) -> None:
    topic = pipeline.settings.topics.telemetry
    sent = [Record(b"v%d" % n, b"k%d" % n, partition=n % 3, timestamp_ms=1_000 + n) for n in range(3_000)]
    sent += [Record(None, None, partition=1, timestamp_ms=5_000), Record(b"", b"", partition=1, timestamp_ms=5_001)]
    sent += [Record(bytes(range(256)), b"\xff\x00", partition=2, timestamp_ms=0)]
    pipeline.kafka.produce(topic, sent)
    done = pipeline.hatcast("dump", "telemetry")
    assert (done.code, done.err) == (0, RAW)
    head, *records = lines(done.out)
    assert head == {"topic": topic, "partitions": 3, "start_offsets": [0, 0, 0]}
    assert {record["topic"] for record in records} == {topic}
    found: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: []}
    for each in records:
        key, value = (None if each[field] is None else base64.b64decode(each[field]) for field in ("key", "value"))
        found[each["partition"]].append((each["offset"], each["ts"], key, value))
    expected: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: []}
    for received in pipeline.kafka.read(topic):
        expected[received.partition].append((received.offset, received.timestamp_ms, received.key, received.value))
    assert found == expected
    assert len(records) == len(sent)


def test_a_dump_of_an_empty_topic_is_its_first_line(pipeline: Pipeline) -> None:
    done = pipeline.hatcast("dump", "telemetry")
    assert lines(done.out) == [
        {"topic": pipeline.settings.topics.telemetry, "partitions": 3, "start_offsets": [0, 0, 0]}
    ]


def test_a_dump_says_where_the_log_begins_after_records_were_deleted(pipeline: Pipeline) -> None:
    topic = pipeline.settings.topics.telemetry
    pipeline.kafka.produce(topic, [Record(b"v%d" % n, partition=1) for n in range(5)])
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.delete_records({TopicPartition(topic, 1): 3})
    head, *records = lines(pipeline.hatcast("dump", topic).out)
    assert head["start_offsets"] == [0, 3, 0]
    assert [record["offset"] for record in records] == [3, 4]


def test_a_dump_leaves_out_aborted_and_open_transactions(pipeline: Pipeline) -> None:
    topic = pipeline.settings.topics.telemetry
    transaction(pipeline, topic, "aborted").abort_transaction(30)
    pipeline.kafka.produce(topic, [Record(b"plain", partition=0)])
    transaction(pipeline, topic, "committed").commit_transaction(30)
    still_open = transaction(pipeline, topic, "open")
    pipeline.kafka.produce(topic, [Record(b"behind it", partition=0)])
    _, *records = lines(pipeline.hatcast("dump", "telemetry").out)
    assert [base64.b64decode(record["value"]) for record in records] == [b"plain", b"in a transaction"]
    still_open.abort_transaction(30)


def test_a_dump_to_a_packed_file_holds_the_same_bytes(pipeline: Pipeline) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, [Record(b"v" * 200, b"k") for _ in range(500)])
    plain, packed = pipeline.folder / "dump.jsonl", pipeline.folder / "dump.jsonl.gz"
    for path in (plain, packed):
        done = pipeline.hatcast("dump", "telemetry", "--output", path)
        assert (done.code, done.out, done.err) == (0, "", RAW)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert plain.read_text() == pipeline.hatcast("dump", "telemetry").out
    assert {path.name for path in pipeline.folder.glob("dump*")} == {"dump.jsonl", "dump.jsonl.gz"}


def test_a_dump_of_releases_is_not_called_private(pipeline: Pipeline) -> None:
    send(pipeline, RELEASED)
    done = pipeline.hatcast("dump", "means")
    assert (done.code, done.err, len(lines(done.out))) == (0, "", 2)


@pytest.mark.parametrize("where", ["standard output", "a file"])
def test_a_dump_to_a_full_disk_fails_with_one_line(pipeline: Pipeline, where: str) -> None:
    if where == "a file":
        done = pipeline.hatcast("dump", "telemetry", "--output", "/dev/full")
        assert (done.code, done.err.count("\n")) == (1, 2)
        assert "/dev/full cannot be written (No space left on device): the dump is not complete" in done.err
        return
    with Path("/dev/full").open("wb") as full:
        command = [*HATCAST, "dump", "telemetry", "--config", str(pipeline.config)]
        ended = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 2)
    assert "standard output cannot be written (No space left on device)" in ended.stderr


def test_a_dump_whose_reader_leaves_fails_without_a_word(pipeline: Pipeline) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, [Record(bytes(1_000)) for _ in range(3_000)])
    with spawn(pipeline, "dump", "telemetry") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read().decode() == RAW
        assert process.wait(30) == 1


def test_an_interrupted_dump_leaves_no_half_file(pipeline: Pipeline) -> None:
    path = pipeline.folder / "none" / "dump.jsonl"
    done = pipeline.hatcast("dump", "telemetry", "--output", path)
    assert (done.code, path.exists()) == (1, False)
    assert f"{path} cannot be written (No such file or directory)" in done.err


def test_a_dump_shows_its_progress_on_a_terminal_only(pipeline: Pipeline) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, [Record(b"v") for _ in range(10)])
    ours, theirs = pty.openpty()
    command = [*HATCAST, "dump", "telemetry", "--config", str(pipeline.config)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs) as process:
        out, _ = process.communicate(timeout=60)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # its end: nobody has the other side open
        while part := os.read(ours, 65_536):
            shown += part
    os.close(ours)
    assert b"100%" in shown
    assert len(lines(out.decode())) == 11


def test_a_topic_that_nobody_made_is_one_line(pipeline: Pipeline) -> None:
    done = pipeline.hatcast("dump", "nowhere")
    assert done.code == 1
    assert done.err.removeprefix(RAW).startswith("hatcast: Kafka at ")
    assert "has no topic 'nowhere'" in done.err
    assert done.err.count("\n") == 2
