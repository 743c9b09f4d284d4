"""What a replay sends: order, partitions, keys, ticks, and that the number of partitions changes no result."""

import json
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FORMATS, Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import Recording
from hatcast.stream.readings.vehicles import PARTITIONERS
from hatcast.stream.replay.heartbeats import HEARTBEAT_MS, Replay, Router, TelemetryMessage, WholeDays
from tests.replayed import NOW, fold, golden_policy, policy_of
from tests.services import data

HOUR = 3_600_000
BASE = 480_000 * HOUR  # midnight of a day of 2024


def recorded(vehicle: str, time: int, arrival: int | None = None, speed: float = 20.0) -> tuple[int, Recorded]:
    arrival = time if arrival is None else arrival
    reading = Reading(vehicle, time, 60.1, 24.9, speed)
    return arrival, Recorded(b"raw of " + vehicle.encode(), reading, arrival)


def broken(raw: bytes, arrival: int) -> tuple[int, Recorded]:
    return arrival, Recorded(raw, None, arrival)


def plan_of(policy: Policy, partitions: int = 8, now: int = NOW) -> Replay:
    return Replay(policy, Calendar(policy), Router(partitions, PARTITIONERS["murmur2"]), now)


def sent(plan: Replay, records: Iterable[tuple[int, Recorded]], *, end: bool = True) -> list[TelemetryMessage]:
    return [*plan.messages(records), *(plan.end() if end else ())]


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize("name", ["edge", "capmetro_2017-03-21"])
def test_a_replayed_recording_folds_to_the_golden_result(
    name: str, partitions: int, recording_of: Callable[[str], Recording]
) -> None:
    golden = data.golden(name)
    policy = golden_policy(golden)
    plan = plan_of(policy, partitions)
    outcomes, hats = fold(policy, partitions, sent(plan, recording_of(name)))
    assert (outcomes | {"arrived_in_future": plan.arrived_in_future}) == {"arrived_in_future": 0} | golden["outcomes"]
    assert hats == golden["hats"]


@pytest.fixture
def recording_of() -> Callable[[str], Recording]:
    from hatcast.agents.recordings.files import open_recording

    def load(name: str) -> Recording:
        path, feed = {
            "edge": ("golden/edge.jsonl", "jsonl"),
            "capmetro_2017-03-21": ("capmetro/2017-03-21.csv.gz", "capmetro"),
        }[name]
        with open_recording([data.recording(path)], FORMATS[feed]) as recording:
            return recording

    return load


def test_a_tick_goes_to_every_partition_when_ten_seconds_have_passed() -> None:
    records = [recorded("a", BASE + 1_000), recorded("a", BASE + 9_999), recorded("a", BASE + 20_001)]
    ticks = [m for m in sent(plan_of(policy_of(), 2), records, end=False) if m.key is None]
    assert [(m.partition, m.timestamp_ms - BASE, m.value) for m in ticks] == [
        (0, 0, b""),
        (1, 0, b""),
        (0, 20_000, b""),
        (1, 20_000, b""),
    ]


def test_a_long_silence_is_ended_by_one_tick() -> None:
    records = [recorded("a", BASE), recorded("a", BASE + 5 * HOUR + 3)]
    ticks = [m for m in sent(plan_of(policy_of(), 1), records, end=False) if m.key is None]
    assert [m.timestamp_ms for m in ticks] == [BASE, BASE + 5 * HOUR]


def test_the_last_ticks_close_the_last_slot() -> None:
    plan = plan_of(policy_of(lateness="5m"), 3)
    messages = sent(plan, [recorded("a", BASE + 1), recorded("b", BASE + HOUR - 1)])
    assert [(m.partition, m.timestamp_ms, m.key) for m in messages[-3:]] == [
        (p, BASE + HOUR + 300_000, None) for p in range(3)
    ]


def test_whole_days_are_closed_and_a_day_that_is_not_over_is_not() -> None:
    policy = policy_of()
    calendar = Calendar(policy)
    records = [recorded("a", BASE + 9 * HOUR + 5)]
    date = calendar.slot_at(BASE + 9 * HOUR).date
    closes = calendar.day_end(date) + policy.lateness_ms
    for now, expected in ((NOW, closes), (closes - policy.max_ahead_ms - 1, BASE + 10 * HOUR + policy.lateness_ms)):
        plan = WholeDays(policy, calendar, Router(2, PARTITIONERS["murmur2"]), now)
        assert [message.timestamp_ms for message in sent(plan, records)[-2:]] == [expected] * 2


def test_the_last_ticks_are_not_before_the_last_arrival() -> None:
    late = BASE + 9 * HOUR
    messages = sent(plan_of(policy_of()), [recorded("a", BASE + 1), recorded("b", BASE + 2, arrival=late)])
    assert messages[-1].timestamp_ms == late


