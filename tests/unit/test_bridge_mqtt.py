"""What waits in the MQTT bridge, and the name of its session."""

import pytest
from aiomqtt import Message

from hatcast.agents.sources import mqtt
from hatcast.agents.sources.mqtt import Subscription, _ReceiveQueue


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
