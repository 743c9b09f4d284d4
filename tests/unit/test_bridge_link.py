"""A source that is lost and found, and a bridge's ticks.
The door of a live bridge, and what its source is told.
What waits in the MQTT bridge, and the name of its session.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from aiomqtt import Message
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hatcast.agents.monitoring.declarations import BRIDGE_LAST_READING, Gauge
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.sources import connection as link_module
from hatcast.agents.sources import live, mqtt
from hatcast.agents.sources.connection import AckTracker, SourceConnection
from hatcast.agents.sources.endpoint import SourceLost, SourceRejection
from hatcast.agents.sources.filter import VALUE_BYTES_MAX, Filter
from hatcast.agents.sources.mqtt import Subscription, _ReceiveQueue
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FORMATS, jsonl
from hatcast.stream.readings.vehicles import PARTITIONERS, by_murmur2
from hatcast.stream.replay.heartbeats import Router, TelemetryMessage

Step = Callable[[SourceConnection, "Scripted"], None]


class Scripted:
    """A source that does one thing after another, each time it is served."""

    name = "scripted"
    where = "nowhere"

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)

    async def serve(self, connection: SourceConnection) -> None:
        if self._steps:
            self._steps.pop(0)(connection, self)
        else:
            connection.stopping.set()


def fails(error: SourceLost, *, after_up: bool = False) -> Step:
    def step(connection: SourceConnection, source: Scripted) -> None:
        if after_up:
            connection.mark_connected(source)
        raise error

    return step


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the connection waited before each try; it does not wait here."""
    waited: list[float] = []

    async def pause(seconds: float, stopping: asyncio.Event) -> bool:
        waited.append(seconds)
        return not stopping.is_set()

    monkeypatch.setattr(link_module, "pause", pause)
    return waited


def keep(*steps: Step) -> SourceConnection:
    unused: Any = None  # neither door nor producer: no message comes

    async def run() -> SourceConnection:
        connection = SourceConnection(unused, unused, asyncio.Event())
        await connection.run(Scripted(*steps))
        return connection

    return asyncio.run(run())


def test_a_source_that_stays_away_is_dialled_less_and_less_often_and_that_is_said_once(waits: list[float]) -> None:
    with capture_logs() as logs:
        connection = keep(*[fails(SourceLost("connection refused"))] * 20, fails(SourceLost("no answer in time")))
    assert connection.losses == 21
    assert waits[0] == 0.0
    assert all(before <= after * 1.25 for before, after in pairwise(waits[1:22]))
    assert 0.1 <= waits[1] <= 0.125
    assert waits[21] >= 5.0
    assert [line["reason"] for line in logs if "reason" in line] == ["connection refused", "no answer in time"]


def test_bridges_that_lost_a_source_together_do_not_come_back_together(waits: list[float]) -> None:
    keep(*[fails(SourceLost("connection refused"))] * 100)
    # 94 of 26 waits each: that all are alike has a chance of 26^-93.
    assert len(set(waits[7:101])) > 1


def test_a_bridge_that_never_gets_a_reading_is_silent_since_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Gauge] = []
    monkeypatch.setattr(METERS, "set_to_current_time", told.append)
    keep()
    assert told == [BRIDGE_LAST_READING]


def test_a_source_that_lets_us_in_and_throws_us_out_at_once_is_not_hammered(waits: list[float]) -> None:
    keep(*[fails(SourceLost("the connection was closed"), after_up=True)] * 10)
    assert waits[10] >= 5.0


