"""SIRI-VM: deliveries in XML and JSON to activities to readings; made-up vehicles in the published structure."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.cli import hatcast
from hatcast.stream.readings.formats import FORMATS, Recorded, _deliveries, siri
from tests.services.data import ROOT
from tests.siri_deliveries import DELIVERED_MS, SAMPLES, SEVEN, TIME, activity, decoded, delivery, in_json, read


@pytest.mark.parametrize(
    "attributes",
    ["", ' xmlns="http://www.siri.org.uk/siri" version="2.0"', ' xmlns="http://www.siri.org.uk/" version="1.3"'],
)
def test_an_activity_is_read_in_any_namespace(attributes: str) -> None:
    [recorded] = read(delivery(activity(), attributes=attributes))
    assert recorded == Recorded(siri.split(delivery(activity()).encode())[0], SEVEN, DELIVERED_MS)


def test_prefixes_and_other_prefixed_elements_change_nothing() -> None:
    names = ' xmlns:s="http://www.siri.org.uk/siri" xmlns:x="http://www.w3.org/2001/XMLSchema-instance"'
    body = f"<s:Siri{names}><s:ServiceDelivery>{activity('s:')}</s:ServiceDelivery></s:Siri>"
    assert [each.reading for each in read(body)] == [SEVEN]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_an_activity_is_the_same_in_every_encoding(encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?>\n{delivery(activity(VehicleRef="Flèche 7"))}'
    [recorded] = read(text.encode(encoding))
    assert recorded.reading is not None
    assert recorded.reading.vehicle == "Flèche 7"
    assert siri.split(text.encode(encoding)) == [recorded.raw]


@pytest.mark.parametrize("field", ["RecordedAtTime", "Longitude", "Latitude", "Velocity", "VehicleRef"])
def test_an_activity_without_time_place_speed_or_vehicle_is_undecodable(field: str) -> None:
    assert decoded() == SEVEN
    assert decoded(**{field: None}) is None
    assert decoded(**{field: " "}) is None


def test_a_vehicle_that_runs_for_two_operators_is_one_vehicle() -> None:
    assert decoded(OperatorRef="A") == decoded(OperatorRef="B") == SEVEN


def test_the_time_of_a_place_is_preferred_to_that_of_the_record() -> None:
    found = decoded(LocationRecordedAtTime="2026-03-12T09:30:40+01:00")
    assert found is not None
    assert found.time == "2026-03-12T09:30:40+01:00"


def test_the_place_of_a_stop_is_not_the_place_of_the_vehicle() -> None:
    stop = "<MonitoredCall><VehicleLocation><Longitude>1</Longitude><Latitude>2</Latitude></VehicleLocation>"
    stop += "<VehicleRef>8</VehicleRef></MonitoredCall>"
    body = delivery(activity().replace("<Velocity>", f"{stop}<Velocity>"))
    assert [each.reading for each in read(body)] == [SEVEN]


@pytest.mark.parametrize(
    "changes",
    [
        {"VehicleRef": {"value": "7"}},
        {"Velocity": "9"},
        {"Velocity": {"value": 9}},
        {"Velocity": {"value": "9.0"}},
        {"VehicleLocation": {"Longitude": "10.75", "Latitude": {"value": 59.9}}},
        {"RecordedAtTime": {"value": TIME}},
    ],
    ids=str,
)
def test_values_in_json_may_be_wrapped_or_text(changes: dict[str, Any]) -> None:
    assert siri.decode(in_json(**changes)) == SEVEN


@pytest.mark.parametrize(
    "outer",
    [
        lambda each: {"Siri": {"ServiceDelivery": {"VehicleMonitoringDelivery": [{"VehicleActivity": [each]}]}}},
        lambda each: {"Siri": {"ServiceDelivery": {"VehicleMonitoringDelivery": {"VehicleActivity": each}}}},
        lambda each: {"ServiceDelivery": {"VehicleMonitoringDelivery": [{"VehicleActivity": [each]}, {}]}},
        lambda each: {"VehicleMonitoringDelivery": {"VehicleActivity": [each]}},
        lambda each: {"VehicleActivity": [each]},
        lambda each: [each],
        lambda each: each,
    ],
)
def test_outer_objects_in_json_may_be_missing(outer: Any) -> None:
    body = json.dumps(outer(json.loads(in_json()))).encode()
    assert [each.reading for each in read(body)] == [SEVEN]
    assert [siri.decode(record) for record in siri.split(body)] == [SEVEN]
    assert siri.decode(body) == SEVEN


def test_a_vehicle_is_one_vehicle_whether_its_number_has_a_point_or_not() -> None:
    found = [siri.decode(in_json(VehicleRef={"value": ref})) for ref in (7, 7.0, "7")]
    assert found == [SEVEN] * 3


def test_deliveries_follow_each_other_in_any_layout() -> None:
    declared = f'<?xml version="1.0"?>\n{delivery(activity(), stamp=None)}'
    bare = delivery(activity(VehicleRef="8"))
    for body in (declared + declared + bare, f"{bare}\n{declared}\n\n{declared}", f"\n {declared}{declared} {bare}\n"):
        found = [each.reading.vehicle for each in read(body) if each.reading is not None]
        assert sorted(found) == ["7", "7", "8"]
    as_json = json.dumps({"VehicleActivity": [json.loads(in_json())]}, indent=1)
    for body in (as_json + as_json, f"{as_json}\n{as_json}", "\n".join([json.dumps(json.loads(as_json))] * 2)):
        assert [each.reading for each in read(body)] == [SEVEN, SEVEN]


def test_wherever_a_chunk_ends_the_records_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = (SAMPLES / "siri.xml").read_bytes()
    usual = read(body)
    monkeypatch.setattr(_deliveries, "_CARRIED", 16)
    for size in (17, 23, 64, 1_000):
        monkeypatch.setattr(_deliveries, "CHUNK_BYTES", size)
        assert read(body) == usual


def test_a_delivery_without_vehicles_is_no_record() -> None:
    assert siri.split(delivery().encode()) == [] == read(delivery())
    assert siri.split(b'{"Siri":{"ServiceDelivery":{"VehicleMonitoringDelivery":[]}}}') == []


def test_without_a_time_of_the_delivery_records_arrived_at_their_own() -> None:
    found = read(delivery(activity(), activity(VehicleRef=None), activity(RecordedAtTime=None), stamp=None))
    assert [each.arrival for each in found] == [1_773_304_247_000, 1_773_304_247_000, None]


def test_without_velocities_batch_derives_the_speeds(tmp_path: Path) -> None:
    polls = [
        activity(Velocity=None),
        activity(Velocity=None, RecordedAtTime="2026-03-12T09:31:47+01:00", Latitude="59.909"),
    ]
    file = tmp_path / "siri.xml"
    file.write_text("".join(delivery(each, stamp=None) for each in polls))
    config = tmp_path / "hatcast.toml"
    config.write_text((ROOT / "hatcast.toml").read_text().replace("Asia/Kolkata", "Europe/Oslo"))
    command = ["batch", str(file), "--format", "siri", "--config", str(config), "--json"]
    for more, accepted in (((), 0), (("--derive-speed",), 1)):
        done = CliRunner().invoke(hatcast, [*command, *more])
        assert done.exit_code == 0
        assert json.loads(done.stdout)["outcomes"].get("accepted", 0) == accepted


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(
    lambda text: text == text.strip() and text.isprintable()
)


def escaped(text: str) -> Iterator[str]:
    yield text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield "".join(f"&#{ord(letter)};" for letter in text)


@given(words)
def test_any_text_is_read_as_it_was_meant(text: str) -> None:
    for form in escaped(text):
        found = decoded(VehicleRef=form)
        assert found is not None
        assert found.vehicle == text


def test_the_samples_of_both_forms_are_in_the_suite() -> None:
    assert [path.suffix for path in sorted(SAMPLES.glob("siri*"))] == [".json", ".xml", ".xml", ".json"]
    assert FORMATS["siri"] is siri.FORMAT
