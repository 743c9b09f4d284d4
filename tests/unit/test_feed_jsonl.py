"""The canonical telemetry record."""

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Recorded, jsonl
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import canonical_vehicle
from tests.services.data import DATA, golden

WRONG: tuple[object, ...] = (True, None, [], {})
GOOD: dict[str, object] = {"vehicle": "bus", "time": 5, "lat": 1, "lon": 2.5, "speed": 3, "unit": "m/s"}


def encoded(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


def without(field: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != field}).encode()


def arrivals(*lines: bytes) -> list[int | None]:
    return [record.arrival for record in jsonl.records(io.BytesIO(b"\n".join(lines)), "file")]


def test_a_record_is_read_as_it_was_reported() -> None:
    assert jsonl.decode(encoded()) == Reading("bus", 5, 1.0, 2.5, 3.0, "m/s")
    assert jsonl.decode(encoded(vehicle=" bus ", time="now")) == Reading(" bus ", "now", 1.0, 2.5, 3.0, "m/s")


def test_a_missing_unit_is_km_h() -> None:
    assert jsonl.decode(without("unit")) == Reading("bus", 5, 1.0, 2.5, 3.0, "km/h")


@pytest.mark.parametrize("field", ["vehicle", "time", "lat", "lon", "speed"])
def test_every_other_missing_field_is_undecodable(field: str) -> None:
    assert jsonl.decode(without(field)) is None


@pytest.mark.parametrize(
    "changes",
    [
        *({field: value} for field in GOOD for value in WRONG),
        *({field: "1", "unit": unit} for field in ("lat", "lon", "speed") for unit in ("km/h", "m/s")),
        {"vehicle": 5},
        {"unit": "KM/H"},
        {"unit": ""},
        {"speed": "Infinity"},
        {"speed": math.nan},
        {"lat": math.inf},
    ],
    ids=str,
)
def test_a_wrong_type_or_an_unknown_unit_is_undecodable(changes: dict[str, object]) -> None:
    assert jsonl.decode(encoded(**changes)) is None


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_the_texts_for_numbers_that_are_not_finite_are_kept(text: str) -> None:
    assert jsonl.decode(encoded(lat=text, lon=text, speed=text)) == Reading("bus", 5, text, text, text, "m/s")


def test_the_edge_recording_has_as_many_undecodable_records_as_its_golden_result() -> None:
    with (DATA / "golden" / "edge.jsonl").open("rb") as stream:
        readings = [record.reading for record in jsonl.records(stream, "edge")]
    # The vehicle's own rule is applied by the fold: a decoder keeps the id as it was sent.
    undecodable = [found for found in readings if found is None or canonical_vehicle(found.vehicle) is None]
    assert len(undecodable) == golden("edge")["outcomes"]["undecodable"]


def test_arrival_is_its_own_field_else_the_time() -> None:
    assert arrivals(encoded(arrival=7), encoded(arrival="1970-01-01T00:00:00.008Z"), encoded()) == [7, 8, 5]
    assert arrivals(encoded(arrival=None)) == [5]


def test_an_undecodable_record_still_has_its_arrival() -> None:
    assert arrivals(encoded(speed=True, arrival=7), encoded(speed=True), b'{"time": 9}') == [7, 5, 9]
    assert arrivals(b'{"vehicle": "\xff", "time": 9}') == [9]


@pytest.mark.parametrize("stamp", [True, [], {}, "soon", "1970-01-01T00:00:00", 2**63, 10**30, -(2**63) - 1])
def test_an_arrival_that_says_no_instant_is_unreadable_and_the_time_does_not_stand_in(stamp: object) -> None:
    [record] = jsonl.records(io.BytesIO(encoded(arrival=stamp)), "file")
    assert record.arrival is None
    assert record.reading is not None


def test_blank_lines_line_ends_and_a_byte_order_mark_are_no_part_of_a_record() -> None:
    text = b"\xef\xbb\xbf" + encoded() + b"\r\n\r\n  \n" + encoded(speed=4) + b"\n\n" + encoded(speed=True)
    raws = [record.raw for record in jsonl.records(io.BytesIO(text), "file")]
    assert raws == [encoded(), encoded(speed=4), encoded(speed=True)]


def test_an_empty_file_is_a_recording_without_records() -> None:
    assert not arrivals(b"")


def test_a_file_without_any_canonical_record_is_refused_and_one_bad_line_is_not() -> None:
    assert arrivals(b"garbage", b'{"lat": 1}') == [None, None]
    for text in (b"garbage", b'{"license_plate": "x", "speed": 1}', b"a,b\n1,2"):
        with pytest.raises(RecordingError, match=r"^file: has no jsonl record; name the file's format"):
            arrivals(text)


@given(st.floats())
def test_floats_that_are_not_finite_are_sent_as_texts(speed: float) -> None:
    sent = jsonl.canonical_value(Recorded(b"", Reading("bus", 0, 1.0, 2.0, speed), None))
    found = jsonl.decode(sent)
    assert found is not None
    assert found.speed == (speed if math.isfinite(speed) else str(speed))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_the_nearest_double(speed: float) -> None:
    found = jsonl.decode(encoded(speed=speed))
    assert found is not None
    assert found.speed == speed
