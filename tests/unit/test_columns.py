"""Columns of foreign records: given, found by a header, and refused."""

import io
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hatcast.agents.recordings.parquet import parquet_records
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.readings.formats import Columns, FormatChoice, Recorded
from hatcast.stream.readings.reading import MISSING, Reading, ValueReading, ValuesReading, ValueUnits
from hatcast.stream.time_zones import time_zone

BERLIN = time_zone("Europe/Berlin")
ROW = "B 7,2022-01-02T05:29:43Z,52.5,13.4,38"
AS_READ = Reading("B 7", 1641101383000, 52.5, 13.4, 38.0, "km/h")


def csv_records(
    header: str, *rows: str, columns: Columns | None = None, others: tuple[str, ...] = ()
) -> list[Recorded]:
    feed = FormatChoice("csv", columns).format(ValueUnits(dict.fromkeys(others, "s")), BERLIN)
    return list(feed.records(io.BytesIO("\n".join((header, *rows)).encode()), "day.csv"))


def refusal_of(header: str, *rows: str, columns: Columns | None = None, others: tuple[str, ...] = ()) -> str:
    with pytest.raises(HatcastError) as raised:
        csv_records(header, *rows, columns=columns, others=others)
    return str(raised.value)


def test_one_number_among_names_is_explained() -> None:
    with pytest.raises(
        HatcastError, match="a number counts columns of a file without a header, and then all are numbers"
    ):
        csv_records("plate,ts,lat,lon,speed", columns=Columns({"vehicle": "plate", "time": "2"}, unit="km/h"))


@pytest.mark.parametrize(
    "header",
    [
        "vehicle,time,lat,lon,speed_kmh",
        "Vehicle ID,timestamp,LATITUDE,Longitude,Speed (km/h)",
        "license_plate,observationDateTime,gps_lat,gps_lng,velocity kph",
        "busNo,Timestamp UTC,Latitude,lng,speed-kmh",
    ],
)
def test_plain_names_and_the_unit_are_found_in_a_header(header: str) -> None:
    assert [record.reading for record in csv_records(header, ROW)] == [AS_READ]


@pytest.mark.parametrize(
    ("name", "unit"), [("speed_mps", "m/s"), ("speed [m/s]", "m/s"), ("spd_mph", "mph"), ("velocity_knots", "kn")]
)
def test_a_column_that_names_its_unit_needs_no_unit(name: str, unit: str) -> None:
    [record] = csv_records(f"vehicle,time,lat,lon,{name}", ROW)
    assert record.reading is not None
    assert record.reading.unit == unit


@pytest.mark.parametrize("unit", ["km/h", "kmh", "KPH", " kmph "])
def test_a_unit_may_be_written_in_several_ways(unit: str) -> None:
    [record] = csv_records("vehicle,time,lat,lon,speed", ROW, columns=Columns(unit=unit))
    assert record.reading == AS_READ


def test_given_columns_come_before_names_that_are_plain() -> None:
    [record] = csv_records(
        "vehicle,time,lat,lon,speed,fleet no", ROW + ",9", columns=Columns({"vehicle": "fleet no"}, unit="km/h")
    )
    assert record.reading is not None
    assert record.reading.vehicle == "9"


def test_a_column_that_is_given_is_not_guessed_for_another_field() -> None:
    [record] = csv_records(
        "bus,plate,time,lat,lon,v", "1," + ROW, columns=Columns({"vehicle": "plate", "speed": "v"}, unit="kmh")
    )
    assert record.reading == AS_READ


def test_an_arrival_column_is_the_arrival() -> None:
    records = csv_records(
        "vehicle,time,lat,lon,speed_kmh,arrival",
        ROW + ",1641101390000",
        ROW + ",",
        ROW + ",later",
        "b,x,1,2,3,1641101391",
    )
    assert [record.arrival for record in records] == [1641101390000, AS_READ.time, AS_READ.time, 1641101391000]


def test_further_values_are_found_by_their_names_or_given() -> None:
    expected = ValuesReading("B 7", 1641101383000, 52.5, 13.4, 38.0, "km/h", {"delay": -30.0})
    assert csv_records("vehicle,time,lat,lon,speed_kmh,Delay", ROW + ",-30", others=("delay",))[0].reading == expected
    given = Columns({"delay": "late"})
    found = csv_records(
        "vehicle,time,lat,lon,speed_kmh,late", ROW + ",-30", ROW + ",", columns=given, others=("delay",)
    )
    assert [record.reading for record in found] == [expected, None]
    assert found[1].problem == "delay is missing"