def test_a_connection_that_has_lasted_is_made_again_at_once(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(link_module, "monotonic_s", lambda: now[0])

    def lasts(connection: SourceConnection, source: Scripted) -> None:
        connection.mark_connected(source)
        now[0] += 60.0
        raise SourceLost("the connection was closed")

    keep(*[fails(SourceLost("connection refused"))] * 10, lasts)
    assert waits[10] >= 5.0
    assert waits[11] <= 0.125


def test_a_source_may_ask_for_a_longer_rest(waits: list[float]) -> None:
    keep(fails(SourceLost("status 429", 120.0)))
    assert 120.0 <= waits[1] <= 150.0


def test_a_source_that_refuses_us_from_the_start_ends_the_bridge_and_later_it_is_tried_again(
    waits: list[float],
) -> None:
    with pytest.raises(HatcastError, match=r"scripted at nowhere: wrong password"):
        keep(fails(SourceLost("connection refused")), fails(SourceRejection("wrong password")))
    connection = keep(fails(SourceLost("gone"), after_up=True), *[fails(SourceRejection("wrong password"))] * 3)
    assert connection.losses == 4
    assert not connection.is_connected


class LiveProducer:
    """What ticks are handed to; `waiting_s` as if Kafka had been silent for so long."""

    def __init__(self, stopping: asyncio.Event, rounds: int) -> None:
        self.sent: list[TelemetryMessage] = []
        self.waiting_s = 0.0
        self._left = rounds
        self._stopping = stopping

    def silence_s(self) -> float:
        self._left -= 1
        if not self._left:
            self._stopping.set()
        return self.waiting_s

    def send_heartbeat(self, message: TelemetryMessage) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("silent_s", [0.0, 60.0])
def test_every_partition_is_ticked_each_ten_seconds_of_the_bridges_clock_unless_kafka_is_away(
    silent_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_795_000_003_700]

    async def pause(seconds: float, stopping: asyncio.Event) -> bool:
        now[0] += round(seconds * 1000)
        return not stopping.is_set()

    monkeypatch.setattr(live, "pause", pause)
    monkeypatch.setattr(live, "now_ms", lambda: now[0])

    async def run() -> list[TelemetryMessage]:
        stopping = asyncio.Event()
        producer: Any = LiveProducer(stopping, 5)
        producer.waiting_s = silent_s
        await live._send_heartbeats(producer, Router(8, by_murmur2), stopping)
        sent: list[TelemetryMessage] = producer.sent
        return sent

    sent = asyncio.run(run())
    if silent_s:
        assert sent == []
    else:
        assert all((message.key, message.value) == (None, b"") for message in sent)
        rounds = Counter(message.timestamp_ms for message in sent)
        assert set(rounds.values()) == {8}
        assert sorted(rounds) == [1_795_000_010_000 + 10_000 * number for number in range(5)]
        assert {message.partition for message in sent} == set(range(8))


NOW = 1_795_000_000_000
AHEAD = 120_000


def door(form: str = "jsonl", clock: Callable[[], int] = lambda: NOW, *, polled: bool = False) -> Filter:
    return Filter(FORMATS[form], Router(8, PARTITIONERS["murmur2"]), AHEAD, polled=polled, clock=clock)


def record(vehicle: str = "bus", time: object = NOW, **more: object) -> bytes:
    return json.dumps({"vehicle": vehicle, "time": time, "lat": 21.2, "lon": 72.8, "speed": 20.5} | more).encode()


@pytest.mark.parametrize("form", FORMATS)
@given(body=st.binary(max_size=400), topic=st.text(max_size=40))
def test_whatever_a_source_sends_is_a_reading_or_counted_and_never_an_empty_record(
    form: str, body: bytes, topic: str
) -> None:
    there = door(form)
    messages = list(there.messages(body, topic))
    assert len(messages) == there.readings
    assert there.readings + there.undecodable == len(FORMATS[form].split(body, topic))
    assert all(message.value and message.key for message in messages)


@given(vehicle=st.text(max_size=140), speed=st.floats(allow_nan=False, allow_infinity=False))
def test_a_reading_leaves_as_the_canonical_record_under_its_vehicle(vehicle: str, speed: float) -> None:
    body = record(vehicle, speed=speed)
    there = door()
    messages = list(there.messages(body))
    address = Router(8, by_murmur2).route(vehicle)
    if address is None:  # nobody, or too long a name: rule 3 would end it
        assert (messages, there.undecodable) == ([], 1)
    else:
        (message,) = messages
        assert (message.key, message.partition) == address
        assert message.timestamp_ms == NOW
        assert jsonl.decode(message.value) == jsonl.decode(body)


def test_several_readings_of_one_message_are_one_record_each() -> None:
    bodies = [record(f"bus-{number}") for number in range(5)]
    messages = list(door().messages(b"[" + b",".join(bodies) + b"]"))
    assert [json.loads(message.value)["vehicle"] for message in messages] == [f"bus-{number}" for number in range(5)]


def test_a_clock_that_is_set_back_while_a_message_is_handed_on_stops_the_rest_of_it() -> None:
    times = iter([NOW, NOW, NOW - AHEAD, NOW - AHEAD - 1])
    there = door(clock=lambda: next(times))
    assert len(list(there.messages(b"[%b,%b,%b]" % (record("a"), record("b"), record("c"))))) == 2
    assert there.arrived_in_future == 1


def test_a_reading_that_a_poll_repeats_is_sent_once_and_again_when_its_time_moves() -> None:
    there = door(polled=True)
    sent = [len(list(there.messages(record("a", time)))) for time in (1, 1, 2, 1, 1)]
    assert (sent, there.repeated) == ([1, 0, 1, 1, 0], 2)
    assert len(list(there.messages(record("b", 1)))) == 1


def test_a_source_that_is_not_polled_may_say_the_same_twice() -> None:
    there = door()
    assert [len(list(there.messages(record()))) for _ in range(2)] == [1, 1]


def test_a_record_with_a_huge_field_is_garbage() -> None:
    there = door()
    assert list(there.messages(record(time="9" * VALUE_BYTES_MAX))) == []
    assert there.undecodable == 1


def test_garbage_is_logged_once_and_without_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    there = door()
    for _ in range(1_000):
        assert list(there.messages(b"{secret garbage")) == []
    said = capsys.readouterr()
    assert (said.out + said.err).count("undecodable") == 1
    assert "secret" not in said.out + said.err


@given(st.data())
def test_a_source_is_told_of_messages_in_their_order_and_only_when_all_their_readings_are_confirmed(
    data: st.DataObject,
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    acks, told = AckTracker(), list[int]()
    open_readings = []
    for number, size in enumerate(sizes):
        pending = acks.add(partial(told.append, number))
        pending.unconfirmed += size
        open_readings += [number] * (size + 1)  # and one for the handing over
    pending_messages = list(acks._pending)
    for number in data.draw(st.permutations(open_readings)):
        pending_messages[number].confirm()
        done = [each.unconfirmed == 0 for each in pending_messages]
        whole = done.index(False) if False in done else len(done)
        assert told == list(range(whole))
    assert not len(acks)


def test_of_a_connection_that_is_gone_nothing_is_told() -> None:
    acks, told = AckTracker(), list[int]()
    first, second = (acks.add(partial(told.append, number)) for number in (1, 2))
    second.confirm()
    acks.clear()
    first.confirm()
    assert told == []


def test_a_message_that_was_not_handed_over_whole_is_not_told_and_holds_up_nothing() -> None:
    acks, told = AckTracker(), list[int]()
    first, second = (acks.add(partial(told.append, number)) for number in (1, 2))
    second.unconfirmed += 1
    acks.discard(second)
    first.confirm()
    assert (told, len(acks)) == ([1], 0)


def message(qos: int, size: int = 10) -> Message:
    return Message("bus/1", bytes(size), qos, retain=False, mid=1, properties=None)


async def test_of_a_source_that_sends_again_nothing_is_dropped_whatever_the_buffer() -> None:
    queue = _ReceiveQueue(5)
    for _ in range(100):
        queue.put_nowait(message(1))
    assert (queue.qsize(), queue.dropped, queue.overrun) == (100, 0, False)


async def test_of_a_source_that_does_not_what_finds_no_room_is_counted_and_room_comes_back() -> None:
    queue = _ReceiveQueue(5)
    for _ in range(8):
        queue.put_nowait(message(0))
    assert (queue.qsize(), queue.dropped) == (5, 3)
    queue.get_nowait()
    queue.put_nowait(message(0))
    assert (queue.qsize(), queue.dropped, queue.overrun) == (5, 3, False)


async def test_bytes_are_bounded_too_and_a_connection_that_passes_the_bound_is_to_be_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqtt, "_QUEUE_BYTES_MAX", 1_000)

    queue = _ReceiveQueue(1_000_000)
    for _ in range(3):
        queue.put_nowait(message(1, 400))
    assert not queue.overrun
    queue.put_nowait(message(1, 400))
    queue.put_nowait(message(0, 400))
    assert (queue.qsize(), queue.dropped, queue.overrun) == (3, 1, True)
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(message(0, 400))
    assert queue.qsize() == 1


def test_a_bridge_that_is_started_again_finds_its_session_and_another_bridge_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = Subscription(["b/#", "a/#"]).identity("telemetry")
    assert name == Subscription(["a/#", "b/#"]).identity("telemetry")
    assert name != Subscription(["a/#"]).identity("telemetry") != Subscription(["a/#"]).identity("other")
    assert len(name) <= 23  # what every broker of 3.1.1 takes
    assert Subscription(["a/#"], client_id="mine").identity("telemetry") == "mine"
    monkeypatch.setattr("socket.gethostname", lambda: "another-machine")
    assert name != Subscription(["b/#", "a/#"]).identity("telemetry")
