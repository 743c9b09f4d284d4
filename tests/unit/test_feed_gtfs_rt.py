"""GTFS-Realtime: polls to entities to readings; made-up vehicles, since the recorded polls may not be passed on."""

import io
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.transit.gtfs_realtime_pb2 import FeedEntity, FeedMessage
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Format, Recorded, gtfs_rt
from hatcast.stream.readings.reading import Reading, to_milli
from tests.services.data import DATA

MADE_S = 1_714_793_400  # when the vehicles of the sample were seen
SENT_S = MADE_S + 12


def entity(**changes: Any) -> FeedEntity:
    """A tram with everything; `changes` to its position and to what it tells of itself, None: absent."""
    made = FeedEntity(id="poll-7")
    given = {"latitude": -33.75, "longitude": 150.875, "speed": 9.3, "timestamp": MADE_S, "id": "tram 1"} | changes
    vehicle = made.vehicle
    for field, value in given.items():
        if value is not None:
            part: Any = vehicle if field == "timestamp" else vehicle.vehicle
            setattr(vehicle.position if field in ("latitude", "longitude", "speed") else part, field, value)
    return made


def decoded(**changes: Any) -> Reading | None:
    return gtfs_rt.FORMAT.decode(entity(**changes).SerializePartialToString())


def poll(*entities: FeedEntity, sent_s: int | None = SENT_S) -> bytes:
    message = FeedMessage(entity=entities)
    message.header.gtfs_realtime_version = "2.0"
    if sent_s is not None:
        message.header.timestamp = sent_s
    return message.SerializePartialToString()


def read(body: bytes) -> list[Recorded]:
    return list(gtfs_rt.FORMAT.records(io.BytesIO(body), "file"))


def sample() -> list[FeedEntity]:
    """What tests/data/feeds/gtfs-rt.pb holds."""
    alert = FeedEntity(id="alert")
    alert.alert.header_text.translation.add(text="Made up")
    deleted = entity(id="tram 9")
    deleted.is_deleted = True
    without_place = FeedEntity(id="poll-8")
    without_place.vehicle.vehicle.id = "bus 2"
    return [
        entity(),
        entity(id="tram 1", timestamp=MADE_S + 10, speed=0.0),
        entity(id=None, license_plate="MU 01 AA 0001", label="12"),
        entity(id=None, label="Itäkeskus 12", speed=float("inf")),
        alert,
        deleted,
        without_place,
        entity(speed=None),
        entity(timestamp=None),
        entity(id="bus 3", latitude=91.0),
    ]


def test_an_entity_is_read_with_its_numbers_as_sent() -> None:
    reading = decoded()
    assert reading == Reading("tram 1", MADE_S * 1000, -33.75, 150.875, 9.300000190734863, "m/s")
    assert to_milli(9.300000190734863, "m/s") == round(Fraction(9.300000190734863) * 3600) == 33480


@pytest.mark.parametrize("field", ["latitude", "longitude", "speed", "timestamp", "id"])
def test_an_entity_without_place_speed_time_or_vehicle_is_undecodable(field: str) -> None:
    assert decoded(**{field: None}) is None


@pytest.mark.parametrize(
    ("feed", "field"), [(gtfs_rt.FORMAT, "id"), (gtfs_rt.PLATES, "license_plate"), (gtfs_rt.LABELS, "label")]
)
def test_a_vehicle_is_named_by_one_field_and_never_by_another_for_lack_of_it(feed: Format, field: str) -> None:
    """A bus that sends its id now and then would be two users, and a label is often the headsign."""
    names: dict[str, str | None] = {"id": "tram 1", "license_plate": "MU 01", "label": "Centre"}
    complete = feed.decode(entity(**names).SerializePartialToString())
    assert complete is not None
    assert complete.vehicle == names[field]
    assert feed.decode(entity(**names | {field: None}).SerializePartialToString()) is None


def test_an_entity_without_an_id_names_the_formats_of_the_fields_that_it_has() -> None:
    made = entity(id=None, label="Centre"), entity(id=None), entity(speed=None)
    assert [record.problem for record in read(poll(*made))] == [
        "has no vehicle.id: use format gtfs-rt-label if that is each vehicle's own number, the same all day",
        "has no vehicle.id",
        None,
    ]


