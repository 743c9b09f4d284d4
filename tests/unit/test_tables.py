"""Published records as tables: no digit and no field is lost, in any format."""

import csv
import io
import json
from collections.abc import Sequence
from itertools import pairwise

import h3
import msgspec
import pytest

from hatcast.agents.tables.arrow import table_of_records
from hatcast.agents.tables.columns import Layout, Mixed, Table, figures_of, layout_of, row_of
from hatcast.agents.tables.lines import csv_of_records, feature_of, features_of, geometry
from hatcast.agents.tables.records import ANSWERS, ESTIMATES, RELEASES, TABLES
from tools.schemas import FOLDER as SCHEMAS
from tools.schemas.asyncapi import version
from tools.schemas.golden import read_golden

GOLDENS = SCHEMAS / "golden" / version()
_KINDS = {"means": "release", "estimates": "estimate", "queries": "query", "budget": "budget", "running": "running"}
CELL = "87608b0d2ffffff"


def goldens(topic: str) -> list[bytes]:
    return [bytes(read_golden(path).value) for path in sorted((GOLDENS / _KINDS[topic]).glob("*.json"))]


def lines(layout: Layout, records: Sequence[bytes]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_of_records(layout, records).decode(), newline="")))


def with_digits(record: bytes, **texts: str) -> bytes:
    """A record with other digits of some numbers, byte for byte."""
    fields = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
    return msgspec.json.encode(fields | {name: msgspec.Raw(text.encode()) for name, text in texts.items()})


@pytest.mark.parametrize("topic", TABLES)
def test_every_golden_record_is_a_row_of_its_own_table_only(topic: str) -> None:
    for record in goldens(topic):
        assert [name for name, table in TABLES.items() if row_of(table, record) is not None] == [topic]
        assert [name for name, table in TABLES.items() if table.values(record) is not None] == [topic]


@pytest.mark.parametrize("topic", TABLES)
def test_a_row_has_the_whole_record_and_arrow_the_same_values(topic: str) -> None:
    table, records = TABLES[topic], goldens(topic)
    rows = table_of_records(table, records).to_pylist()
    assert [row["record"].encode() for row in rows] == records
    for row, line in zip(rows, lines(table, records), strict=True):
        for name, value in row.items():
            text = line[name]
            if value is None:
                assert text == ""
            elif isinstance(value, bool):
                assert text == str(value).lower()
            elif isinstance(value, float):
                assert float(text) == value
            elif isinstance(value, int | str):
                assert text == str(value)


def test_csv_has_the_digits_of_the_record() -> None:
    record = with_digits(
        released(),
        mean="42.500",
        raw="-0.10",
        interval95="[40.10,44.9000]",
        epsilon="1e-05",
        seq="12345678901234567890",
    )
    [line] = lines(RELEASES, [record])
    found = {name: line[name] for name in ("mean", "raw", "low", "high", "epsilon")}
    assert found == {"mean": "42.500", "raw": "-0.10", "low": "40.10", "high": "44.9000", "epsilon": "1e-05"}
    assert line["record"].encode() == record
    assert line["start"] == "2022-01-02T09:00:00+05:30"


def test_a_text_that_csv_quotes_is_read_back() -> None:
    record = with_digits(released(), estimator='"a, \\"b\\"\\nc"')
    assert lines(RELEASES, [record])[0]["estimator"] == 'a, "b"\nc'


@pytest.mark.parametrize("record", [b"{}", b"[]", b"", b"\xff", b'{"release_id":1}'])
def test_anything_else_is_left_out(record: bytes) -> None:
    for layout in (RELEASES, Mixed([RELEASES, ANSWERS, ESTIMATES])):
        assert layout.values(record) is None
        assert table_of_records(layout, [record]).num_rows == 0
        assert csv_of_records(layout, [record]).count(b"\n") == 1
        assert features_of(layout, [record]) == []


def test_a_date_that_does_not_exist_is_no_row() -> None:
    record = with_digits(released(), date='"2022-13-45"')
    assert row_of(RELEASES, record) is None


