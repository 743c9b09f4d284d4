"""Files that spreadsheets and maps open: one short table each, in the forms that they read."""

import csv
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest
from click.testing import CliRunner

from hatcast.agents.cli import hatcast
from hatcast.agents.tables.files import FilesOf, Written
from hatcast.agents.tables.lines import CsvStyle
from hatcast.agents.tables.records import ANSWERS, ESTIMATES, RELEASES, RUNNING_MEANS, TABLES, short
from hatcast.agents.timetable.network import Stop, place_names
from hatcast.stream.errors import HatcastError
from tests.displaying import CELLS, answered, estimate, release, running
from tests.stored_map import ledger_in
from tests.unit.test_tables import goldens

PLACED = [RELEASES, ESTIMATES, RUNNING_MEANS, ANSWERS]
KINDS = [release(0), estimate(0), running(0), answered()]


def written(
    path: Path, tables: Sequence[Any], records: Sequence[bytes], how: Written
) -> dict[str, list[dict[str, str]]]:
    """The rows of each CSV file, by its name."""
    with FilesOf(path, tables, how) as files:
        for record in records:
            assert files.write(record)
    found = {}
    for each in sorted(path.parent.glob(f"*{path.suffix}")):
        with each.open(encoding=how.style.encoding, newline="") as file:
            found[each.name] = list(csv.DictReader(file, delimiter=";" if how.style.decimal == "," else ","))
    return found


@pytest.mark.parametrize("topic", ["means", "estimates", "running", "queries"])
def test_every_golden_record_has_a_row_with_the_digits_of_its_value_and_no_json(topic: str) -> None:
    table = short(TABLES[topic])
    for record in goldens(topic):
        row, whole = table.values(record), TABLES[topic].values(record)
        assert row is not None
        assert whole is not None
        assert row["value"] == whole["mean"]
        assert (row["hexagon"], row["date"]) == (whole["cell"], whole["date"])
        assert not any(str(value).startswith(("{", "[")) for value in row.values())


def test_each_kind_of_record_has_a_file_of_its_own_from_its_first_record_on(tmp_path: Path) -> None:
    found = written(tmp_path / "out.csv", PLACED[:3], [release(0), running(0), release(1)], Written())
    assert {name: len(rows) for name, rows in found.items()} == {"out.csv": 2, "out.running.csv": 1}
    first = found["out.csv"][0]
    latitude, longitude = h3.cell_to_latlng(CELLS[0])
    assert first == {
        "hexagon": CELLS[0],
        "latitude": f"{latitude:.6f}",
        "longitude": f"{longitude:.6f}",
        "date": "2022-01-02",
        "hour": "09:00-10:00",
        "quantity": "speed while moving",
        "value": "21.870",
        "low": "20.370",
        "high": "23.370",
        "unit": "km/h",
        "basis": "released",
        "settlement": "false",
        "pulse": "false",
        "start": "2022-01-02T09:00:00+05:30",
        "end": "2022-01-02T10:00:00+05:30",
    }
    assert found["out.running.csv"][0]["name"] == "today"


def test_a_decimal_comma_comes_with_semicolons_and_touches_numbers_only(tmp_path: Path) -> None:
    how = Written(CsvStyle("utf-8-sig", ","), place=lambda _: "Café 1.5; A")
    found = written(tmp_path / "out.csv", [RELEASES], [release(0)], how)
    [row] = found["out.csv"]
    assert (row["value"], row["place"], row["hour"]) == ("21,870", "Café 1.5; A", "09:00-10:00")
    assert (tmp_path / "out.csv").read_bytes().startswith(b"\xef\xbb\xbfhexagon;")
    found = written(
        tmp_path / "old.csv", [RELEASES], [release(0)], Written(CsvStyle("latin-1"), place=lambda _: "Café 橋")
    )
    assert found["old.csv"][0]["place"] == "Café ?"


def test_all_fields_are_written_if_asked_for(tmp_path: Path) -> None:
    [row] = written(tmp_path / "out.csv", [RELEASES], [release(0)], Written(whole=True))["out.csv"]
    assert row["record"].encode() == release(0)