def test_each_wrong_header_is_one_line_that_says_what_to_write() -> None:
    assert refusal_of("a,b,c", "1,2,3") == (
        "day.csv: its first line does not plainly show vehicle, time, lat, lon, value; write columns such as"
        " vehicle=COLUMN,time=COLUMN,lat=COLUMN,lon=COLUMN,value=COLUMN; `hatcast check` prints that line"
    )
    assert refusal_of("bus,plate,time,lat,lon,speed_kmh") == (
        "day.csv: its columns (those that `hatcast check` prints) do not plainly show vehicle: bus and plate may be"
        " the vehicle; write columns such as vehicle=COLUMN"
    )
    assert refusal_of("vehicle,time,lat,lon,speed", columns=Columns({"vehicle": "no plate"})) == (
        "day.csv: has no column 'no plate', named as vehicle; name one of those that `hatcast check` prints"
    )
    assert "has several columns speed" in refusal_of(
        "vehicle,time,lat,lon,speed,speed", columns=Columns({"value": "speed"})
    )
    assert refusal_of("vehicle,time,lat,lon,speed", ROW) == (
        "unit: the unit of column speed is unknown; name it with `--unit` (in Python `unit`): km/h, m/s, mph or kn"
    )
    assert "delay" in refusal_of("vehicle,time,lat,lon,speed_kmh", ROW, others=("delay",))
    assert refusal_of("") == "day.csv: is empty; use a CSV file with a header"


@pytest.mark.parametrize(
    "row",
    [
        "SECRET-1,2022-01-02T05:29:43Z,52.5,13.4,38",
        "SECRET-1;2022-01-02T05:29:43Z;52,5;13,4;38,0",
        "SECRET-1,02.01.2022 05:29,52.5N,13.4E,38 km/h",
        "SECRET-1,05:29:43,Moltkestr.,stopped,late",
        "SECRET-1,SECRET-2,52.5N",
    ],
)
def test_a_file_without_a_header_is_refused_without_its_data(row: str) -> None:
    refusal = refusal_of(row)
    assert refusal == (
        "day.csv: has a number or a time in its first line, so no header; write columns by number, such as"
        " vehicle=1,time=2"
    )


def test_a_file_without_speeds_leads_to_deriving_them() -> None:
    assert refusal_of("vehicle,time,lat,lon").endswith(
        "do not plainly show value; write columns such as value=COLUMN, or derive the speeds from positions with"
        " `--derive-speed` (in Python `derive_speed`)"
    )


def test_a_file_in_utf_16_is_refused() -> None:
    feed = FormatChoice("csv").format(ValueUnits(), BERLIN)
    with pytest.raises(HatcastError, match="is UTF-16; name it with `--encoding utf-16`, or save it as UTF-8"):
        list(feed.records(io.BytesIO("vehicle,time".encode("utf-16")), "day.csv"))


def test_columns_by_number_need_no_header() -> None:
    columns = Columns.parse("vehicle=1,time=2,lat=3,lon=4,speed=5")
    feed = FormatChoice("csv", Columns(columns.names, unit="km/h")).format(ValueUnits(), BERLIN)
    assert feed.decode(ROW.encode()) == AS_READ
    assert feed.decode(ROW.replace(",", ";").encode()) == AS_READ
    assert feed.decode(b"B 7,2022") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("vehicle=1,time=2", "has no lat, lon"),
        ("vehicle=1,time=2,lat=3,lon=4", "has no value"),
        ("vehicle=0,time=2,lat=3,lon=4,value=5", "has a number that no column has; count columns from 1"),
        ("vehicle=1,time=2,lat=3,lon=10000,value=5", "has a number that no column has; count columns from 1"),
        (f"vehicle=1,time=2,lat=3,lon={'9' * 5_000},value=5", "has a number that no column has"),
    ],
)
def test_columns_by_number_have_to_be_complete(text: str, problem: str) -> None:
    with pytest.raises(HatcastError, match=problem):
        csv_records(ROW, columns=Columns(Columns.parse(text).names, unit="km/h"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("vehicle=plate,time=ts", {"vehicle": "plate", "time": "ts"}),
        ('vehicle=plate, "time=Time, local",speed=v=1', {"vehicle": "plate", "time": "Time, local", "speed": "v=1"}),
        (("vehicle=plate", "lat = y"), {"vehicle": "plate", "lat": "y"}),
        ("", {}),
    ],
)
def test_names_are_parsed(text: str, names: dict[str, str]) -> None:
    columns = Columns.parse(text)
    assert columns.names == names
    assert Columns.parse(columns.text()) == columns


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("vehicle", "'vehicle' is not FIELD=COLUMN"),
        ("vehicle=", "is not FIELD=COLUMN"),
        ("vehicle=a,vehicle=b", "names vehicle twice"),
        ("speed=a,value=b", "one field"),
        ("vehcle=a", "did you mean vehicle"),
    ],
)
def test_wrong_names_are_one_line(text: str, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        FormatChoice("csv", Columns.parse(text)).format(ValueUnits(), BERLIN)


def test_a_wrong_unit_is_one_line() -> None:
    with pytest.raises(SettingError, match="'furlong' is not a unit of speed; use km/h, m/s, mph or kn"):
        csv_records("vehicle,time,lat,lon,speed", ROW, columns=Columns(unit="furlong"))


def test_only_formats_without_fixed_fields_take_columns() -> None:
    with pytest.raises(SettingError, match="itms records have fixed columns"):
        FormatChoice("itms", Columns()).format(ValueUnits(), BERLIN)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("B 7,2022-01-02T05:29:43Z,52.5,13.4,", "value is missing"),
        (",2022-01-02T05:29:43Z,52.5,13.4,3", "vehicle is missing"),
        (
            "B 7,yesterday,52.5,13.4,3",
            "time is not a time of this format: name it with `--time-format`, such as '%d.%m.%Y %H:%M:%S'",
        ),
        ('B 7,2022-01-02T05:29:43Z,"52,5",13.4,3', "lat has a decimal comma: `--decimal ,` reads it"),
        (
            "B 7,2022-01-02T05:29:43Z,52.5,east,3",
            "lon is not a number such as 13.4: no unit, no separator of thousands, no text",
        ),
        ('B 7,"2022', "has an open quote: one too many, or a line break in a cell"),
    ],
)
def test_an_undecodable_row_says_why_without_its_data(row: str, problem: str) -> None:
    [record] = csv_records("vehicle,time,lat,lon,speed_kmh", row)
    assert (record.reading, record.problem) == (None, problem)


