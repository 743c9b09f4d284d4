"""docs/feeds.md: each of its commands reads a file of the kind that its line names."""

import gzip
import itertools
import json
import re
import shlex
import shutil
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from hatcast.stream.readings.formats import Columns, FormatChoice
from hatcast.stream.readings.reading import Reading, ValueUnits
from tests.commands import problem_of
from tests.invoked import run
from tests.services.data import ROOT
from tests.wild import HEADER, WILD, config, outcomes

_PAGE = (ROOT / "docs" / "feeds.md").read_text()
COMMANDS = re.findall(r"^\|.*\| `(hatcast batch .*)` \|$", _PAGE, re.MULTILINE)
VALUE = '[policy.value]\nname = "pm25"\nunit = "ug/m3"\nlower = 0\nupper = 500\n'
T = "2024-05-06T10:00:00Z"
ROW = f"B1,{T},52.5,13.4,30\n"
READING = {"vehicle": "B1", "time": T, "lat": 52.5, "lon": 13.4, "speed": 30}
PLACE = {"type": "Point", "coordinates": [13.4, 52.5]}


def bikes(second: int) -> dict[str, Any]:
    bike = {"bike_id": "r0", "lat": 52.5 + second / 1e5, "lon": 13.4, "last_reported": 1714989590 + second}
    return {"ttl": 60, "data": {"bikes": [bike]}}


POSITION = {"latitude": 52.5, "longitude": 13.4, "speed": 5.0}
FILES: dict[str, Any] = {
    "gtfs_rt.json": {
        "header": {"timestamp": "1714989600"},
        "entity": [{"id": "0", "vehicle": {"position": POSITION, "timestamp": "1714989590", "vehicle": {"id": "V0"}}}],
    },
    "gbfs.json": "\n".join(json.dumps(bikes(second)) for second in (0, 60)),
    "features.json": {"features": [{"geometry": PLACE, "properties": {"id": "v0", "speed": 20, "t": T}}]},
    "entities.json": [
        {
            "id": "urn:ngsi-ld:Vehicle:1",
            "type": "Vehicle",
            "speed": {"type": "Property", "value": 50, "observedAt": T},
            "location": {"type": "GeoProperty", "value": PLACE},
        }
    ],
    "fleet.json": {"GJ05": READING | {"vehicle": None}, "GJ06": READING},
    "ais.csv": "MMSI,BaseDateTime,LAT,LON,SOG,COG\n367123450,2024-05-06T10:00:00,52.5,13.4,12.5,90.0\n",
    "vehicle_locations.csv": "location_ping_id,event_timestamp,vehicle_id,latitude,longitude,speed,in_service\n"
    f"1,{T},B1,52.5,13.4,8.5,In passenger service\n2,{T},B2,52.5,13.4,8.5,On a layover\n",
    "sensor_community.csv": "sensor_id;sensor_type;location;lat;lon;timestamp;P1;durP1;ratioP1;P2;durP2;ratioP2\n"
    "140;SDS011;62;48.7;9.1;2024-05-06T10:00:07;20.5;;;12.3;;\n",
    "openaq.csv.gz": "location_id,sensors_id,location,datetime,lat,lon,parameter,units,value\n"
    '7,1,A,"2024-05-06T01:00:00-07:00",35.1,-106.6,pm10,µg/m³,20\n'
    '7,2,A,"2024-05-06T01:00:00-07:00",35.1,-106.6,pm25,µg/m³,8\n',
    "bigquery.csv": HEADER + ROW.replace(T, "2024-05-06 10:00:00 UTC"),
    "excel.csv": "sep=;\n" + HEADER.replace(",", ";") + "B1;2024-05-06T10:00:00Z;52,5;13,4;30,5\n",
    "latin.csv": (HEADER.strip() + ",dest\n" + ROW.strip() + ",Köpenick\n").encode("cp1252"),
    "report.csv": f"Report: AVL\n\n{HEADER}{ROW}",
    "bare.csv": ROW,
}
COUNTED = {"gbfs.json": {"accepted": 1, "undecodable": 1}, "fleet.json": {"accepted": 2}}


def write(folder: Path, name: str) -> None:
    content = FILES[name]
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_reads_what_its_line_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)
    assert problem_of(words) is None
    for name in FILES:
        write(tmp_path, name)
    times = "rt_no_vehicle_time.pb" if "--header-time" in words else "rt_header_zero.pb"
    shutil.copy(WILD / times, tmp_path / "poll.pb")
    local = (WILD / "siri_no_offset.xml").read_text()
    dated = local if "--times-in" in words else re.sub(r"(:[0-9]{2})</", r"\1Z</", local)
    (tmp_path / "siri.xml").write_text(dated)
    config(tmp_path, more=VALUE).rename("pm.toml")
    policy = () if "--config" in words else ("--config", config(tmp_path))
    done = run(*words[1:], *policy, "--json")
    assert done.exit_code == 0, done.output
    expected = COUNTED | {"poll.pb": {"accepted": 3}, "siri.xml": {"accepted": 2}}
    assert outcomes(done) == expected.get(words[2], {"accepted": 1})


def test_the_table_has_a_recipe_for_each_file_here() -> None:
    named = {shlex.split(command)[2] for command in COMMANDS}
    assert named == {*FILES, "poll.pb", "siri.xml"}
    table = _PAGE.partition("| what you have | what to type |")[2].partition("\n\n")[0]
    assert len(table.splitlines()) - 2 == len(COMMANDS) + 2, "the two others are below"


def test_the_line_of_a_sensor_leaves_its_number_for_no_value_out(tmp_path: Path) -> None:
    [missing] = re.findall(r"\| `(missing = .*?)` in", _PAGE)
    path = tmp_path / "pm.csv"
    path.write_text(f"vehicle,time,lat,lon,pm25\nS1,{T},52.5,13.4,20\nS2,{T},52.5,13.4,-999\n")
    found = run("batch", path, "--config", config(tmp_path, more=f"{VALUE}{missing}\n"), "--contributions", "--json")
    assert outcomes(found) == {"accepted": 1, "bad_value": 1}


def test_the_line_of_mqtt_reads_a_message_by_its_topic() -> None:
    [command] = re.findall(r"\| `(hatcast feed mqtt .*)` \|$", _PAGE, re.MULTILINE)
    words = shlex.split(command)
    assert problem_of(words) is None
    given = dict(itertools.pairwise(words))
    columns = Columns(Columns.parse(given["--columns"]).names, given["--unit"])
    feed = FormatChoice(given["--format"], columns).format(ValueUnits(), UTC, live=True)
    body = json.dumps({name: value for name, value in READING.items() if name != "vehicle"}).encode()
    [record] = feed.split(body, given["--topic"].replace("+", "B1"))
    assert feed.decode(record) == Reading("B1", 1714989600000, 52.5, 13.4, 30.0)