@pytest.mark.parametrize("kind", range(4))
def test_geojson_has_flat_properties_with_numbers_as_written(kind: int, tmp_path: Path) -> None:
    path = tmp_path / "out.geojson"
    with FilesOf(path, [PLACED[kind]], Written()) as files:
        files.write(KINDS[kind])
    [feature] = json.loads(path.read_text())["features"]
    properties = feature["properties"]
    assert not [name for name, value in properties.items() if isinstance(value, dict | list)]
    assert {type(properties[name]) for name in ("value", "low", "high", "latitude", "longitude")} == {float}
    assert properties["hexagon"] == CELLS[0]
    assert feature["geometry"]["type"] == "Polygon"
    if kind == 0:
        assert '"value":21.870,' in path.read_text()


def test_a_sheet_has_numbers_dates_and_a_header_that_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    with FilesOf(path, [RELEASES], Written(place=lambda _: "=1+1")) as files:
        assert files.write(release(0))
        assert files.write(release(1, mean=None))
        assert not files.write(b"{}")
    with zipfile.ZipFile(path) as book:
        sheet = book.read("xl/worksheets/sheet1.xml").decode()
    cells = dict(re.findall(r'<c r="(\w+)"[^>]*>(.*?)</c>', sheet))
    names = {re.sub("<.*?>", "", text): place[:-1] for place, text in cells.items() if place[1:] == "1"}
    assert cells[f"{names['value']}2"] == "<v>21.87</v>"
    assert cells[f"{names['date']}2"] == "<v>44563</v>"  # 2022-01-02
    assert "<t>=1+1</t>" in cells[f"{names['place']}2"], "a text is never a formula"
    assert f"{names['value']}3" not in cells
    assert 'state="frozen"' in sheet
    assert "autoFilter" in sheet


def test_a_place_is_that_of_the_stop_with_most_routes_and_else_of_the_nearest_around() -> None:
    centre = h3.cell_to_latlng(CELLS[0])
    beside = sorted(set(h3.grid_disk(CELLS[0], 1)) - {CELLS[0]})[0]
    place = place_names(
        [
            Stop("Small", centre, ["1"]),
            Stop("Far", (centre[0] + 0.002, centre[1]), ["1", "2"]),
            Stop("Large", (centre[0] + 0.001, centre[1]), ["1", "2"]),
        ]
    )
    assert place(CELLS[0]) == "near Large"
    assert place(beside) in ("near Small", "near Large", "near Far"), "the nearest of the hexagon beside it"
    assert place("8742d9999ffffff") is None
    assert place("no cell") is None


def test_batch_writes_the_tables_of_a_run_and_takes_no_file_of_another(tmp_path: Path) -> None:
    path, _ = ledger_in(tmp_path)

    def run(name: str, *options: str) -> Any:
        given = [
            tmp_path / "rides.jsonl",
            "--config",
            tmp_path / "hatcast.toml",
            "--ledger",
            path,
            "-o",
            tmp_path / name,
        ]
        return CliRunner(catch_exceptions=False).invoke(hatcast, ["batch", *map(str, given), *options])

    done = run("out.csv", "--output-decimal", ",")
    assert done.exit_code == 0, done.output
    assert [*map(str, sorted(each.name for each in tmp_path.glob("out*")))] == [
        "out.answers.csv",
        "out.csv",
        "out.running.csv",
    ]
    with (tmp_path / "out.running.csv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    keys = [(row["name"], row["hexagon"], row["date"], row["hour"]) for row in rows]
    assert len(set(keys)) == len(keys) == 12 + 6
    assert {(row["hour"], row["slots"]) for row in rows if row["name"] == "midday"} == {("12:00-14:00", "2")}
    assert all(re.fullmatch(r"\d+,\d+", row["value"]) for row in rows)
    (tmp_path / "new.answers.csv").write_text("mine")
    with pytest.raises(HatcastError, match=r"new\.answers\.csv exists already"):
        run("new.csv")
    assert not (tmp_path / "new.csv").exists()
