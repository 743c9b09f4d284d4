"""Counts over a sample of a topic: what they count, and that they hold no reading."""

import json

from hatcast.stream.fold.topic_sample import TopicSample, best_partitioner, share
from hatcast.stream.readings.formats import FORMATS, Format
from hatcast.stream.readings.vehicles import by_crc32, by_murmur2
from tests.folding import NOON
from tests.replayed import policy_of

HOUR_MS = 3_600_000
POLICY = policy_of(lateness="1h", max_ahead="1m")


def sample_of(feed: Format = FORMATS["jsonl"], partitions: int = 4) -> TopicSample:
    speedless = None if feed.without_speed is None else feed.without_speed.decode
    return TopicSample(POLICY, feed.decode, speedless, partitions)


def value(vehicle: str = "7", time: int | str = NOON) -> bytes:
    return json.dumps({"vehicle": vehicle, "time": time, "lat": 21.2, "lon": 72.8, "speed": 3}).encode()


def test_a_share_is_never_rounded_to_none_or_all() -> None:
    assert [share(*each) for each in ((0, 0), (0, 9), (9, 9), (1, 10**6), (10**6 - 1, 10**6), (1, 3))] == [
        "0 %",
        "0 %",
        "100 %",
        "0.1 %",
        "99.9 %",
        "33.3 %",
    ]


def test_the_partitioner_is_known_by_the_vehicles_and_not_by_the_keys() -> None:
    for name, partitioner in (("murmur2", by_murmur2), ("crc32", by_crc32)):
        sample = sample_of()
        for number in range(50):
            vehicle = f" bus {number}"  # the canonical id is stripped
            sample.add(partitioner(vehicle.strip().encode(), 4), NOON, b"key", value(vehicle), NOON)
        assert best_partitioner(sample.matching, sample.decoded) == name
        assert (sample.vehicles, sample.scattered, sample.keyed) == (50, 0, 0)
    assert best_partitioner({}, 0) is None


def test_a_reading_is_late_by_the_greatest_timestamp_before_it_in_its_partition() -> None:
    closed = NOON + 2 * HOUR_MS  # the hour that begins at noon, and its lateness
    for watermark, late in ((closed - 1, 0), (closed, 1)):
        sample = sample_of()
        sample.add(0, watermark, None, None, closed)
        sample.add(0, NOON, b"7", value(), closed)
        sample.add(1, NOON, b"7", value(), closed)
        assert (sample.late, sample.unordered, sample.empty, sample.tombstones) == (late, 1, 1, 0)


def test_times_that_cannot_be_read_have_no_lag_and_stop_nothing() -> None:
    sample = sample_of()
    for time in ("soon", "2026-01-01T00:00:00", 10**30, -(10**30), "0001-01-01T00:00:00+00:00"):
        sample.add(0, NOON, b"7", value(time=time), NOON)
    assert (sample.decoded, sample.timed, sample.late) == (5, 0, 0)
    assert sample.median_lag_ms is None


def test_a_record_ahead_of_the_clock_is_counted_beyond_the_limit() -> None:
    sample = sample_of()
    for ts in (NOON + 60_000, NOON + 60_001):
        sample.add(0, ts, None, value(), NOON)
    assert sample.ahead == 1


def test_a_sample_of_many_hours_shows_ids_that_live_in_one_or_two_of_them() -> None:
    for slots, told in ((1, "120 of 120 vehicle ids are in one or two timeslots of their day"), (6, None)):
        sample = sample_of()
        for hour in range(6):
            for bus in range(20):
                at = NOON + hour * HOUR_MS
                sample.add(0, at, None, value(f"{bus} {hour // slots}", at), at)
        hint = sample.spans.hint()
        assert (hint and hint.partition(":")[0]) == told
