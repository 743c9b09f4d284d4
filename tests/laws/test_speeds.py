"""Laws of speeds: with `drop_zero = false` and `reject_above = "none"` no number decides whether its record counts.

Which records count is public under `replace`; how fast a vehicle went is not. So each feed is given one record with
speeds of every kind, as a record of telemetry and in a recording, and what becomes of it is compared.
"""

import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.transit.gtfs_realtime_pb2 import FeedEntity, FeedMessage
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.agents.recordings.parquet import parquet_records
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FORMATS, Format, Recorded, jsonl
from hatcast.stream.readings.reading import Reading
from tests.folding import NOON, NOW, PSEUDONYMS, apply, contributions, occurring
from tests.laws.test_feeds import family
from tests.replayed import policy_of

OPEN: Final = policy_of(drop_zero=False, reject_above="none")
U: Final = OPEN.upper_bound
ISO: Final = "2022-01-02T12:00:00+00:00"

digits = st.text("0123456789", min_size=1, max_size=400)
wholes = st.just("0") | st.builds(str.__add__, st.sampled_from("123456789"), digits)
exponents = st.builds("e{}".format, st.integers(-500, 500) | st.integers(-(10**30), 10**30))
literals = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    wholes,
    st.just("") | digits.map(".{}".format),
    st.just("") | exponents,
)
"""Any JSON number."""


@dataclass(frozen=True)
class Written:
    """One record of a feed with a speed, as it is on the telemetry topic and in a recording."""

    record: Callable[[str], bytes]
    recording: Callable[[str], bytes]


def gtfs_rt(speed: str) -> FeedEntity:
    entity = FeedEntity(id="1")
    name = entity.vehicle.vehicle
    name.id = name.license_plate = name.label = "bus"
    entity.vehicle.trip.trip_id = "trip"  # the formats of vehicles in service read no other
    entity.vehicle.timestamp = NOON // 1000
    entity.vehicle.position.latitude, entity.vehicle.position.longitude = 21.2, 72.8
    entity.vehicle.position.speed = float(speed)
    return entity


def poll(speed: str) -> bytes:
    message = FeedMessage(entity=[gtfs_rt(speed)])
    message.header.gtfs_realtime_version = "2.0"
    return message.SerializeToString()


def template(text: str) -> Callable[[str], bytes]:
    return lambda speed: text.replace("SPEED", speed).encode()


JSONL = template(f'{{"vehicle": "bus", "time": {NOON}, "lat": 21.2, "lon": 72.8, "speed": SPEED, "unit": "mph"}}')
ITMS = template(
    f'{{"license_plate": "bus", "observationDateTime": {NOON}, "speed": SPEED, "location":'
    ' {"coordinates": [72.8, 21.2]}}'
)
HFP = template(
    f'/hfp/v2/journey/ongoing/vp/bus/1/2 {{"VP": {{"tst": "{ISO}", "spd": SPEED, "lat": 21.2, "long": 72.8}}}}'
)
SIRI_JSON = template(
    f'{{"RecordedAtTime": "{ISO}", "MonitoredVehicleJourney": {{"FramedVehicleJourneyRef":'
    ' {"DatedVehicleJourneyRef": "trip"}, "VehicleRef": "bus", "Velocity": SPEED,'
    ' "VehicleLocation": {"Longitude": 72.8, "Latitude": 21.2}}}'
)
SIRI_XML = template(
    f"<VehicleActivity><RecordedAtTime>{ISO}</RecordedAtTime><MonitoredVehicleJourney>"
    "<FramedVehicleJourneyRef><DatedVehicleJourneyRef>trip</DatedVehicleJourneyRef></FramedVehicleJourneyRef>"
    "<VehicleRef>bus</VehicleRef>"
    "<Velocity>SPEED</Velocity><VehicleLocation><Longitude>72.8</Longitude><Latitude>21.2</Latitude></VehicleLocation>"
    "</MonitoredVehicleJourney></VehicleActivity>"
)
COLUMNS = "vehicle_id,timestamp,speed,route_id,trip_id,latitude,longitude,trip_headsign"
CAPMETRO = f"bus,{ISO},SPEED,1,2,21.2,72.8,3"
WRITTEN: Final = {
    "jsonl": Written(JSONL, JSONL),
    "itms": Written(
        ITMS,
        template(f'license_plate,observationDateTime,speed,location.coordinates\nbus,{NOON},SPEED,"[72.8, 21.2]"'),
    ),
    "gtfs-rt": Written(lambda speed: gtfs_rt(speed).SerializeToString(), poll),
    "hfp": Written(HFP, HFP),
    "siri": Written(SIRI_JSON, SIRI_XML),
    "capmetro": Written(template(CAPMETRO), template(f"{COLUMNS}\n{CAPMETRO}")),
}
every_feed = pytest.mark.parametrize("feed", FORMATS.values(), ids=attrgetter("name"))


def recorded_by(feed: Format, speed: str) -> list[Recorded]:
    """The record on the topic, as if it were recorded, and in a recording."""
    written = WRITTEN[family(feed)]
    [recorded] = feed.records(io.BytesIO(written.recording(speed)), "file")
    return [Recorded(b"", feed.decode(written.record(speed)), NOON), recorded]


