"""The door of a live bridge, and what its source is told."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.sources.connection import AckTracker
from hatcast.agents.sources.filter import VALUE_BYTES_MAX, Filter
from hatcast.stream.readings.formats import FORMATS, jsonl
from hatcast.stream.readings.vehicles import PARTITIONERS, by_murmur2
from hatcast.stream.replay.heartbeats import Router

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