def test_json_fields_without_a_column_have_their_own_names() -> None:
    feed = FormatChoice("jsonl", Columns({"vehicle": "bus"}, unit="km/h")).format(ValueUnits(), BERLIN)
    record = b'{"bus":"B 7","time":"2022-01-02T05:29:43Z","lat":52.5,"lon":13.4,%b}'
    assert feed.decode(record % b'"speed":38') == AS_READ
    assert feed.decode(record % b'"value":38') == AS_READ
    assert feed.decode(record % b'"speed":38,"value":39') == AS_READ
    assert feed.decode(record % b'"v":38') is None


def test_a_path_into_json_whose_position_has_thousands_of_digits_finds_nothing() -> None:
    feed = FormatChoice("jsonl", Columns({"lat": f"at.{'9' * 5_000}"}, unit="km/h")).format(ValueUnits(), BERLIN)
    assert feed.decode(b'{"vehicle":"B 7","time":"2022-01-02T05:29:43Z","at":[52.5],"lon":13.4,"value":38}') is None


def test_json_with_none_of_the_columns_is_refused_with_its_keys() -> None:
    feed = FormatChoice("jsonl", Columns({"vehicle": "plate"}, unit="km/h")).format(ValueUnits(), BERLIN)
    with pytest.raises(HatcastError) as raised:
        list(feed.records(io.BytesIO(b'{"bus":"SECRET","pos":{"y":1.25,"xy":[1,2]}}'), "day.jsonl"))
    assert str(raised.value) == (
        "day.jsonl: has none of the columns, but bus, 'pos.y', 'pos.xy.0', 'pos.xy.1'; write columns such as"
        " vehicle=COLUMN,time=COLUMN,lat=COLUMN,lon=COLUMN,value=COLUMN"
    )


def test_no_key_of_another_record_changes_how_a_record_is_read() -> None:
    own = b'{"vehicle":"B 7","time":"2022-01-02T05:29:43Z","lat":52.5,"lon":13.4,"speed":38}'
    other = b'{"bus":"B 8","plate":"x","vehicle":7,"timestamp":1,"latitude":2,"speed_mph":3}'
    feed = FormatChoice("jsonl", Columns(unit="km/h")).format(ValueUnits(), BERLIN)
    for rows in ([own], [other, own], [own, other]):
        records = list(feed.records(io.BytesIO(b"\n".join(rows)), "file"))
        assert [record.reading for record in records if record.raw == own] == [AS_READ]


def test_parquet_is_read_by_its_schema_and_types() -> None:
    table = pa.table(
        {
            "bus_id": pa.array([7, 8, None], pa.float64()),  # with a gap, pandas' integers are floats
            "timestamp": pa.array([1641101383000_500, None, 1641101383000_000], pa.timestamp("us", tz="Asia/Kolkata")),
            "pos": pa.array([{"lat": 52.5, "lon": 13.4}] * 3),
            "speed_mps": pa.array([3, 4, 5], pa.int32()),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file)
    for time_format, expected in ((None, 1641101383000), ("s", None)):  # a timestamp is never an epoch number
        file.seek(0)
        columns = Columns(Columns.parse("lat=pos.lat,lon=pos.lon").names, time_format=time_format)
        feed = FormatChoice("parquet", columns).format(ValueUnits(), BERLIN)
        first = next(parquet_records(file, "rows", feed)).reading
        assert first == (None if expected is None else Reading("7", expected, 52.5, 13.4, 3.0, "m/s"))


def test_parquet_with_a_missing_column_is_refused_by_its_schema() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"bus": [1], "ts": [2]}), file)
    file.seek(0)
    with pytest.raises(HatcastError, match="do not plainly show lat, lon, value"):
        list(parquet_records(file, "rows", FormatChoice("parquet").format(ValueUnits(), BERLIN)))