def value_of(reading: Reading | None, policy: Policy = OPEN) -> int | None:
    """The milli-units that a record counts with; None if it does not count."""

    def itself(_: bytes) -> Reading | None:
        return reading

    fold = Fold(policy, Calendar(policy), FoldUsers(PSEUDONYMS), itself, None)
    apply(fold, [(NOON, b"record")], NOW)
    if occurring(fold) != {"accepted": 1}:
        return None
    [(count, total, maximum, _)] = contributions(fold).values()
    assert (count, total) == (1, maximum)
    return total


def counts_whatever(feed: Format, speed: str) -> bool:
    """The law: the record counts with a value in [0, U], in the same HAT and at the same time as with speed 1."""
    usual = recorded_by(feed, "1")
    for found, other in zip(recorded_by(feed, speed), usual, strict=True):
        value = value_of(found.reading)
        if value is None or not 0 <= value <= U or found.arrival != other.arrival:
            return False
        assert found.reading is not None
        assert other.reading is not None
        if replace_speed(found.reading) != replace_speed(other.reading):
            return False
        if value_of(jsonl.decode(jsonl.canonical_value(found))) != value:
            return False
    return True


def replace_speed(reading: Reading) -> Reading:
    return Reading(reading.vehicle, reading.time, reading.lat, reading.lon, 0.0, reading.unit)


def test_every_feed_is_tried() -> None:
    assert WRITTEN.keys() == {family(feed) for feed in FORMATS.values()}


@pytest.mark.parametrize("name", ["jsonl", "itms", "hfp", "siri"])
@pytest.mark.parametrize("text", [b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"fast"', b"[" * 9999 + b"]" * 9999])
def test_no_bytes_in_the_place_of_a_speed_raise(name: str, text: bytes) -> None:
    assert FORMATS[name].decode(WRITTEN[name].record("SPOT").replace(b"SPOT", text)) is None


@every_feed
@given(speed=literals)
@example("1e400")
@example("-1e400")
@example("1" + "0" * 400)
@example("1e-400")
@example("-0.0")
@example("0")
@example("1e308")
def test_whether_a_record_counts_does_not_depend_on_its_speed(feed: Format, speed: str) -> None:
    assert counts_whatever(feed, as_sent(feed, speed))


def as_sent(feed: Format, speed: str) -> str:
    """GTFS-Realtime holds floats of 32 bits: its writer rounds, to infinity too."""
    return speed if family(feed) != "gtfs-rt" else str(float(speed))


@every_feed
@pytest.mark.parametrize("speed", ["1e400", "9e999", "1" + "0" * 400, "1e308", "1e39"])
def test_a_speed_too_large_for_a_double_counts_as_the_upper_bound(feed: Format, speed: str) -> None:
    if family(feed) == "gtfs-rt":
        speed = "3e38"  # the greatest that its floats can hold
    assert {value_of(found.reading) for found in recorded_by(feed, speed)} == {U}


@every_feed
@pytest.mark.parametrize("speed", ["-1e400", "-1" + "0" * 400, "-3", "-1e-400"])
def test_a_speed_far_below_nothing_counts_as_nothing(feed: Format, speed: str) -> None:
    assert {value_of(found.reading) for found in recorded_by(feed, as_sent(feed, speed))} == {0}


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        *((name, ('"nan"', '"inf"', '"-inf"')) for name in ("jsonl", "itms", "hfp")),
        ("gtfs-rt", ("nan", "inf", "-inf")),
        ("capmetro", ("nan", "inf", "-Infinity")),
    ],
)
def test_a_speed_that_is_no_number_counts_as_nothing(name: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        assert counts_whatever(FORMATS[name], text)
        assert {value_of(found.reading) for found in recorded_by(FORMATS[name], text)} == {0}


@pytest.mark.parametrize("name", ["jsonl", "itms", "capmetro"])
@given(speed=st.floats())
def test_a_column_of_doubles_in_parquet_decides_as_little(name: str, speed: float) -> None:
    place: dict[str, Any] = {"lat": [21.2], "lon": [72.8]}
    columns = {
        "jsonl": {"vehicle": ["bus"], "time": [NOON], "speed": [speed], **place},
        "itms": {
            "license_plate": ["bus"],
            "observationDateTime": [NOON],
            "speed": [speed],
            "location.coordinates": [[72.8, 21.2]],
        },
        "capmetro": {
            "vehicle_id": ["bus"],
            "timestamp": [ISO],
            "speed": [speed],
            "latitude": [21.2],
            "longitude": [72.8],
        },
    }[name]
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    file.seek(0)
    [found] = parquet_records(file, "file", FORMATS[name])
    value = value_of(found.reading)
    assert value is not None
    assert value == (0 if not math.isfinite(speed) or speed <= 0 else value)
    assert found.arrival == NOON


# Mutants


def test_a_decoder_that_refuses_what_a_double_cannot_hold_breaks_the_law() -> None:
    def refusing(value: bytes) -> Reading | None:
        found = jsonl.decode(value)
        return found if found is not None and math.isfinite(json.loads(value)["speed"]) else None

    assert counts_whatever(FORMATS["jsonl"], "1e400")
    assert not counts_whatever(replace(FORMATS["jsonl"], decode=refusing), "1e400")


def test_a_fold_that_drops_what_is_no_number_breaks_the_law() -> None:
    with_limit = policy_of(drop_zero=False, reject_above=1e6)
    for speed in ("1e400", '"nan"', "-3"):
        found = jsonl.decode(JSONL(speed))
        assert value_of(found) is not None
        assert value_of(found, with_limit) is None
