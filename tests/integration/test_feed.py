"""`hatcast feed` against a real Kafka and Redis: what arrives there, and what is refused.
The sender by itself: room, and records that a broker refuses.
"""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.clock import now_ms
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.replay import FlowControl, RecordedProducer, stored_offsets
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FORMATS, jsonl
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.replay.heartbeats import TelemetryMessage
from tests.exposed import figures
from tests.replayed import fold, golden_policy
from tests.services import KafkaServer, Received, RedisServer, data
from tests.services.fixtures import MakeTopic
from tests.services.kafka_server import PARTITIONS

HATCAST = [sys.executable, "-c", "from hatcast.agents.cli import main; main()"]
SOURCES = {
    "edge": ("golden/edge.jsonl", "jsonl"),
    "capmetro_2017-03-21": ("capmetro/2017-03-21.csv.gz", "capmetro"),
}
LINE = '{"vehicle": "a", "time": %d, "lat": 60.2, "lon": 24.9, "speed": 20.0}\n'


@dataclass(frozen=True)
class Feed:
    """The command, with a configuration of its own."""

    config: Path
    topic: str
    name: str

    def start(self, *arguments: object) -> "subprocess.Popen[str]":
        command = [*HATCAST, "feed", *map(str, arguments), "--config", str(self.config)]
        return subprocess.Popen(
            command, cwd=data.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        )

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def refusal(self, *arguments: object) -> str:
        """The one line with which it refuses."""
        code, out, err = self.run(*arguments)
        assert (code, out) == (1, ""), err
        assert err.count("\n") == 1, err
        return err


@pytest.fixture
def feed(
    kafka: KafkaServer, redis_server: RedisServer, make_topic: MakeTopic, unique_name: str, tmp_path: Path
) -> Iterator[Callable[..., Feed]]:
    """A function that makes a topic, unless `topic` is false, and a configuration for it."""

    def make(settings: dict[str, str] | None = None, *, topic: bool = True, **replaced: str) -> Feed:
        name = make_topic(config=settings) if topic else unique_name
        given = {"bootstrap": kafka.bootstrap_servers, "redis": redis_server.url, "format": "jsonl"} | replaced
        config = tmp_path / "hatcast.toml"
        config.write_text(
            f"""
            [kafka]
            bootstrap_servers = "{given["bootstrap"]}"
            [redis]
            url = "{given["redis"]}"
            [topics]
            telemetry = "{name}"
            telemetry_format = "{given["format"]}"
            telemetry_retention = "none"
            [policy]
            name = "{unique_name}"
            upper_bound = 65.0
            timezone = "Europe/Helsinki"
            hours = [0, 24]
            [policy.privacy]
            epsilon = 1.0
            max_hats_per_day = 26
            daily_limit = 105.0
            [policy.estimator]
            name = "baseline"
            """
        )
        return Feed(config, name, unique_name)

    yield make
    redis_server.delete(f"{{{unique_name}*")


def lines(path: Path, times: Sequence[int]) -> Path:
    path.write_text("".join(LINE % time_ms for time_ms in times))
    return path


def as_messages(received: Sequence[Received]) -> list[TelemetryMessage]:
    return [TelemetryMessage(each.partition, each.timestamp_ms, each.key, each.value or b"") for each in received]


