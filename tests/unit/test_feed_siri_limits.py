"""SIRI-VM deliveries that are refused, and limits of memory and time."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import _deliveries, _json_values, siri
from tests.siri_deliveries import (
    SAMPLES,
    SEVEN,
    activity,
    decoded,
    delivery,
    in_json,
    read,
)


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