def test_several_kinds_share_a_table_and_each_row_names_its_own() -> None:
    layout = layout_of([RELEASES, ANSWERS, ESTIMATES])
    records = [each for topic in ("means", "queries", "estimates") for each in goldens(topic)]
    found = table_of_records(layout, records).to_pylist()
    assert len(found) == len(records)
    for own, topic in ((RELEASES, "means"), (ANSWERS, "queries"), (ESTIMATES, "estimates")):
        mixed = [row for row in found if row["table"] == own.name]
        alone = table_of_records(own, goldens(topic)).to_pylist()
        assert [{name: row[name] for name in own_names(own)} for row in mixed] == alone
    assert [each.name for each in layout.columns][-1] == "record"
    assert layout_of([RELEASES]) is RELEASES


def test_columns_of_one_name_have_one_type() -> None:
    types: dict[str, set[object]] = {}
    for table in TABLES.values():
        for column in table.columns:
            types.setdefault(column.name, set()).add(column.type)
    assert {name for name, found in types.items() if len(found) > 1} == set()


def test_a_feature_is_the_records_bytes_and_its_cell() -> None:
    record = with_digits(released(), mean="42.500")
    feature = feature_of(RELEASES, record)
    assert feature is not None
    assert b'"properties":' + record in feature
    read = json.loads(feature)
    assert (read["type"], read["id"]) == ("Feature", json.loads(record)["release_id"])
    [ring] = read["geometry"]["coordinates"]
    assert ring[0] == ring[-1]
    assert {tuple(place) for place in ring} == {(lon, lat) for lat, lon in h3.cell_to_boundary(CELL)}


@pytest.mark.parametrize(
    "cell",
    [
        CELL,
        h3.latlng_to_cell(-17.0, 180.0, 5),
        h3.latlng_to_cell(-17.0, 179.97, 5),
        h3.latlng_to_cell(65.0, -180.0, 2),
        h3.latlng_to_cell(90.0, 0.0, 4),
        h3.latlng_to_cell(-90.0, 0.0, 0),
        *h3.get_res0_cells(),
    ],
)
def test_a_polygon_is_counterclockwise_within_180_degrees_and_has_its_cell(cell: str) -> None:
    found = json.loads(bytes(geometry(cell)))
    polygons = [found["coordinates"]] if found["type"] == "Polygon" else found["coordinates"]
    for [ring] in polygons:
        assert ring[0] == ring[-1]
        assert sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) > 0, "RFC 7946 wants counterclockwise"
        longitudes = [place[0] for place in ring]
        assert min(longitudes) >= -180
        assert max(longitudes) <= 180
        assert max(longitudes) - min(longitudes) < (360 if len(polygons) > 1 else 180)
    latitude, longitude = h3.cell_to_latlng(cell)
    assert sum(contains(ring, longitude, latitude) for [ring] in polygons) == 1


def contains(ring: Sequence[Sequence[float]], x: float, y: float) -> bool:
    """Whether a ring contains a place: a ray to the east crosses it an odd number of times."""
    crossed = [
        (a[1] > y) != (b[1] > y) and x < a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0]) for a, b in pairwise(ring)
    ]
    return sum(crossed) % 2 == 1


def test_a_cell_that_does_not_exist_has_no_polygon() -> None:
    assert bytes(geometry("fffffffffffffff")) == b"null"


def test_figures_are_a_table_of_their_fields() -> None:
    rows = [
        {"name": "a", "error": 1.50, "runs": 3, "ok": True, "steps": [1, 2]},
        {"name": "b", "error": 2, "runs": None, "more": 0.1},
    ]
    table, records = figures_of(rows)
    assert [(each.name, each.type.name) for each in table.columns] == [
        ("name", "TEXT"),
        ("error", "NUMBER"),
        ("runs", "COUNT"),
        ("ok", "FLAG"),
        ("more", "NUMBER"),
        ("steps", "TEXT"),
    ]
    assert csv_of_records(table, records) == b'name,error,runs,ok,more,steps\na,1.5,3,true,,"[1,2]"\nb,2,,,0.1,\n'
    assert table_of_records(table, records).to_pylist()[1] == {
        "name": "b",
        "error": 2.0,
        "runs": None,
        "ok": None,
        "steps": None,
        "more": 0.1,
    }
    with pytest.raises(ValueError, match="no rows"):
        figures_of([])


def released() -> bytes:
    return bytes(read_golden(GOLDENS / "release" / "replace_released.json").value)


def own_names(table: Table) -> list[str]:
    return [each.name for each in table.columns]
