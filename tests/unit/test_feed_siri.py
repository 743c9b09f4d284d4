"""SIRI-VM: deliveries in XML and JSON to activities to readings; made-up vehicles in the published structure.
Delays of SIRI-VM deliveries, as values beside the speed or instead of it.
SIRI-VM deliveries that are refused, and limits of memory and time.
"""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.cli import hatcast
from hatcast.stream.errors import RecordingError, SettingError
from hatcast.stream.readings.formats import FORMATS, Recorded, _deliveries, _json_values, format_with, siri
from hatcast.stream.readings.reading import ValueReading, ValuesReading, ValueUnits
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


DURATIONS = {
    "PT2M10S": 130.0,
    "-PT45S": -45.0,
    "PT0S": 0.0,
    "P0Y0M0DT0H2M10.500S": 130.5,
    "P1DT2S": 86_402.0,
    "PT61S": 61.0,
    "PT1H": 3_600.0,
}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_a_delay_is_a_duration_in_seconds(text: str, seconds: float) -> None:
    feed = format_with("siri", ValueUnits({"delay": "s"}))
    for record in (in_json(Delay=text), in_json(Delay={"value": text}), activity(Delay=text).encode()):
        found = feed.decode(record)
        assert isinstance(found, ValuesReading)
        assert found.others == {"delay": seconds}


def test_a_policy_of_delays_needs_no_speed() -> None:
    feed = format_with("siri", ValueUnits(single=("delay", "s")))
    expected = ValueReading("7", TIME, 59.9, 10.75, -45.0, "s")
    body = delivery(activity(Delay="-PT45S", Velocity=None)).encode()
    assert [each.reading for each in feed.records(io.BytesIO(body), "file")] == [expected]
    assert [feed.decode(record) for record in feed.split(body)] == [expected]
    assert feed.decode(in_json()) is None


@pytest.mark.parametrize("text", ["", "P", "PT", "P1M", "P1Y", "2M", "PT-2M", "PT2.5M", "PT١S", None, 61])
def test_a_record_whose_delay_is_not_a_number_of_seconds_is_undecodable(text: object) -> None:
    assert format_with("siri", ValueUnits({"delay": "s"})).decode(in_json(Delay=text)) is None