@pytest.mark.parametrize("name", SOURCES)
def test_a_recording_arrives_as_it_was_and_folds_to_the_golden_result(
    name: str, feed: Callable[..., Feed], kafka: KafkaServer
) -> None:
    path, form = SOURCES[name]
    code, out, err = (to := feed()).run("replay", data.recording(path), "--format", form, "--speedup", 0, "--json")
    assert code == 0
    assert all("are far from the longitudes of Europe/Helsinki" in line for line in err.splitlines())
    summary = json.loads(out)
    received = kafka.read(to.topic)
    records = [each for each in received if each.key is not None]
    golden = data.golden(name)
    expected = golden["outcomes"].get("arrived_in_future", 0)
    assert summary["arrived_in_future"] == expected
    assert summary["records"] == len(records) == sum(golden["outcomes"].values()) - expected
    assert summary["ticks"] == len(received) - len(records) > 0
    for partition in range(PARTITIONS):
        times = [each.timestamp_ms for each in received if each.partition == partition]
        assert times == sorted(times)
    for each in records:
        reading = jsonl.decode(each.value or b"")
        assert each.key == (b"" if reading is None else reading.vehicle.strip().encode())
        assert each.partition == by_murmur2(each.key, PARTITIONS)
    assert arrivals_of(records) == arrivals_in(data.recording(path), form)
    outcomes, hats = fold(golden_policy(golden), PARTITIONS, as_messages(received))
    assert outcomes == {outcome: n for outcome, n in golden["outcomes"].items() if outcome != "arrived_in_future"}
    assert hats == golden["hats"]


def arrivals_of(records: Sequence[Received]) -> Counter[tuple[bytes | None, int]]:
    return Counter((each.key, each.timestamp_ms) for each in records)


def arrivals_in(path: Path, form: str) -> Counter[tuple[bytes, int]]:
    """What a recording holds of readings, by an own and simple way of reading it."""
    from hatcast.agents.recordings.files import open_recording

    with open_recording([path], FORMATS[form]) as recording:
        return Counter(
            (each.reading.vehicle.strip().encode() if each.reading is not None else b"", arrival)
            for arrival, each in recording
            if arrival < now_ms()
        )


def test_the_last_ticks_close_the_last_slot_unless_left_out(
    feed: Callable[..., Feed], kafka: KafkaServer, tmp_path: Path
) -> None:
    hour = 480_000 * 3_600_000
    path = lines(tmp_path / "one.jsonl", [hour + 5])
    to = feed()
    assert to.run("replay", path, "--format", "jsonl", "--speedup", 0, "--no-end")[0] == 0
    assert {each.timestamp_ms for each in kafka.read(to.topic) if each.key is None} == {hour}
    assert to.run("replay", path, "--format", "jsonl", "--speedup", 0)[0] == 0
    last = [each for each in kafka.read(to.topic) if each.timestamp_ms == hour + 3_600_000 + 300_000]
    assert [(each.partition, each.key, each.value) for each in last] == [(p, None, b"") for p in range(PARTITIONS)]


def test_a_replay_goes_at_the_pace_it_was_asked_for(
    feed: Callable[..., Feed], kafka: KafkaServer, tmp_path: Path
) -> None:
    hour = 480_000 * 3_600_000
    path = lines(tmp_path / "minute.jsonl", [hour + second * 1_000 for second in range(0, 61, 5)])
    code, out, _ = feed().run("replay", path, "--format", "jsonl", "--speedup", 30, "--json")
    assert code == 0
    assert 1.9 <= json.loads(out)["seconds"] < 30  # 2 on a machine that has the time, 60 at the recording's own pace


