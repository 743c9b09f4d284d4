"""A source that is lost and found, and a bridge's ticks."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from hatcast.agents.monitoring.declarations import BRIDGE_LAST_READING, Gauge
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.sources import connection as link_module
from hatcast.agents.sources import live
from hatcast.agents.sources.connection import SourceConnection
from hatcast.agents.sources.endpoint import SourceLost, SourceRejection
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.vehicles import by_murmur2
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
