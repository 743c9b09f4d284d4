"""ITMS in its forms: nested, flattened, CSV; made-up data, since the real one may not be passed on."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Recorded, itms
from hatcast.stream.readings.formats._json_values import elements
from hatcast.stream.readings.reading import Reading, parse_time
from tests.services.data import DATA

FORMS = ("itms_nested.json", "itms_flattened.json", "itms_lines.json", "itms.csv")
WRONG: tuple[object, ...] = (True, None, [], {})
GOOD: dict[str, object] = {
    "license_plate": "MU01AA0001",
    "observationDateTime": "2024-05-04T09:00:05+05:30",
    "speed": 38,
    "location": {"type": "Point", "coordinates": [72.8, 21.2]},
}
AS_READ = Reading("MU01AA0001", "2024-05-04T09:00:05+05:30", 21.2, 72.8, 38.0)


def recorded_in(name: str) -> list[Recorded]:
    with (DATA / "feeds" / name).open("rb") as stream:
        return list(itms.records(stream, name))


def read(text: bytes) -> list[Recorded]:
    return list(itms.records(io.BytesIO(text), "file"))


def decoded(**changes: object) -> Reading | None:
    return itms.decode(json.dumps(GOOD | changes).encode())


def meant(record: Recorded) -> object:
    """A reading with its time as an instant: the forms write it in three ways."""
    found = record.reading
    return (
        None
        if found is None
        else (found.vehicle, parse_time(found.time), found.lat, found.lon, found.speed, found.unit)
    )


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_data_gives_the_same_readings_and_arrivals(form: str) -> None:
    nested = recorded_in(FORMS[0])
    assert [meant(record) for record in recorded_in(form)] == [meant(record) for record in nested]
    assert [record.arrival for record in recorded_in(form)] == [record.arrival for record in nested]
    assert sum(record.reading is not None for record in nested) == 5


def test_coordinates_are_longitude_first_and_may_have_an_altitude() -> None:
    assert decoded() == AS_READ
    assert decoded(location={"coordinates": [72.8, 21.2, 11]}) == AS_READ
    assert decoded(location=None, **{"location.coordinates": [72.8, 21.2]}) == AS_READ


@pytest.mark.parametrize("time", [1714793405000, 1714793405000.0, "1714793405000", "2024-05-04 09:00:05+05:30"])
def test_each_encoding_of_a_time_is_the_same_instant(time: object) -> None:
    reading = decoded(observationDateTime=time)
    assert reading is not None
    assert parse_time(reading.time) == parse_time(AS_READ.time)


@pytest.mark.parametrize(
    "changes",
    [
        *({field: value} for field in GOOD for value in WRONG),
        {"license_plate": 5},
        {"speed": "38"},
        {"location": {"type": "Point"}},
        *(
            {"location": {"coordinates": place}}
            for place in (None, [], [72.8], [None, 21.2], ["72.8", "21.2"], "[72.8, 21.2]")
        ),
    ],
    ids=str,
)
def test_a_null_or_wrongly_typed_field_is_undecodable(changes: dict[str, object]) -> None:
    assert decoded(**changes) is None


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_undecodable(field: str) -> None:
    assert itms.decode(json.dumps({key: value for key, value in GOOD.items() if key != field}).encode()) is None


def test_an_undecodable_element_keeps_its_own_bytes_and_its_arrival() -> None:
    bad = b'{ "license_plate":null,\n "observationDateTime": "2024-05-04T09:00:05+05:30" }'
    good = json.dumps(GOOD).encode()
    found = read(b"[" + good + b" , " + bad + b" ]\n")
    assert [record.raw for record in found] == [good, bad]
    assert found[1] == Recorded(bad, None, parse_time(AS_READ.time))


def test_an_array_that_never_ends_is_refused_in_one_line() -> None:
    with pytest.raises(
        RecordingError, match=r"^file: is not a complete JSON array; it may be truncated: fetch it again$"
    ):
        read(b'[{"license_plate": "x"}, {"license_plate": "y"}')


@pytest.mark.parametrize("text", [b"[", b"[{}] {}", b"[{},]", b"[}", b"[[[", b"[,]", b'[{"a": "b]'])
def test_a_malformed_array_is_refused(text: bytes) -> None:
    with pytest.raises(RecordingError, match="complete JSON array"):
        read(text)


def test_an_array_without_records_is_an_empty_recording() -> None:
    assert read(b"\xef\xbb\xbf [ ]\n") == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("a{}[],\\\"'é \n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a{},"', max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(json_values), st.integers(1, 64), st.sampled_from([None, 1]))
def test_an_array_is_split_the_same_whatever_the_size_of_a_chunk(
    values: list[object], chunk: int, indent: int | None
) -> None:
    text = json.dumps(values, indent=indent).encode()
    found = list(elements(io.BytesIO(text[1:]), "file", chunk))
    assert [json.loads(element) for element in found] == values
    if indent is None:
        assert b", ".join(found) == text[1:-1]


@given(st.lists(json_values, min_size=1), st.integers(1, 64), st.data())
def test_an_array_cut_off_anywhere_is_refused_whatever_the_size_of_a_chunk(
    values: list[object], chunk: int, data: st.DataObject
) -> None:
    text = json.dumps(values).encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(RecordingError):
        list(elements(io.BytesIO(text[1:cut]), "file", chunk))


@pytest.mark.parametrize("tail", [b",]", b"] x", b"}]", b",,{}]", b""])
def test_an_array_with_a_bad_end_is_refused_whatever_the_size_of_a_chunk(tail: bytes) -> None:
    for chunk in range(1, 20):
        with pytest.raises(RecordingError):
            list(elements(io.BytesIO(b'{"a": 1}, {"b": 2}' + tail), "file", chunk))


HEADER = b"speed,license_plate,location.coordinates,observationDateTime\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'38,bus,"[72.8, 21.2]",1714793405000', Reading("bus", "1714793405000", 21.2, 72.8, 38.0)),
        (b'38.0,bus,"[72.8,21.2,7]",1714793405000', Reading("bus", "1714793405000", 21.2, 72.8, 38.0)),
        (b'inf,bus,"[nan, 21.2]",soon', Reading("bus", "soon", 21.2, "nan", "inf")),
        (b',bus,"[72.8, 21.2]",1714793405000', None),
        (b'38,,"[72.8, 21.2]",1714793405000', None),
        (b"38,bus,,1714793405000", None),
        (b'38,bus,"[72.8]",1714793405000', None),
        (b'38,bus,"[72.8, 21.2]",', None),
        (b'38,bus,"[72.8, 21.2]"', None),
        (b'38,bus,"[72.8, 21.2],1714793405000', None),
        (b'38,b\xff,"[72.8, 21.2]",1714793405000', None),
    ],
)
def test_a_csv_line_is_read_by_the_names_of_its_columns(line: bytes, expected: Reading | None) -> None:
    [record] = read(HEADER + line + b"\r\n")
    assert (record.raw, record.reading) == (line, expected)


def test_an_undecodable_csv_line_keeps_its_arrival() -> None:
    [record] = read(HEADER + b'x\xff,bus,"[72.8, 21.2]",1714793405000')
    assert record.arrival == 1714793405000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "license_plate, observationDateTime, location.coordinates, speed"),
        (b"license_plate,speed,observationDateTime\n", "has no column location.coordinates"),
        (b'{"vehicle": "bus", "time": 5}\n', "has no itms record"),
        (b"[1, 2]", "has no itms record"),
        (b'{\n "license_plate": "x"\n}\n', "has no itms record"),
    ],
)
def test_a_file_of_another_format_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(RecordingError, match=problem):
        read(text)
