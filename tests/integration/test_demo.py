"""The demo as it is typed. Its services are embedded, so these tests run anywhere."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import redis
from confluent_kafka import Producer

from hatcast.agents.demo.defaults import TOPIC_NAMES, TOPICS
from hatcast.agents.demo.embedded import PARTITIONS, Services
from hatcast.agents.demo.rendering import Lines
from hatcast.agents.demo.run import DemoOptions, run_demo
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.stream.errors import HatcastError
from tests.integration.tables import DEFAULTS, golden_table, merged, toml
from tests.services.data import DATA, ROOT, golden, golden_recording

EDGE = DATA / "golden" / "edge.jsonl"
SCHEMA = json.loads((ROOT / "schemas" / "release.schema.json").read_bytes())
QUERY_SCHEMA = json.loads((ROOT / "schemas" / "query.schema.json").read_bytes())
SECONDS = 200  # a demo starts Kafka, Redis and a worker: on a machine with much else to do, that takes long


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, with a name as short as those of common systems."""
    with tempfile.TemporaryDirectory(prefix="hatcast-test-", dir="/tmp") as folder:
        yield Path(folder)


@contextmanager
def demo(temporary: Path, *arguments: object, cwd: Path = ROOT) -> Iterator["subprocess.Popen[bytes]"]:
    """A demo that runs, with its temporary files in that folder; killed if the test leaves it running."""
    with subprocess.Popen(
        [sys.executable, "-m", "hatcast.agents.cli", "demo", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(temporary: Path, *arguments: object, cwd: Path = ROOT) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors of a demo that ends by itself."""
    with demo(temporary, *arguments, cwd=cwd) as process:
        out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out, err


def releases(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def edge_config(tmp_path: Path, policy: Mapping[str, Any] | None = None, **privacy: Any) -> Path:
    """The configuration of the golden result of edge.jsonl, with BASELINE. policy: more keys of it."""
    return configured(tmp_path, golden_table(golden("edge"), name="edge", privacy=privacy, **(policy or {})))


def configured(tmp_path: Path, table: Mapping[str, Any]) -> Path:
    config = tmp_path / "hatcast.toml"
    config.write_text(toml(merged(DEFAULTS, table)))
    return config


def processes_below(folder: Path) -> list[int]:
    """The processes that work for a demo whose temporary files are below a folder."""
    found = []
    for status in Path("/proc").glob("[0-9]*"):
        try:
            told = (status / "cmdline").read_bytes() + (status / "environ").read_bytes()
        except OSError:  # it has ended, or is not ours
            continue
        if str(folder).encode() in told and status.name != str(os.getpid()):
            found.append(int(status.name))
    return found


def wait_until_gone(folder: Path, seconds: float = 10.0) -> None:
    """Return once nothing of a demo is left, neither processes nor files."""
    deadline = time.monotonic() + seconds
    while (processes_below(folder) or any(folder.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_below(folder) == []
    assert sorted(folder.iterdir()) == []


def wait_for_output(process: "subprocess.Popen[bytes]") -> bytes:
    """The first line that it prints."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SECONDS)[0], "it printed nothing"
    return process.stdout.readline()


def test_the_city_gives_releases_as_in_the_contract(temporary: Path) -> None:
    with demo(temporary, "--speedup", 3600, "--json") as process:
        assert process.stdout is not None
        out = b""
        while b'"status":"released"' not in out:
            line = process.stdout.readline()
            assert line, "it ended before anything was released"
            out += line
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        rest, err = (
            process.stdout.read(),
            process.stderr.read(),
        )  # not communicate(): it skips what readline has buffered
        assert (process.wait(SECONDS), err) == (0, b"")
    found = releases(out + rest)
    for release in found:
        jsonschema.validate(release, SCHEMA)
    assert len({release["release_id"] for release in found}) == len(found)
    wait_until_gone(temporary)


def test_a_recording_releases_every_hat_of_the_golden_once_and_ends_by_itself(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path, min_users=10)
    code, out, err = finished(temporary, "--feed", EDGE, "--format", "jsonl", "--config", config, "--json")
    expected = golden("edge")["hats"]
    found = {f"{each['cell']}/{each['date']}/{each['slot']}": each["status"] for each in releases(out)}
    assert (code, err) == (0, b"")
    assert len(releases(out)) == len(expected)
    assert found == {hat: "released" if users >= 10 else "suppressed" for hat, (users, *_) in expected.items()}


def test_with_hardly_any_noise_the_means_are_those_of_the_batch(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path, epsilon=1e6, daily_limit=1e9, acknowledge_weak_privacy=True)
    given = ("--format", "jsonl", "--config", str(config))
    code, out, _ = finished(temporary, "--feed", EDGE, *given, "--json", "--speedup", 0)
    assert code == 0
    found = {f"{each['cell']}/{each['date']}/{each['slot']}": each["mean"] for each in releases(out)}
    expected = {hat: total / count / 1000 for hat, (_, count, total, _) in batch(EDGE, *given).items()}
    assert found.keys() == expected.keys()
    assert all(abs(found[hat] - mean) <= 0.002 for hat, mean in expected.items())


def batch(*arguments: object) -> Mapping[str, list[int]]:
    """HAT -> users, count, sum, max."""
    hats: dict[str, list[int]] = json.loads(run_batch(*arguments, "--contributions", "--json"))["hats"]
    return hats


def run_batch(*arguments: object) -> bytes:
    command = [sys.executable, "-m", "hatcast.agents.cli", "batch", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=SECONDS).stdout


QUERIES = [
    {"name": "fast", "kind": "over_speed_limit", "speed_limit": 50.0, "days": 1, "epsilon": 0.1},
    {
        "name": "usual",
        "kind": "mean_speed",
        "min_n": 5,
        "days": 2,
        "from": "2024-10-26",
        "epsilon": 0.1,
        "missing_days": "leave_out",
    },
    {"name": "month", "kind": "mean_speed", "min_n": 5, "days": 30, "from": "2024-10-26", "epsilon": 0.1},
]


def test_a_recording_with_queries_over_days_ends_and_shows_every_answer_that_batch_gives(
    tmp_path: Path, temporary: Path
) -> None:
    config = edge_config(tmp_path, {"query": QUERIES})
    given = ("--format", "jsonl", "--config", config)
    code, out, err = finished(temporary, "--feed", EDGE, *given, "--speedup", 0, "--json")
    assert (code, err) == (0, b"")
    found = [record for record in releases(out) if "query" in record]
    for record in found:
        jsonschema.validate(record, QUERY_SCHEMA)
    of_batch = releases(run_batch(EDGE, *given, "--ledger", tmp_path / "ledger", "--json"))
    expected = {record["release_id"]: record["user_days"] for record in of_batch if "query" in record}
    assert {record["query"] for record in found} == {"fast", "usual"}
    assert len(found) == len(expected)
    assert {record["release_id"]: record["user_days"] for record in found} == expected


def test_answers_are_in_the_text_and_a_period_that_is_not_over_is_named(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path, {"query": QUERIES})
    code, out, err = finished(temporary, "--feed", EDGE, "--format", "jsonl", "--config", config, "--speedup", 0)
    assert (code, err) == (0, b"")
    lines = out.decode("ascii").splitlines()
    assert any("usual: " in line and " +- " in line and line.startswith("2024-10-26 to 2024-10-27") for line in lines)
    assert any(line.startswith("queries fast: ") and line.endswith("month: 0 answers") for line in lines)
    waits = "query month has no answer: its period of 30 days from 2024-10-26 to 2024-11-24 is not over"
    assert any(line.startswith(waits) for line in lines)


def test_several_recordings_are_sent_together(tmp_path: Path, temporary: Path) -> None:
    feed, polls = golden_recording("gtfs_rt")
    given = ("--format", feed, "--config", configured(tmp_path, {"policy": {"name": "polls", "hours": [0, 24]}}))
    feeds = [argument for poll in reversed(polls) for argument in ("--feed", poll)]
    code, out, err = finished(temporary, *feeds, *given, "--speedup", 0, "--json")
    assert (code, err) == (0, b"")
    hats = {f"{each['cell']}/{each['date']}/{each['slot']}" for each in releases(out)}
    assert len(polls) == 2
    assert hats == batch(*polls, *given).keys()
    assert all(hats > batch(poll, *given).keys() for poll in polls)


def test_the_map_stays_after_a_recording_if_asked_for(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path)
    given = ("--feed", EDGE, "--format", "jsonl", "--config", config, "--speedup", 0, "--keep", "--json", "--port", 0)
    with demo(temporary, *given) as process:
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], SECONDS)[0], "it said nothing"
        told = process.stderr.readline().decode()
        url = next(word for word in told.split() if word.startswith("http://"))
        with urllib.request.urlopen(f"{url}api/v1/latest", timeout=30) as answer:
            assert json.loads(answer.read())["releases"]
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert len(releases(out)) == len(golden("edge")["hats"])


