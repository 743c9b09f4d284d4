"""HFP: topic and payload; made-up trams."""

import io
import json

import pytest

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Recorded, hfp
from hatcast.stream.readings.reading import Reading, parse_time

TOPIC = "/hfp/v2/journey/ongoing/vp/tram/0040/00401/1003/1/Made Up Park/12:50/1160403/4/60;24/28/09/38"
GOOD: dict[str, object] = {"oper": 22, "veh": 401, "tst": "2025-03-12T11:24:51.251Z", "spd": 5.5, "lat": 60.2}
GOOD["long"] = 24.9
AS_READ = Reading("0040/00401", "2025-03-12T11:24:51.251Z", 60.2, 24.9, 5.5, "m/s")


def payload(**changes: object) -> bytes:
    return json.dumps({"VP": GOOD | changes}).encode()


def decoded(**changes: object) -> Reading | None:
    return published(TOPIC, payload(**changes))


def published(topic: str, body: bytes) -> Reading | None:
    [record] = hfp.split(body, topic)
    return hfp.decode(record)


def read(text: bytes) -> list[Recorded]:
    return list(hfp.records(io.BytesIO(text), "file"))


def test_the_vehicle_is_that_of_the_topic_whoever_runs_the_trip() -> None:
    assert decoded() == AS_READ
    assert decoded(oper=90, veh=None) == AS_READ


def test_a_number_without_a_fraction_is_a_number() -> None:
    assert decoded(spd=5, lat=60) == Reading("0040/00401", AS_READ.time, 60.0, 24.9, 5.0, "m/s")


@pytest.mark.parametrize("field", ["tst", "spd", "lat", "long"])
@pytest.mark.parametrize("value", [None, True, "5", [], {}], ids=repr)
def test_a_null_or_wrongly_typed_field_is_undecodable(field: str, value: object) -> None:
    if (field, value) != ("tst", "5"):
        assert decoded(**{field: value}) is None


@pytest.mark.parametrize("field", ["tst", "spd", "lat", "long"])
def test_a_missing_field_is_undecodable(field: str) -> None:
    event = {name: value for name, value in GOOD.items() if name != field}
    assert hfp.decode(b"%b %b" % (TOPIC.encode(), json.dumps({"VP": event}).encode())) is None


@pytest.mark.parametrize("kind", ["vp", "doo", "tlr"])
def test_every_kind_of_event_says_where_a_vehicle_is(kind: str) -> None:
    assert hfp.decode(f"{TOPIC.replace('/vp/', f'/{kind}/')} ".encode() + payload()) == AS_READ
    assert hfp.decode(TOPIC.encode() + b" " + payload().replace(b"VP", kind.upper().encode())) == AS_READ


@pytest.mark.parametrize(
    "topic",
    [
        "/hfp/v1/journey/ongoing/tram/0040/00401/1003",
        "/hfp/v2/journey/ongoing/vp/tram/0040",
        "/hfp/v2/journey/ongoing/vp/tram//00401/1003",
        "/hfp/v2/journey/ongoing/vp/tram/0040//1003",
        "/other/v2/journey/ongoing/vp/tram/0040/00401/1003",
        "x" + TOPIC,
    ],
)
def test_another_topic_is_undecodable(topic: str) -> None:
    assert published(topic, payload()) is None


def test_a_topic_may_end_with_its_vehicle_or_hold_spaces_and_letters_of_any_script() -> None:
    assert published("/hfp/v2/journey/ongoing/vp/tram/0040/00401", payload()) == AS_READ
    assert published("/hfp/v2/deadrun/ongoing/vp/tram/0040/00401//////////", payload()) == AS_READ
    assert published(TOPIC.replace("Made Up", "Pikku Itäkeskus "), payload()) == AS_READ


def test_a_payload_laid_out_over_lines_is_one_record() -> None:
    [record] = hfp.split(b"\n" + json.dumps({"VP": GOOD}, indent=1).encode() + b"\r\n", TOPIC)
    assert hfp.decode(record) == AS_READ


def test_two_events_in_one_payload_are_undecodable() -> None:
    assert hfp.decode(f"{TOPIC} ".encode() + json.dumps({"VP": GOOD, "DOO": GOOD}).encode()) is None


def test_an_undecodable_line_keeps_its_arrival() -> None:
    [good, bad, none] = read(b"\n".join(hfp.split(body, TOPIC)[0] for body in (payload(), payload(lat=None), b"x")))
    assert (good.reading, bad.reading, none.reading) == (AS_READ, None, None)
    assert (good.arrival, bad.arrival, none.arrival) == (parse_time(AS_READ.time), parse_time(AS_READ.time), None)


def test_a_file_without_any_topic_is_refused() -> None:
    with pytest.raises(
        RecordingError, match=r"^file: has no hfp record; name the file's format, or use a file of lines"
    ):
        read(payload())
    assert read(b"\n") == []