def test_a_label_that_is_the_headsign_makes_no_users() -> None:
    """F02: two polls of one bus, whose label is where it goes."""
    bodies = [(DATA / "wild" / f"rt_label_{name}.pb").read_bytes() for name in "ab"]
    assert [record.reading for body in bodies for record in read(body)] == [None, None]


def test_a_zero_that_was_sent_is_a_number_and_one_that_was_not_is_missing() -> None:
    assert decoded(latitude=0.0, speed=0.0) == Reading("tram 1", MADE_S * 1000, 0.0, 150.875, 0.0, "m/s")
    assert decoded(speed=None) is None


def test_text_that_is_not_utf_8_is_undecodable() -> None:
    value = entity().SerializeToString()
    assert gtfs_rt.FORMAT.decode(value.replace(b"tram 1", b"tram \xff")) is None


@pytest.mark.parametrize("value", [b"", b"{}", b"\x0a", b"\x22\x7f", b"\xff" * 12, poll(entity())], ids=repr)
def test_bytes_that_are_no_entity_are_undecodable(value: bytes) -> None:
    assert gtfs_rt.FORMAT.decode(value) is None


def test_the_sample_is_the_poll_that_stands_here() -> None:
    assert FeedMessage.FromString((DATA / "feeds" / "gtfs-rt.pb").read_bytes()) == FeedMessage.FromString(
        poll(*sample())
    )


def test_a_poll_gives_the_bytes_of_each_vehicle_and_leaves_out_alerts_and_what_was_deleted() -> None:
    expected = [each.SerializeToString() for each in sample() if each.id != "alert" and not each.is_deleted]
    assert gtfs_rt.FORMAT.split(poll(*sample())) == expected
    assert [record.raw for record in read(poll(*sample()))] == expected
    assert gtfs_rt.FORMAT.split(poll()) == []


def test_a_damaged_entity_is_one_bad_record_and_not_the_end_of_the_poll() -> None:
    good = entity().SerializeToString()
    body = poll(entity()).replace(good, b"\x0a\x7f" + good[2:]) + poll(entity(id="bus 2"))
    first, second = (gtfs_rt.FORMAT.decode(record) for record in gtfs_rt.FORMAT.split(body))
    assert first is None
    assert second is not None
    assert second.vehicle == "bus 2"


def test_records_arrived_when_their_poll_was_made() -> None:
    assert {record.arrival for record in read(poll(*sample()))} == {SENT_S * 1000}


def test_in_a_poll_without_a_time_the_arrival_is_the_time_of_the_record() -> None:
    found = read(poll(entity(), entity(timestamp=None), sent_s=None))
    assert [record.arrival for record in found] == [MADE_S * 1000, None]


@pytest.mark.parametrize("make", [lambda: b"", lambda: b"vehicle_id,timestamp\n", lambda: poll(entity())[:-3]])
def test_a_file_that_is_no_whole_poll_is_refused_and_a_message_is_one_bad_record(make: Callable[[], bytes]) -> None:
    body = make()
    with pytest.raises(
        RecordingError, match=r"^file: is not a complete GTFS-Realtime poll; fetch it again, or name the file's"
    ):
        read(body)
    assert gtfs_rt.FORMAT.split(body) == ([body] if body else [])


def test_a_file_too_large_for_a_poll_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    body = poll(entity())
    monkeypatch.setattr(gtfs_rt, "POLL_BYTES_MAX", len(body))
    assert read(body)
    monkeypatch.setattr(gtfs_rt, "POLL_BYTES_MAX", len(body) - 1)
    with pytest.raises(RecordingError, match="is not a complete GTFS-Realtime poll"):
        read(body)


def is_record(value: bytes) -> bool:
    try:
        parsed = FeedEntity.FromString(value)
    except DecodeError:
        return bool(value)
    return parsed.HasField("vehicle") and not parsed.is_deleted


damaged = st.builds(
    lambda made, cut: made[:cut], st.sampled_from([e.SerializePartialToString() for e in sample()]), st.integers(0, 80)
)


@given(st.lists(damaged | st.binary(max_size=80)))
def test_whatever_a_poll_holds_is_cut_exactly_where_its_entities_are(entities: list[bytes]) -> None:
    body = poll() + b"".join(b"\x12" + bytes([len(value)]) + value for value in entities)
    assert gtfs_rt.FORMAT.split(body) == [value for value in entities if is_record(value)]