def test_a_reading_outside_the_hours_or_from_the_future_keeps_no_slot_open() -> None:
    policy = policy_of(hours=[0, (BASE // HOUR) % 24 + 1])
    records = [recorded("a", BASE + 1), recorded("b", BASE + HOUR - 5, arrival=BASE + 10), recorded("c", BASE + HOUR)]
    assert plan_end(policy, records) == BASE + HOUR + policy.lateness_ms


def plan_end(policy: Policy, records: Iterable[tuple[int, Recorded]]) -> int | None:
    plan = plan_of(policy)
    sent(plan, records)
    return plan.end_ms()


def test_nothing_sent_needs_no_end() -> None:
    assert sent(plan_of(policy_of()), []) == []
    assert sent(plan_of(policy_of()), [recorded("a", BASE, arrival=NOW + HOUR)]) == []


def test_a_record_from_the_future_is_counted_and_not_sent() -> None:
    policy = policy_of(max_ahead="2m")
    plan = plan_of(policy, now=BASE)
    messages = sent(plan, [recorded("a", BASE + 120_000), recorded("a", BASE + 120_001)], end=False)
    assert plan.arrived_in_future == 1
    assert [m.timestamp_ms for m in messages if m.key] == [BASE + 120_000]


def test_a_record_that_arrived_before_1970_is_counted_and_not_sent() -> None:
    plan = plan_of(policy_of())
    assert [m.timestamp_ms for m in sent(plan, [recorded("a", -1), recorded("a", 0)], end=False)] == [1]
    assert plan.arrived_before_1970 == 1


def test_the_key_is_the_canonical_id_and_chooses_the_partition() -> None:
    policy = policy_of()
    for name, partitioner in PARTITIONERS.items():
        plan = Replay(policy, Calendar(policy), Router(8, partitioner), NOW)
        message = next(m for m in plan.messages([recorded(" bu\u0308s ", BASE)]) if m.key is not None)
        assert message.key == "b\u00fcs".encode(), name
        assert message.partition == partitioner(message.key, 8)
        assert json.loads(message.value)["vehicle"] == " bu\u0308s "


@pytest.mark.parametrize(
    "record",
    [broken(b"\xff{not json", BASE), recorded("  ", BASE), recorded("x" * 129, BASE)],
    ids=["no JSON", "no vehicle", "a vehicle of 129 bytes"],
)
def test_what_cannot_be_decoded_is_sent_as_it_is_with_an_empty_key(record: tuple[int, Recorded]) -> None:
    plan = plan_of(policy_of())
    (message,) = [m for m in plan.messages([record]) if m.key is not None]
    assert (message.key, message.value) == (b"", record[1].raw)
    assert plan.undecodable == 1


vehicles = st.sampled_from([f"bus-{n}" for n in range(12)])
offsets = st.integers(0, 3 * HOUR)


@st.composite
def recordings(draw: st.DrawFn) -> list[tuple[int, Recorded]]:
    arrivals = sorted(draw(st.lists(offsets, min_size=1, max_size=60)))
    delays = draw(st.lists(st.integers(-200_000, 2 * HOUR), min_size=len(arrivals), max_size=len(arrivals)))
    return [
        recorded(draw(vehicles), BASE + arrival - delay, BASE + arrival, draw(st.sampled_from([0.0, 12.5, 80.0])))
        for arrival, delay in zip(arrivals, delays, strict=True)
    ]


@given(recordings(), st.integers(0, 4_000_000), st.integers(2, 9))
def test_the_number_of_partitions_changes_no_result_at_any_lateness(
    records: list[tuple[int, Recorded]], lateness: int, partitions: int
) -> None:
    policy = policy_of(lateness=f"{lateness}ms", max_ahead="2m")
    whole, parts = plan_of(policy, 1), plan_of(policy, partitions)
    assert fold(policy, partitions, sent(parts, records)) == fold(policy, 1, sent(whole, records))
    assert whole.end_ms() == parts.end_ms()


@given(recordings())
def test_timestamps_ascend_and_no_tick_is_ahead_of_the_next_arrival(records: list[tuple[int, Recorded]]) -> None:
    messages = sent(plan_of(policy_of(), 3), records, end=False)
    assert all(before.timestamp_ms <= after.timestamp_ms for before, after in pairwise(messages))
    assert all(m.timestamp_ms % HEARTBEAT_MS == 0 for m in messages if m.key is None)
    assert [(m.timestamp_ms, json.loads(m.value)["vehicle"]) for m in messages if m.key is not None] == [
        (arrival, each.reading.vehicle) for arrival, each in records if each.reading is not None
    ]


@given(recordings(), st.integers(0, 4_000_000))
def test_the_end_closes_every_slot_that_was_counted(records: list[tuple[int, Recorded]], lateness: int) -> None:
    policy = policy_of(lateness=f"{lateness}ms", max_ahead="2m")
    plan = plan_of(policy, 2)
    _, hats = fold(policy, 2, sent(plan, records, end=False))
    calendar = Calendar(policy)
    slots = [calendar.slot_named(*key.split("/")[1:]) for key in hats]
    end = plan.end_ms()
    assert end is not None
    assert all(slot is not None and end >= slot.end_ms + lateness for slot in slots)


def test_vehicles_that_are_left_out_are_not_sent_and_their_time_passes() -> None:
    """What a fleet of devices plays of a recording: both halves close the same slots, at the same times."""
    policy = policy_of()
    records = [
        recorded("a", BASE),
        broken(b"raw", BASE + 1),
        recorded(" b", BASE + HOUR),
        recorded("b", BASE + 2 * HOUR),
    ]
    router = Router(2, PARTITIONERS["murmur2"])
    whole = sent(Replay(policy, Calendar(policy), router, NOW), records)
    part = sent(Replay(policy, Calendar(policy), router, NOW, frozenset("b")), records)
    assert part == [message for message in whole if message.key != b"b"]
    assert {message.key for message in whole} - {message.key for message in part} == {b"b"}
