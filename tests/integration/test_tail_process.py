"""`hatcast tail` as a process, against a real broker."""

import json
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.dumping import ANSWER, GOLDENS, RELEASED, SUPPRESSED, lines, send, spawn, stored, transaction
from tests.integration.harness import HATCAST, Pipeline
from tests.services import Record
from tests.services.data import ROOT
from tools.schemas.golden import read_golden

pytestmark = pytest.mark.pipeline({"kafka": {"partitions": 3}}, topics=True)


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