def test_an_interrupted_replay_finishes_what_it_sent_and_says_so(
    feed: Callable[..., Feed], kafka: KafkaServer, tmp_path: Path
) -> None:
    hour = 480_000 * 3_600_000
    path = lines(tmp_path / "slow.jsonl", [hour, hour + 1, hour + 3_600_000])
    to = feed()
    process = to.start("replay", path, "--format", "jsonl", "--json")
    deadline = time.monotonic() + 100
    while sum(each.key is not None for each in kafka.read(to.topic)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    summary = json.loads(out)
    assert (summary["finished"], summary["records"]) == (False, 2)
    assert len(kafka.read(to.topic)) == 2 + summary["ticks"]


def test_a_recording_that_was_sent_before_is_refused(feed: Callable[..., Feed], tmp_path: Path) -> None:
    to = feed()
    path = lines(tmp_path / "one.jsonl", [480_000 * 3_600_000])
    assert to.run("replay", path, "--format", "jsonl", "--speedup", 0)[0] == 0
    assert "records would all be late" in to.refusal("replay", path, "--format", "jsonl", "--speedup", 0)


def test_a_recording_older_than_the_stored_clocks_is_refused(
    feed: Callable[..., Feed], redis_server: RedisServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    to = feed()
    hour = 480_000 * 3_600_000
    path = lines(tmp_path / "one.jsonl", [hour])
    with closing(redis_server.client()) as redis:
        redis.hset(PartitionKeys(to.name, 3).state, "clock", hour + 3_600_000 + 300_000)
        refusal = to.refusal("replay", path, "--format", "jsonl", "--speedup", 0)
        assert "policy.name" in refusal
        assert kafka.read(to.topic) == []
        redis.hset(PartitionKeys(to.name, 3).state, "clock", hour + 3_600_000 + 299_999)
    assert to.run("replay", path, "--format", "jsonl", "--speedup", 0)[0] == 0


@pytest.mark.parametrize(
    ("topic", "settings", "says"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, {}, "LogAppendTime"),
        ({"retention.ms": "259200000"}, {}, "retention.ms"),
        (None, {"format": "itms"}, "topics.telemetry_format"),
        (None, {"bootstrap": "127.0.0.1:1"}, "127.0.0.1:1"),
        (None, {"redis": "redis://127.0.0.1:1/0"}, "127.0.0.1:1"),
    ],
    ids=["LogAppendTime", "retention", "format", "broker", "redis"],
)
def test_a_target_that_would_spoil_the_recording_is_refused_in_one_line(
    topic: dict[str, str] | None, settings: dict[str, str], says: str, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    path = lines(tmp_path / "one.jsonl", [480_000 * 3_600_000])
    assert says in feed(topic, **settings).refusal("replay", path, "--format", "jsonl", "--speedup", 0)


@pytest.mark.parametrize("what", ["missing", "truncated", "of another format"])
def test_a_file_that_is_no_such_recording_is_refused_in_one_line(
    what: str, feed: Callable[..., Feed], tmp_path: Path, kafka: KafkaServer
) -> None:
    path = tmp_path / "recording.csv.gz"
    if what == "truncated":
        packed = gzip.compress("".join(LINE % (480_000 * 3_600_000 + n * n) for n in range(1_000)).encode())
        path.write_bytes(packed[: len(packed) // 2])
    elif what == "of another format":
        path.write_text("no,such,columns\n1,2,3\n")
    to = feed()
    form = "jsonl" if what == "truncated" else "capmetro"
    assert str(path) in to.refusal("replay", path, "--format", form, "--speedup", 0)
    assert kafka.read(to.topic) == []


def test_a_record_that_kafka_does_not_take_ends_the_replay_with_a_refusal(
    feed: Callable[..., Feed], tmp_path: Path
) -> None:
    path = lines(tmp_path / "one.jsonl", [480_000 * 3_600_000])
    path.write_text(path.read_text() + os.urandom(700_000).hex() + "\n")
    assert "Kafka rejected" in feed({"max.message.bytes": "1000000"}).refusal(
        "replay", path, "--format", "jsonl", "--speedup", 0
    )


def test_a_synthetic_city_runs_for_the_time_it_was_given(feed: Callable[..., Feed], kafka: KafkaServer) -> None:
    to = feed()
    before = now_ms()
    code, out, err = to.run("synthetic", "--vehicles", 20, "--speedup", 600, "--for", 8, "--seed", 1, "--json")
    assert (code, json.loads(out)["finished"]) == (0, True), err
    received = kafka.read(to.topic)
    records = [each for each in received if each.key is not None]
    assert json.loads(out)["records"] == len(records) > 500
    assert 5 <= len({each.key for each in records}) <= 20  # a quarter of them at night, all in a weekday's rush hours
    assert min(each.timestamp_ms for each in received) >= before - 30 * 86_400_000
    assert all(jsonl.decode(each.value or b"") for each in records)
    ticks = Counter(each.timestamp_ms for each in received if each.key is None)
    assert sum(count == PARTITIONS for count in ticks.values()) >= len(ticks) - 1
    assert all(later - earlier == 10_000 for earlier, later in zip(sorted(ticks), sorted(ticks)[1:], strict=False))


def test_a_city_that_reaches_now_goes_on_at_real_pace(feed: Callable[..., Feed], kafka: KafkaServer) -> None:
    to = feed()
    before = now_ms()
    start = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(before // 1000 - 600))}+00:00"
    process = to.start("synthetic", "--vehicles", 20, "--speedup", 0, "--start", start, "--json")
    newest, ahead, deadline = 0, [], time.monotonic() + 60
    while newest < before + 3_000 and time.monotonic() < deadline:
        newest = max((each.timestamp_ms for each in kafka.read(to.topic)), default=0)
        ahead.append(newest - now_ms())
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert newest >= before + 3_000
    assert max(ahead) <= 0


def test_a_second_city_goes_on_where_the_topic_is(feed: Callable[..., Feed], kafka: KafkaServer) -> None:
    to = feed()
    for _ in range(2):
        assert to.run("synthetic", "--vehicles", 5, "--speedup", 600, "--for", 2)[0] == 0
    for partition in range(PARTITIONS):
        times = [each.timestamp_ms for each in kafka.read(to.topic) if each.partition == partition]
        assert times == sorted(times)


def test_wrong_usage_exits_with_two(feed: Callable[..., Feed]) -> None:
    to = feed(topic=False)
    for arguments in (["replay"], ["synthetic", "--centre", "north"], ["synthetic", "--start", "2999-01-01T00:00:00Z"]):
        assert to.run(*arguments)[0] == 2


def test_a_sender_stays_within_its_room_until_the_offsets_move(
    kafka: KafkaServer, redis_server: RedisServer, make_topic: MakeTopic, unique_name: str
) -> None:
    topic, stop = make_topic(partitions=2), threading.Event()
    messages = [TelemetryMessage(1, 1_000 + number, b"k", bytes(919)) for number in range(100)]
    with closing(redis_server.client()) as redis:
        room = FlowControl(stored_offsets(redis, unique_name, 2), [0, 0], limit_bytes=10_000)
        with RecordedProducer({"bootstrap.servers": kafka.bootstrap_servers}, topic, stop, room) as sender:
            thread = threading.Thread(target=sender.send_all, args=(messages, Pace(0, 0, stop)))
            thread.start()
            wait_for(lambda: sender.records == 10)
            redis.hset(PartitionKeys(unique_name, 1).state, "offset", 4)
            wait_for(lambda: sender.records == 14)
            time.sleep(0.3)
            assert sender.records == 14
            stop.set()
            thread.join(5)
            sender.finish()
    assert len(kafka.read(topic)) == 14
    redis_server.delete(f"{{{unique_name}*")


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_sender_says_so_when_the_broker_refuses_records(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, stop = make_topic(partitions=1, config={"max.message.bytes": "500"}), threading.Event()
    options: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
    before = acknowledged()
    with pytest.raises(HatcastError, match="Kafka rejected"), RecordedProducer(options, topic, stop) as sender:
        sender.send_all([TelemetryMessage(0, 1_000, b"k", os.urandom(2_000))], Pace(0, 0, stop))
        sender.finish()
    assert acknowledged() == before


def test_readings_that_the_broker_has_are_counted_and_ticks_are_not(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, stop = make_topic(partitions=1), threading.Event()
    messages = [
        TelemetryMessage(0, 1_000 + n, None if n % 10 == 9 else b"k", b"" if n % 10 == 9 else b"v") for n in range(100)
    ]
    before = acknowledged()
    with RecordedProducer({"bootstrap.servers": kafka.bootstrap_servers}, topic, stop) as sender:
        assert sender.send_all(messages, Pace(0, 0, stop))
        sender.finish()
    assert acknowledged() - before == 90


def acknowledged() -> float:
    """What this process has counted so far."""
    return figures(METERS.render()[0].decode(), "hatcast_bridge_readings_total").get((), 0.0)
