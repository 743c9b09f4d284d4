"""Values as people have them: numbers and texts that say that there is none, and rows that lack a field."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.cli.budget_explained import _hidden
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import FORMATS, FormatChoice
from hatcast.stream.readings.reading import MISSING
from tests.wild import batch, config, outcomes, policy_in, rows

PM = """
[policy.value]
name = "pm25"
unit = "ug/m3"
lower = 0
upper = 500
missing = [{}]
"""
SENSORS = "vehicle,time,lat,lon,pm25\n"


def sensors(folder: Path, *values: object) -> Path:
    return rows(
        folder, *(f"S{n},2024-05-06T10:00:00Z,48.6,9.4,{each}" for n, each in enumerate(values)), header=SENSORS
    )


def pm_config(folder: Path, missing: str = "-999") -> Path:
    return config(folder, "Europe/Berlin", more=PM.format(missing))


def test_f06_a_number_that_says_that_there_is_none_does_not_count(tmp_path: Path) -> None:
    file = sensors(tmp_path, 20, 22, -999, "-999.0")
    done = batch(pm_config(tmp_path), file, "--format", "csv")
    assert outcomes(done) == {"accepted": 2, "bad_value": 2}
    [[users, readings, total, greatest]] = json.loads(done.stdout)["hats"].values()
    assert (users, readings, total / readings, greatest) == (2, 2, 21_000, 22_000)
    assert outcomes(batch(pm_config(tmp_path, ""), file, "--format", "csv")) == {"accepted": 4}


def test_f06_what_is_missing_is_part_of_the_policy(tmp_path: Path) -> None:
    ids = [policy_in(pm_config(tmp_path, missing)).policy_id for missing in ("", "-999", "-999, -1", "-1, -999.0, -1")]
    assert ids[2] == ids[3]
    assert len(set(ids)) == 3
    plain = pm_config(tmp_path, "")
    plain.write_text(plain.read_text().replace("missing = []\n", ""))
    assert policy_in(plain).policy_id == ids[0]


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("0", "0 is a value from lower to upper; list numbers outside that range, such as -999"),
        ("500.0", "500 is a value from lower to upper; list numbers outside that range, such as -999"),
        ("inf", "inf is too large; use at most 1e+12"),
        (", ".join(map(str, range(-9, 0))), "lists 9 numbers; list at most 8"),
    ],
)
def test_f06_a_value_of_the_range_is_not_missing(tmp_path: Path, missing: str, problem: str) -> None:
    with pytest.raises(HatcastError) as refused:
        policy_in(pm_config(tmp_path, missing))
    assert str(refused.value).endswith(f": policy.value.missing: {problem}")


def test_f06_of_several_values_a_record_with_a_missing_one_counts_for_none(tmp_path: Path) -> None:
    values = 'values = ["speed", "delay"]\nupper_bound = 65.0\nreject_above = "none"'
    table = '[[policy.value]]\nname = "delay"\nunit = "s"\nlower = -600\nupper = 3600\nmissing = [-999]\n'
    header = "vehicle,time,lat,lon,speed_kmh,delay\n"
    file = rows(tmp_path, *(f"B{each},2024-05-06T10:00:00Z,52.5,13.4,30,{each}" for each in (30, -999)), header=header)
    done = batch(config(tmp_path, more=f"{values}\n{table}"), file, "--format", "csv")
    assert outcomes(done) == {"accepted": 1, "undecodable": 1}


def test_f06_it_is_listed_as_public(tmp_path: Path) -> None:
    assert "which of its readings lack a value" in _hidden(policy_in(pm_config(tmp_path)))
    assert "which of its readings lack a value" not in _hidden(policy_in(pm_config(tmp_path, "")))


SHIFTED = ("2024-05-06T10:00:00Z;B1;open;52.5;13.4;30;90", "2024-05-06T10:01:00Z;B1;52.5;13.4;28;90")


def test_f05_a_row_without_one_of_its_fields_is_not_read_shifted(tmp_path: Path) -> None:
    file = rows(tmp_path, *SHIFTED, header="time;vehicle;door;lat;lon;speed_kmh;heading\n")
    done = batch(config(tmp_path), file, "--format", "csv")
    assert outcomes(done) == {"accepted": 1, "undecodable": 1}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("B1,2024-05-06T10:00:00Z,52.5,13.4,30", None),
        ("B1,2024-05-06T10:00:00Z,52.5,13.4,30,, ", None),
        (
            "B1,2024-05-06T10:00:00Z,52.5,13.4,30,Mitte",
            "has 6 fields, the header 5: one is left out, or has a separator without quotes",
        ),
        (
            "B1,2024-05-06T10:00:00Z,52.5,13.4",
            "has 4 fields, the header 5: one is left out, or has a separator without quotes",
        ),
        ('B1,2024-05-06T10:00:00Z,52.5,13.4,"30', "has an open quote: one too many, or a line break in a cell"),
    ],
)
def test_f05_fields_beyond_the_header_are_empty_or_shift_a_row(tmp_path: Path, row: str, problem: str | None) -> None:
    feed = policy_format(FormatChoice("csv"), policy_in(config(tmp_path)))
    [record] = feed.records(io.BytesIO(f"vehicle,time,lat,lon,speed_kmh\n{row}\n".encode()), "file")
    assert record.problem == problem
    assert (record.reading is None) == (problem is not None)


FIXED = {
    "capmetro": "vehicle_id,timestamp,speed,route_id,trip_id,latitude,longitude,trip_headsign\n"
    "2619,2017-03-21T00:00:31-05:00,17.4,1,30.1,-97.7,S\n",
    "itms": "license_plate,trip,observationDateTime,speed,location.coordinates\n"
    '7,2022-01-02T05:29:43+05:30,8,"[72.8, 21.2]"\n',
}


@pytest.mark.parametrize("name", sorted(FIXED))
def test_f05_fixed_formats_of_csv_see_it_too(name: str) -> None:
    [record] = FORMATS[name].records(io.BytesIO(FIXED[name].encode()), "file")
    assert record.reading is None
    assert record.problem is not None
    assert record.problem.startswith("has ")


@pytest.mark.parametrize("cell", ["NULL", r"\N", "", "N/A", "-", "None"])
def test_f19_a_text_for_no_speed_is_an_empty_cell_and_is_derived(tmp_path: Path, cell: str) -> None:
    file = rows(tmp_path, *(f"B1,2024-05-06T10:0{n}:00Z,52.5{n},13.4,{cell}" for n in range(5)))
    done = batch(config(tmp_path), file, "--format", "csv", "--derive-speed")
    assert outcomes(done) == {"accepted": 4, "undecodable": 1}


POSITIONS = {
    "capmetro": b"2619,2017-03-21T00:00:31-05:00,NULL,1,1723912,30.1,-97.7,S",
    "jsonl": b'{"vehicle":"B1","time":"2024-05-06T12:00:00Z","lat":52.5,"lon":13.4,"speed":"NULL"}',
    "siri": b'{"RecordedAtTime":"2026-03-12T09:30:47Z","MonitoredVehicleJourney":{"VehicleRef":"1","Velocity":"NULL",'
    b'"VehicleLocation":{"Longitude":10.7,"Latitude":59.9}}}',
}


@pytest.mark.parametrize("name", sorted(POSITIONS))
def test_f19_fixed_formats_take_it_for_empty_too(name: str) -> None:
    positions: Any = FORMATS[name].without_speed
    reading = positions.decode(POSITIONS[name])
    assert reading is not None
    assert reading.speed is MISSING
    assert FORMATS[name].decode(POSITIONS[name]) is None