@pytest.mark.parametrize("arguments", [("--keep",), ("--feed", EDGE), ("--format", "jsonl"), ("--share", 0.1)])
def test_options_that_do_not_fit_are_wrong_usage(arguments: tuple[object, ...], temporary: Path) -> None:
    code, out, err = finished(temporary, *arguments)
    assert (code, out, err.count(b"\n")) == (2, b"", 1)


def test_a_busy_port_names_the_option_that_the_demo_has(temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = finished(temporary, "--port", taken.getsockname()[1])
    assert (code, out, err.count(b"\n")) == (1, b"", 1)
    assert b"name another --port" in err


def test_it_stops_after_its_time(temporary: Path) -> None:
    code, _, err = finished(temporary, "--for", 3, "--speedup", 3600, "--json")
    assert (code, err) == (0, b"")
    wait_until_gone(temporary)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_stops_it_within_seconds_and_nothing_is_left(name: str, temporary: Path) -> None:
    with demo(temporary, "--json", "--speedup", 3600) as process:
        wait_for_output(process)
        began = time.monotonic()
        process.send_signal(signal.Signals[name])
        _, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, err) == (0, b"")
        assert time.monotonic() - began < 10
    wait_until_gone(temporary)


def test_a_demo_that_is_killed_leaves_no_process_and_no_file(temporary: Path) -> None:
    with demo(temporary) as process:
        wait_for_output(process)
        assert len(processes_below(temporary)) >= 3
        process.kill()
        process.wait(SECONDS)
    wait_until_gone(temporary)


