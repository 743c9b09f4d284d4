"""`hatcast dump` as a process, against a real broker.
`hatcast tail` as a process, against a real broker.
"""

import base64
import gzip
import json
import os
import pty
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from tests.integration.dumping import (
    ANSWER,
    GOLDENS,
    RAW,
    RELEASED,
    SUPPRESSED,
    lines,
    send,
    spawn,
    stored,
    transaction,
)
from tests.integration.harness import HATCAST, Pipeline
from tests.services import Record
from tests.services.data import ROOT
from tools.schemas.golden import read_golden

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


def test_tail_shows_a_line_for_each_release(pipeline: Pipeline) -> None:
    send(pipeline, RELEASED, SUPPRESSED, {"something": "else"})
    done = pipeline.hatcast("tail", "--from-beginning", "--max", 3)
    assert (done.code, done.err) == (0, "")
    assert {" ".join(line.split()) for line in done.out.splitlines()} == {
        "p 2022-01-02 09:00-10:00 87608b0d2ffffff 21.31 km/h 19.681 to 22.947 released",
        "p 2022-01-02 09:00-10:00 87608b0d2ffffff suppressed",
        "a record that is not a release",
    }


@pytest.mark.parametrize(
    ("only", "shown"), [((), {"means", "queries"}), (("--means",), {"means"}), (("--queries",), {"queries"})]
)
def test_tail_follows_the_answers_to_queries_too_or_one_topic_only(
    pipeline: Pipeline, only: tuple[str, ...], shown: set[str]
) -> None:
    send(pipeline, RELEASED)
    pipeline.kafka.produce(pipeline.settings.topics.queries, [Record(json.dumps(ANSWER).encode(), b"id")])
    done = pipeline.hatcast("tail", "--from-beginning", "--json", *only, "--max", len(shown))
    assert (done.code, done.err) == (0, "")
    assert {"queries" if "query" in line else "means" for line in lines(done.out)} == shown


def test_tail_with_json_gives_the_bytes_as_they_stand_on_the_topic(pipeline: Pipeline) -> None:
    values = send(pipeline, RELEASED, SUPPRESSED, RELEASED)
    done = pipeline.hatcast("tail", "--from-beginning", "--json", "--for", 3)
    assert (done.code, done.err) == (0, "")
    assert sorted(done.out.encode().splitlines()) == sorted(values)


def test_tail_shows_only_what_was_committed(pipeline: Pipeline) -> None:
    topic = pipeline.settings.topics.means
    transaction(pipeline, topic, "aborted").abort_transaction(30)
    transaction(pipeline, topic, "committed").commit_transaction(30)
    done = pipeline.hatcast("tail", "--from-beginning", "--json", "--for", 3)
    assert done.out == "in a transaction\n"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_tail_shows_the_records_of_one_policy_and_counts_only_these(pipeline: Pipeline, form: tuple[str, ...]) -> None:
    other = RELEASED | {"release_id": "other/2022-01-02T09:00/87608b0d2ffffff"}
    send(pipeline, RELEASED, other, RELEASED, {"something": "else"}, other)
    done = pipeline.hatcast("tail", "--from-beginning", "--policy", "other", "--max", 2, *form)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 2)
    assert all("other" in line for line in done.out.splitlines())


@pytest.mark.parametrize("extension", [".jsonl", ".csv", ".parquet", ".geojson"])
def test_tail_writes_a_file_that_is_whole_when_it_ends(pipeline: Pipeline, extension: str) -> None:
    path = pipeline.folder / f"out{extension}"
    release, answer = (read_golden(GOLDENS / kind / "replace_released.json") for kind in ("release", "query"))
    records = {bytes(release.value), bytes(answer.value)}
    for topic, each in ((pipeline.settings.topics.means, release), (pipeline.settings.topics.queries, answer)):
        pipeline.kafka.produce(topic, [Record(bytes(each.value), (each.key or "").encode())])
    if extension in (".jsonl", ".csv"):
        with spawn(pipeline, "tail", "--from-beginning", "-o", str(path)) as process:
            deadline = time.monotonic() + 60
            while sum(len(stored(each)) for each in pipeline.folder.glob("out*")) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, b"")
    else:
        done = pipeline.hatcast("tail", "--from-beginning", "--max", 2, "-o", path)
        assert (done.code, done.out) == (0, "")
        err = done.err.encode()
    if extension in (".csv", ".geojson"):  # each kind has a file of its own
        both = [path, path.with_suffix(f".answers{extension}")]
        assert err.decode().splitlines() == [f"{each}: 1 row" for each in both]
        assert sorted(pipeline.folder.glob("out*")) == sorted(both)
        assert [len(stored(each)) for each in both] == [1, 1]
        return
    assert err.decode().endswith("2 rows\n")
    if extension == ".parquet":
        rows = stored(path)
        assert {row["record"].encode() for row in rows} == records
        assert {row["table"] for row in rows} == {"releases", "answers"}
    else:
        assert all(record in path.read_bytes() for record in records)
    assert [each.name for each in pipeline.folder.glob("out*")] == [path.name]


def test_tail_leaves_records_of_another_version_out_and_says_so(pipeline: Pipeline) -> None:
    send(pipeline, {"something": "else"})
    path = pipeline.folder / "out.csv"
    done = pipeline.hatcast("tail", "--means", "--from-beginning", "--max", 1, "-o", path)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{path}: 0 rows; 1 are not records of this version, left out\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_follows_from_now_on_and_a_signal_ends_it_cleanly(pipeline: Pipeline, number: signal.Signals) -> None:
    send(pipeline, SUPPRESSED)
    with spawn(pipeline, "tail", "--json") as process, ThreadPoolExecutor(1) as reader:
        assert process.stdout is not None
        first = reader.submit(process.stdout.readline)
        deadline = time.monotonic() + 60
        while not first.done() and time.monotonic() < deadline:
            send(pipeline, RELEASED)
            time.sleep(0.3)
        process.send_signal(number)
        assert json.loads(first.result(timeout=60)) == RELEASED
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_tail_ends_when_its_reader_leaves(pipeline: Pipeline, form: tuple[str, ...]) -> None:
    send(pipeline, *[RELEASED] * 3_000)
    with spawn(pipeline, "tail", "--from-beginning", *form) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 1


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_tail_ends_when_its_reader_leaves_and_no_release_follows(pipeline: Pipeline, form: tuple[str, ...]) -> None:
    send(pipeline, RELEASED)
    with spawn(pipeline, "tail", "--from-beginning", *form) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 1
        assert process.stderr.read() == b""


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_tail_to_a_full_disk_fails_with_one_line(pipeline: Pipeline, form: tuple[str, ...]) -> None:
    send(pipeline, RELEASED)
    command = [*HATCAST, "tail", "--from-beginning", *form, "--config", str(pipeline.config)]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    written = b"hatcast: standard output cannot be written (No space left on device): the output is not complete\n"
    assert (ended.returncode, ended.stderr) == (1, written)


def test_a_broker_that_cannot_be_reached_is_named_after_some_tries(pipeline: Pipeline) -> None:
    nowhere = pipeline.changed({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    started = time.monotonic()
    with ThreadPoolExecutor(2) as both:
        ended = list(both.map(lambda name: pipeline.hatcast(*name, config=nowhere), [("dump", "means"), ("tail",)]))
    for done in ended:
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(
            "hatcast: Kafka at 127.0.0.1:1 cannot be reached (connection refused; tried for 12 s)"
        )
        assert done.err.count("\n") == 1
    assert 10 < time.monotonic() - started < 60