@pytest.mark.parametrize(("units", "says"), [({"load": "kg"}, "no 'load'"), ({"delay": "min"}, "not in min")])
def test_another_value_or_unit_is_refused(units: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        format_with("siri", ValueUnits(units))
    with pytest.raises(SettingError, match=says):
        format_with("siri", ValueUnits(single=next(iter(units.items()))))


def test_many_deliveries_in_one_body_are_split_in_proportion_to_their_size() -> None:
    class Counting(str):
        """A text that counts the characters that are copied out of it."""

        __slots__ = ()
        copied = 0

        def __getitem__(self, key: Any) -> str:
            part = super().__getitem__(key)
            Counting.copied += len(part)
            return part

    class Body(bytes):
        def decode(self, *_: Any, **__: Any) -> str:
            return Counting(bytes(self).decode())

    one = json.dumps({"VehicleActivity": [json.loads(in_json())]}, indent=1)
    found = _json_values.concatenated(Body((one + "\n \n").encode() * 200))
    assert found == [one.encode()] * 200
    assert Counting.copied < 2 * 200 * len(one)


def test_an_answer_that_rejects_the_request_is_one_undecodable_record() -> None:
    error = "<ErrorCondition><OtherError><ErrorText>made up</ErrorText></OtherError></ErrorCondition>"
    as_json = {"Siri": {"ServiceDelivery": {"VehicleMonitoringDelivery": [{"ErrorCondition": {"Description": "no"}}]}}}
    for body in (delivery(error), json.dumps(as_json)):
        [recorded] = read(body)
        assert recorded.reading is None
        assert siri.split(body.encode()) == [recorded.raw] == siri.split(recorded.raw)


DTDS = [
    '<!DOCTYPE Siri [<!ENTITY a "b">]>',
    '<!DOCTYPE Siri SYSTEM "http://127.0.0.1:9/siri.dtd">',
    "<!DOCTYPE Siri>",
    '<!DOCTYPE Siri [<!ATTLIST Siri version CDATA "2.0">]>',
]


@pytest.mark.parametrize("dtd", DTDS)
def test_a_document_type_declaration_is_refused(dtd: str) -> None:
    body = dtd + delivery(activity())
    with pytest.raises(RecordingError, match=r"^file: has a document type declaration, which SIRI does not have"):
        read(body)
    assert siri.split(body.encode()) == [body.encode()]
    assert siri.decode((dtd + activity()).encode()) is None


@pytest.mark.parametrize("name", ["siri_billion_laughs.xml", "siri_external_entity.xml", "siri_external_dtd.xml"])
def test_entities_are_neither_expanded_nor_fetched(name: str) -> None:
    body = (SAMPLES / "broken" / name).read_bytes()
    with pytest.raises(RecordingError):
        read(body)
    assert siri.split(body) == [body]
    assert siri.decode(body) is None


def test_a_cut_off_delivery_is_refused_after_its_whole_records() -> None:
    whole = delivery(activity(), activity(VehicleRef="8"))
    body = whole.removesuffix("</VehicleMonitoringDelivery></ServiceDelivery></Siri>")
    found = siri.records(io.BytesIO(body.encode()), "file")
    assert [next(found).reading, next(found).reading] == [SEVEN, decoded(VehicleRef="8")]
    with pytest.raises(RecordingError, match=r"^file: is not well-formed XML, or cut off; fetch it again"):
        next(found)
    assert siri.split(body.encode()) == [body.encode()]


def test_a_cut_off_json_delivery_is_refused() -> None:
    body = (SAMPLES / "broken" / "siri_cut_off.json").read_bytes()
    with pytest.raises(RecordingError, match=r"^file: has no whole SIRI delivery; fetch it again"):
        read(body)
    assert len(siri.split(body)) == 1


@pytest.mark.parametrize("body", [b"", b"<html/>", b"{}", b"[]", b"7", b"<a>" * 5_000, b"vehicle,time"])
def test_a_file_without_a_delivery_is_refused_and_such_a_message_is_one_bad_record(body: bytes) -> None:
    with pytest.raises(RecordingError):
        read(body)
    assert siri.split(body) == ([body] if body else [])
    assert siri.decode(body) is None


def test_what_holds_no_record_for_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_deliveries, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(_deliveries, "UNREAD_BYTES_MAX", 10_000)
    body = delivery(*(activity() + "<!-- -->" * 1_000 for _ in range(9)))
    assert len(read(body)) == 9
    with pytest.raises(RecordingError, match="without a whole vehicle activity"):
        read(body.replace("<Velocity>", "<Other>" + "<a/>" * 5_000 + "</Other><Velocity>"))


def test_a_json_delivery_too_large_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"VehicleActivity": [json.loads(in_json())] * 9}, indent=1).encode()
    monkeypatch.setattr(_deliveries, "DELIVERY_BYTES_MAX", len(body) // 2)
    with pytest.raises(RecordingError, match="has a delivery of more than"):
        read(body)


MEMORY = """
import io, resource, sys
from hatcast.stream.readings.formats import siri
class Long(io.RawIOBase):
    def __init__(self, times): self.left, self.chunks = times, iter(())
    def readable(self): return True
    def readinto(self, buffer):
        if not self.left: return 0
        self.left -= 1
        part = {activity!r} * (len(buffer) // {size})
        buffer[: len(part)] = part
        return len(part)
class Whole(io.BufferedReader): pass
def run(times):
    inner = Long(times)
    head, tail = io.BytesIO(b"<Siri><ServiceDelivery>"), io.BytesIO(b"</ServiceDelivery></Siri>")
    class Chain(io.RawIOBase):
        parts = [head, io.BufferedReader(inner, 1 << 16), tail]
        def readable(self): return True
        def readinto(self, buffer):
            while self.parts:
                data = self.parts[0].read(len(buffer))
                if data:
                    buffer[: len(data)] = data
                    return len(data)
                self.parts.pop(0)
            return 0
    found = sum(1 for _ in siri.records(io.BufferedReader(Chain(), 1 << 16), "file"))
    return found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
first, before = run(10)
second, after = run(400)
assert second > 30 * first, (first, second)
print(after - before)
"""


def test_memory_does_not_grow_with_the_length_of_a_delivery(tmp_path: Path) -> None:
    text = activity(OperatorRef="x" * 400).encode()
    script = tmp_path / "memory.py"
    script.write_text(MEMORY.format(activity=text, size=len(text)), encoding="utf-8")
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert int(out) < 8_000  # KiB, where the delivery has 25 MB