def test_plain_output_says_what_is_real_and_what_comes_next(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path, min_users=10)
    _, out, _ = finished(temporary, "--feed", EDGE, "--format", "jsonl", "--speedup", 0, "--config", config)
    text = out.decode("ascii")
    for words in ("mock broker", "edge.jsonl", "suppressed: fewer than 10 buses", " +- ", " spent", "next"):
        assert words in text


def test_a_recording_without_a_configuration_is_tracked_until_its_days_are_settled(
    tmp_path: Path, temporary: Path
) -> None:
    code, out, err = finished(temporary, "--feed", EDGE, "--format", "jsonl", "--speedup", 0, cwd=tmp_path)
    assert (code, err) == (0, b"")
    lines = out.decode("ascii").splitlines()
    estimates = [line for line in lines if " +- " in line and "km/h" in line.split()]
    assert any(line.endswith("km/h") for line in estimates)
    assert any(line.endswith("predicted") for line in estimates)
    budgets = [line for line in lines if line.startswith("budget of ")]
    assert budgets
    assert all(0 < float(line.split()[3]) <= 5 and line.endswith(" of 5 spent") for line in budgets)
    assert any(line.startswith("-- 2024-10-27 is settled") for line in lines)
    (command,) = [line.strip() for line in lines if " batch " in line]
    done = run_as_printed(f"{command} --json", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    assert any(record["status"] == "released" for record in printed)


def run_as_printed(command: str, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=False, timeout=SECONDS)


BUSES, READINGS, HOURS = 20, 6, 2


def steady_buses(path: Path) -> Path:
    """A recording of 20 buses in one hexagon, all at 30 km/h, with 6 readings in each of two hours."""
    with path.open("w") as file:
        for minute in range(0, 60 * HOURS, 60 // READINGS):
            for bus in range(BUSES):
                at = f"2026-03-02T{8 + minute // 60:02}:{minute % 60:02}:{bus:02}Z"
                reading = {
                    "vehicle": f"B{bus:02}",
                    "time": at,
                    "lat": 60.17,
                    "lon": 24.94,
                    "speed": 30.0,
                    "unit": "km/h",
                }
                file.write(json.dumps(reading | {"arrival": at}) + "\n")
    return path


def hybrid_config(tmp_path: Path) -> Path:
    """Hardly any noise of either kind, so the blend of equal speeds is that speed."""
    privacy = {"epsilon": 1e6, "local_epsilon": 1e6, "daily_limit": 1e9, "acknowledge_weak_privacy": True}
    policy = {"name": "blend", "hours": [0, 24], "privacy": privacy, "estimator": {"name": "pwh"}}
    return configured(tmp_path, {"policy": policy})


def test_a_hybrid_policy_blends_readings_with_the_reports_of_devices_and_the_demo_ends(
    tmp_path: Path, temporary: Path
) -> None:
    given = ("--format", "jsonl", "--config", hybrid_config(tmp_path), "--share", 0.4, "--speedup", 0)
    code, out, err = finished(temporary, "--feed", steady_buses(tmp_path / "steady.jsonl"), *given)
    assert (code, err) == (0, b"")
    lines = out.decode("ascii").splitlines()
    means = [line for line in lines if " km/h  " in line]
    weight = 8**2 / (8**2 + 12)  # T^2 / (T^2 + L), since both epsilons are equal
    groups = f"8 trust (weight {weight:.2f}), 12 devices ({1 - weight:.2f})"
    assert [line.split("  ", 2)[2].strip() for line in means] == [f"30.0 +- 0.0 km/h  {groups}"] * HOURS
    assert f"readings {8 * READINGS * HOURS}: {8 * READINGS * HOURS} counted" in lines, "no reading of the others"
    assert f"reports of devices {12 * HOURS}: {12 * HOURS} counted" in lines
    assert any(line.startswith("trust ") and "8 of 20 buses, a share of 40%," in line for line in lines)
    (command,) = [line.strip() for line in lines if " batch " in line]
    assert "init --yes" in command, "a policy without reports: batch has none of them"


@pytest.mark.parametrize(("share", "users"), [(0, {"central": 0, "local": BUSES}), (1, {"central": BUSES, "local": 0})])
def test_everybody_may_trust_the_operator_or_nobody(
    share: int, users: Mapping[str, int], tmp_path: Path, temporary: Path
) -> None:
    given = ("--format", "jsonl", "--config", hybrid_config(tmp_path), "--share", share, "--speedup", 0, "--json")
    code, out, err = finished(temporary, "--feed", steady_buses(tmp_path / "steady.jsonl"), *given)
    assert (code, err) == (0, b"")
    assert [record["users"] for record in releases(out)] == [users] * HOURS


def test_the_hybrid_city_releases_both_groups_as_in_the_contract(temporary: Path) -> None:
    with demo(temporary, "--hybrid", "--share", 0.2, "--speedup", 3600, "--json") as process:
        assert process.stdout is not None
        out = b""
        while b'"status":"released"' not in out:
            line = process.stdout.readline()
            assert line, "it ended before anything was released"
            out += line
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        rest, err = process.stdout.read(), process.stderr.read()
        assert (process.wait(SECONDS), err) == (0, b"")
    found = [record for record in releases(out + rest) if record["status"] == "released"]
    for release in found:
        jsonschema.validate(release, SCHEMA)
        assert 0 < release["weight"] < 1 or 0 in release["users"].values()
    groups = [sum(release["users"][group] for release in found) for group in ("central", "local")]
    assert 0.05 < groups[0] / sum(groups) < 0.5
    wait_until_gone(temporary)


def test_devices_without_a_policy_that_takes_their_reports_are_one_clear_line(tmp_path: Path, temporary: Path) -> None:
    code, out, err = finished(temporary, "--hybrid", "--config", edge_config(tmp_path))
    assert (code, out, err.count(b"\n")) == (1, b"", 1)
    assert b"takes no reports: its estimator is baseline; choose a hybrid one" in err


def test_a_policy_that_releases_nothing_of_the_past_is_one_clear_line(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "cells.txt").write_text('source = "public"\n871126d33ffffff\n')
    privacy = {"relation": "add_remove", "min_users": None, "max_hats_per_day": 2}
    estimator = {"name": "capped_ratio", "array_length": 2}
    policy = {"name": "hidden", "hours": [7, 10], "cells": "cells.txt", "estimator": estimator}
    table = merged(merged(DEFAULTS, {"policy": policy}), {"policy": {"privacy": privacy}})
    config = tmp_path / "hatcast.toml"
    config.write_text(toml(table))
    code, out, err = finished(temporary, "--config", config)
    assert (code, out, err.count(b"\n")) == (1, b"", 1)
    assert b"release recordings with `hatcast batch --ledger`" in err


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("nowhere.csv", None, "is missing"),
        ("edge.csv", EDGE.read_bytes(), "first line"),
        ("cut.csv.gz", (DATA / "capmetro" / "2017-03-21.csv.gz").read_bytes()[:200_000], "is cut off"),
    ],
)
def test_a_bad_recording_is_one_clear_line(
    name: str, content: bytes | None, says: str, tmp_path: Path, temporary: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    code, out, err = finished(temporary, "--feed", path, "--format", "capmetro")
    assert (code, out) == (1, b"")
    assert says in err.decode()
    assert err.decode().count("\n") == 1


def test_a_gap_in_the_log_ends_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    with Services(TOPIC_NAMES) as services:
        addresses = services.wait()
        with redis.Redis.from_url(addresses.redis) as client:
            client.hset(PartitionKeys("demo", 0).state, "offset", "0")
        fill_beyond_what_the_mock_keeps(addresses.kafka)
        with pytest.raises(HatcastError, match="deleted before they were folded"):
            run_demo(services, DemoOptions(), Lines())
    assert "Traceback" not in capsys.readouterr().out


def fill_beyond_what_the_mock_keeps(kafka: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "batch.num.messages": 1})
    for _ in range(7):
        producer.produce(TOPICS.telemetry, bytes(900_000), partition=0)
    assert producer.flush(30) == 0


def test_two_sets_of_services_run_side_by_side_with_four_partitions_a_topic() -> None:
    with Services(("one",)) as first, Services(("one",)) as second:
        mine, other = first.wait(), second.wait()
        assert (mine.kafka, mine.redis) != (other.kafka, other.redis)
        topics = Producer({"bootstrap.servers": mine.kafka}).list_topics(timeout=10).topics
        assert len(topics["one"].partitions) == PARTITIONS
    assert not first.folder.exists()