def test_a_csv_file_is_not_parquet() -> None:
    feed = FormatChoice("parquet").format(ValueUnits(), BERLIN)
    with pytest.raises(HatcastError, match="is not a Parquet file; name its format, such as csv or jsonl"):
        list(feed.records(io.BytesIO(b"vehicle,time"), "day.csv"))


def test_a_format_for_derived_speeds_needs_no_column_of_speeds() -> None:
    expected = Reading("B 7", 1641101383000, 52.5, 13.4, MISSING, "km/h")
    for header in ("vehicle,time,lat,lon,driver", "vehicle,time,lat,lon,speed_kmh"):
        feed = FormatChoice("csv").format(ValueUnits(), BERLIN).without_speed
        assert feed is not None
        row = ROW.rpartition(",")[0] + ","
        [record] = feed.records(io.BytesIO(f"{header}\n{row}".encode()), "day.csv")
        assert record.reading == expected
    feed = FormatChoice("jsonl", Columns()).format(ValueUnits(), BERLIN).without_speed
    assert feed is not None
    assert feed.decode(b'{"vehicle":"B 7","time":1641101383,"lat":52.5,"lon":13.4}') == expected


def test_speeds_of_json_need_a_unit() -> None:
    feed = FormatChoice("jsonl", Columns({"vehicle": "bus"})).format(ValueUnits(), BERLIN)
    assert feed.decode(b'{"bus":"B 7","time":1641101383,"lat":52.5,"lon":13.4,"speed":3}') is None
    with pytest.raises(
        HatcastError,
        match=r"the unit of the speeds is unknown; name it with `--unit` \(in Python `unit`\): km/h",
    ):
        feed.records(io.BytesIO(b""), "day.jsonl")


@pytest.mark.parametrize("name", ["value", "pm25"])
def test_a_policy_of_another_value_has_its_unit(name: str) -> None:
    expected = ValueReading("B 7", 1641101383000, 52.5, 13.4, -3.5, "ug/m3")
    units = ValueUnits(single=("pm25", "ug/m3"))
    for unit in (None, "ug/m3"):
        feed = FormatChoice("csv", Columns({name: "v"}, unit=unit)).format(units, BERLIN)
        rows = f"vehicle,time,lat,lon,speed_kmh,v\n{ROW},-3.5"
        assert [record.reading for record in feed.records(io.BytesIO(rows.encode()), "day.csv")] == [expected]
    with pytest.raises(SettingError, match="unit: 'mg/m3' is not the unit of pm25 in the policy, ug/m3; remove it"):
        FormatChoice("jsonl", Columns({name: "v"}, unit="mg/m3")).format(units, BERLIN)


def test_another_value_is_found_by_its_own_name_and_never_in_a_speed() -> None:
    feed = FormatChoice("csv").format(ValueUnits(single=("pm25", "ug/m3")), BERLIN)
    [record] = feed.records(io.BytesIO(f"vehicle,time,lat,lon,speed_kmh,PM25\n{ROW},-3.5".encode()), "day.csv")
    assert record.reading is not None
    assert record.reading.speed == -3.5
    with pytest.raises(HatcastError, match="do not plainly show value"):
        list(feed.records(io.BytesIO(f"vehicle,time,lat,lon,speed_kmh\n{ROW}".encode()), "day.csv"))
    assert feed.without_speed is None


def test_a_speed_is_never_read_as_another_value() -> None:
    with pytest.raises(SettingError, match="'speed' is not a field; use one of vehicle, time, lat, lon, pm25, arrival"):
        FormatChoice("csv", Columns({"speed": "v"})).format(ValueUnits(single=("pm25", "ug/m3")), BERLIN)


def test_both_names_of_a_value_are_refused() -> None:
    with pytest.raises(SettingError, match="names both value and pm25"):
        FormatChoice("csv", Columns({"value": "a", "pm25": "b"})).format(ValueUnits(single=("pm25", "x")), BERLIN)


@pytest.mark.parametrize("value", ["value", "speed"])
def test_an_unknown_field_is_refused_beside_either_name_of_the_value(value: str) -> None:
    for name, fix in (("foo", "use one of"), ("arival", "did you mean arrival?")):
        with pytest.raises(SettingError, match=f"'{name}' is not a field; {re.escape(fix)}"):
            FormatChoice("csv", Columns({value: "v", name: "w"})).format(ValueUnits(), BERLIN)
