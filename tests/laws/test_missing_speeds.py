"""Laws of the formats' decoders for records without a speed: they change nothing else."""

import io
from operator import attrgetter

import msgspec
import pytest
from google.transit.gtfs_realtime_pb2 import FeedEntity, FeedMessage
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.readings.formats import FORMATS, Format, format_with
from hatcast.stream.readings.reading import MISSING, Reading, ValuesReading, ValueUnits, is_complete
from tests.laws.test_feeds import mutated_records, recorded_in, samples

FEEDS = [feed for feed in FORMATS.values() if feed.without_speed is not None]
every_feed = pytest.mark.parametrize("feed", FEEDS, ids=attrgetter("name"))

JSONL = b'{"vehicle":"7","time":1600000000000,"lat":60.2,"lon":24.9%s}'
ITMS = b'{"license_plate":"7","observationDateTime":"2022-01-02T05:29:43+05:30","location.coordinates":[72.8,21.2]%s}'
HFP = b'/hfp/v2/journey/ongoing/vp/bus/0012/7 {"VP":{"tst":"2025-03-12T11:24:51.251Z","lat":60.2,"long":24.9%s}}'
SIRI = (
    b'{"RecordedAtTime":"2026-03-12T09:30:47Z","MonitoredVehicleJourney":{"VehicleRef":"7","VehicleLocation":'
    b'{"Longitude":24.9,"Latitude":60.2}%s}}'
)
CAPMETRO = b"2619,2017-03-21T00:00:31-05:00,%s,1,1723912,30.19826,-97.77679,1-Metric"
WITHOUT = [
    ("jsonl", JSONL % b""),
    ("jsonl", JSONL % b',"speed":null'),
    ("itms", ITMS % b""),
    ("itms", ITMS % b',"speed":null'),
    ("hfp", HFP % b""),
    ("hfp", HFP % b',"spd":null'),
    ("siri", SIRI % b""),
    ("siri", SIRI % b',"Velocity":null'),
    ("siri", SIRI % b',"Velocity":{"value":""}'),
    ("capmetro", CAPMETRO % b""),
    ("capmetro", CAPMETRO % b" "),
]
OTHERWISE_BROKEN = [
    ("jsonl", JSONL % b',"speed":true'),
    ("jsonl", JSONL % b',"speed":"missing"'),
    ("jsonl", JSONL % b',"unit":"furlong"'),
    ("itms", ITMS % b',"speed":"38"'),
    ("hfp", HFP % b',"spd":{}'),
    ("siri", SIRI % b',"Velocity":"fast"'),
    ("siri", SIRI % b',"Velocity":[3]'),
    ("capmetro", CAPMETRO % b"fast"),
]


def with_missing(feed: Format) -> Format:
    assert feed.without_speed is not None
    return feed.without_speed


def is_complete_but_for_the_speed(found: object) -> bool:
    if not isinstance(found, Reading):
        return found is None
    return is_complete(found) or (found.speed is MISSING and is_complete(msgspec.structs.replace(found, speed=0.0)))


def entity(**position: float) -> bytes:
    message = FeedEntity(id="1")
    message.vehicle.vehicle.id, message.vehicle.timestamp = "7", 1_600_000_000
    for name, value in {"latitude": 60.25, "longitude": 24.5, **position}.items():
        setattr(message.vehicle.position, name, value)
    return message.SerializeToString()


@every_feed
@given(value=st.binary() | mutated_records())
def test_a_record_that_has_a_speed_is_decoded_as_ever_and_any_other_gives_a_position_or_nothing(
    feed: Format, value: bytes
) -> None:
    found, usual = with_missing(feed).decode(value), feed.decode(value)
    assert is_complete_but_for_the_speed(found)
    assert usual in (None, found)


@every_feed
def test_a_recording_whose_records_have_speeds_reads_the_same(feed: Format) -> None:
    for path in samples(feed):
        for usual, found in zip(recorded_in(path, feed), recorded_in(path, with_missing(feed)), strict=True):
            assert usual.reading in (None, found.reading)
            assert usual.raw == found.raw


@pytest.mark.parametrize(("name", "value"), [*WITHOUT, ("gtfs-rt", entity())])
def test_a_record_without_a_speed_gives_its_vehicle_time_and_place(name: str, value: bytes) -> None:
    feed = FORMATS[name]
    assert feed.decode(value) is None
    found = with_missing(feed).decode(value)
    assert found is not None
    assert found.speed is MISSING
    assert found.vehicle in ("7", "0012/7", "2619")


@pytest.mark.parametrize(("name", "value"), OTHERWISE_BROKEN)
def test_a_speed_of_another_type_is_undecodable_as_ever(name: str, value: bytes) -> None:
    assert with_missing(FORMATS[name]).decode(value) is None


def test_a_speed_of_0_is_a_speed() -> None:
    found = with_missing(FORMATS["gtfs-rt"]).decode(entity(speed=0.0))
    assert found is not None
    assert found.speed == 0.0


def test_a_poll_without_speeds_is_a_recording_of_positions() -> None:
    poll = FeedMessage()
    poll.header.gtfs_realtime_version, poll.header.timestamp = "2.0", 1_600_000_005
    poll.entity.add().MergeFromString(entity())
    [recorded] = with_missing(FORMATS["gtfs-rt"]).records(io.BytesIO(poll.SerializeToString()), "poll")
    assert recorded.reading == Reading("7", 1_600_000_000_000, 60.25, 24.5, MISSING, "m/s")
    assert recorded.arrival == 1_600_000_005_000


@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        (
            "capmetro",
            "vehicle_id,timestamp,latitude,longitude,trip_id",
            "7,2017-03-21T00:00:31-05:00,30.1,-97.7,8",
        ),
        (
            "itms",
            "license_plate,observationDateTime,location.coordinates",
            '7,2022-01-02T05:29:43+05:30,"[72.8, 21.2]"',
        ),
    ],
)
def test_a_csv_file_without_a_column_of_speeds_is_a_recording_of_positions(name: str, header: str, row: str) -> None:
    body = f"{header}\n{row}\n".encode()
    [recorded] = with_missing(FORMATS[name]).records(io.BytesIO(body), "file")
    assert recorded.reading is not None
    assert recorded.reading.speed is MISSING
    assert recorded.arrival is not None


def test_capmetro_speeds_of_unknown_unit_are_missing_ones() -> None:
    line = (CAPMETRO % b"12").replace(b"2017", b"2015")
    found = with_missing(FORMATS["capmetro"]).decode(line)
    assert FORMATS["capmetro"].decode(line) is None
    assert found is not None
    assert found.speed is MISSING


def test_a_record_without_a_speed_may_have_the_policys_other_values() -> None:
    found = with_missing(format_with("jsonl", ValueUnits({"load": "kg"}))).decode(JSONL % b',"load":3')
    assert isinstance(found, ValuesReading)
    assert found.speed is MISSING
    assert found.others == {"load": 3.0}
