"""The demo as it is typed. Its services are embedded, so these tests run anywhere."""

import json
import select
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Producer

from hatcast.agents.config.settings import load_settings
from hatcast.agents.demo.defaults import TOPICS
from hatcast.agents.demo.embedded import PARTITIONS, Services
from hatcast.agents.demo.rendering import Lines
from hatcast.agents.demo.run import run_demo
from hatcast.agents.demo.state import DemoOptions
from hatcast.agents.kafka import grants
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.stream.errors import HatcastError
from tests.integration.demonstrating import (
    EDGE,
    OF_RELEASE,
    SECONDS,
    batch,
    configured,
    demo,
    edge_config,
    finished,
    processes_below,
    releases,
    wait_for_output,
    wait_until_gone,
)
from tests.integration.tables import DEFAULTS, merged, toml
from tests.services.data import DATA, golden, golden_recording

CONTINUAL = """
[policy]
name = "week"
upper_bound = 65.0
timezone = "Europe/Berlin"
h3_resolution = 7
hours = [0, 24]

[policy.continual]
kind = "laplace"
horizon_days = 7
max_slots = 14
max_cells = 20

[policy.privacy]
epsilon = 1.0
min_users = 1
"""


def test_the_city_gives_releases_as_in_the_contract(temporary: Path) -> None:
    with demo(temporary, "--speedup", 600, "--json") as process:
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
        OF_RELEASE.validate(release)
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


def test_a_recording_under_a_continual_policy_labels_its_means_and_ends_by_itself(
    tmp_path: Path, temporary: Path
) -> None:
    config = tmp_path / "hatcast.toml"
    config.write_text(CONTINUAL)
    code, out, err = finished(temporary, "--feed", EDGE, "--format", "jsonl", "--config", config, "--speedup", 0)
    means = [line for line in out.splitlines() if b"  871126" in line]
    assert (code, err) == (0, b"")
    assert means
    assert [line for line in means if b" km/h  " not in line or not line.endswith(b"  mean since 2024-10-21")] == []
    assert f"{len(means)} means in ".encode() in out


def test_with_hardly_any_noise_the_means_are_those_of_the_batch(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path, epsilon=1e6, daily_limit=1e9, acknowledge_weak_privacy=True)
    given = ("--format", "jsonl", "--config", str(config))
    code, out, _ = finished(temporary, "--feed", EDGE, *given, "--json", "--speedup", 0)
    assert code == 0
    found = {f"{each['cell']}/{each['date']}/{each['slot']}": each["mean"] for each in releases(out)}
    expected = {hat: total / count / 1000 for hat, (_, count, total, _) in batch(EDGE, *given).items()}
    assert found.keys() == expected.keys()
    assert all(abs(found[hat] - mean) <= 0.002 for hat, mean in expected.items())


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


def on_the_map(url: str) -> list[dict[str, Any]]:
    """The releases of the map's latest hour."""
    with urllib.request.urlopen(f"{url}api/v1/latest", timeout=30) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["releases"]
    return found


def test_the_map_stays_after_a_recording_if_asked_for(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path)
    given = ("--feed", EDGE, "--config", config, "--speedup", 0, "--keep", "--json", "--port", 0)
    with demo(temporary, *given) as process:
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], SECONDS)[0], "it said nothing"
        told = process.stderr.readline().decode()
        url = next(word for word in told.split() if word.startswith("http://"))
        deadline = time.monotonic() + SECONDS
        while not on_the_map(url):
            assert time.monotonic() < deadline, "the map shows no release"
            time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert len(releases(out)) == len(golden("edge")["hats"])


@pytest.mark.parametrize("arguments", [("--keep",), ("--format", "jsonl"), ("--share", 0.1)])
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
        process.send_signal(signal.Signals[name])
        _, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, err) == (0, b"")
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
    for words in ("mock broker", "edge.jsonl", "suppressed  fewer than 10 buses", " to ", " spent", "next"):
        assert words in text


def test_a_recording_without_a_configuration_is_tracked_until_its_days_are_settled(
    tmp_path: Path, temporary: Path
) -> None:
    code, out, err = finished(temporary, "--feed", EDGE, "--format", "jsonl", "--speedup", 0, cwd=tmp_path)
    assert (code, err) == (0, b"")
    lines = out.decode("ascii").splitlines()
    estimates = [line for line in lines if " to " in line and "km/h" in line.split()]
    assert any(line.endswith("live") for line in estimates)
    assert any(line.endswith("predicted") for line in estimates)
    budgets = [line for line in lines if line.startswith("budget of ")]
    assert budgets
    assert all(0 < float(line.split()[3]) <= 5 and line.endswith(" of 5 spent") for line in budgets)
    assert any(line.startswith("-- 2024-10-27 is settled") for line in lines)
    (command,) = [line.strip() for line in lines if " batch " in line]
    done = run_as_printed(f"{command} --json", tmp_path)
    assert done.returncode == 0
    assert all(line.startswith(b"hint: ") for line in done.stderr.splitlines())
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    assert any(record["status"] == "released" for record in printed)
    (of_map,) = [line.strip() for line in lines if " map " in line and " -o " in line]
    assert run_as_printed(of_map, tmp_path).returncode == 0
    assert (tmp_path / "demo.html").is_file()


def run_as_printed(command: str, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=False, timeout=SECONDS)


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
    with Services(TOPICS.names) as services:
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


def test_rights_are_not_asked_for_where_no_controller_would_ever_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "hatcast.toml"
    with Services(["hats.means"]) as services:
        changes = {"kafka": {"bootstrap_servers": services.wait().kafka}, "policy": {"name": "city"}}
        config.write_text(toml(merged(DEFAULTS, changes)))
        monkeypatch.setattr(grants, "_missing", lambda *_: pytest.fail("a question that waits for its timeout"))
        grants.check_permissions(load_settings(config, {}), grants.Role.DISPLAY)
