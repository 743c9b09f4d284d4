"""The search finds each kind of data in each kind of output, in whatever form, and nothing where there is none."""

import base64
import hashlib
import json
import math
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Final

import h3.api.basic_str as h3
import pytest

from hatcast.stream.readings.vehicles import Pseudonyms, murmur2
from tests.leaks.cities import ADD_REMOVE, DATE, KEY, REPLACE, City
from tests.leaks.search import Kind, Output
from tests.services.data import ROOT

search_of: Final = cache(City.search)  # takes a second: not while tests are collected
FIRST: Final = REPLACE.readings[0]
PLATE: Final = FIRST.vehicle
PSEUDONYM: Final = Pseudonyms(KEY).of(PLATE, DATE)


def hats() -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    for each in REPLACE.readings:
        found.setdefault((each.cell, each.time_ms // 3_600_000), []).append(each.milli / 1000)
    return found


SUMS: Final = [math.fsum(speeds) for speeds in hats().values()]
MEANS: Final = [sum(speeds) / len(speeds) for speeds in hats().values()]
SPEEDS: Final = [each.milli / 1000 for each in REPLACE.readings]
TEXTS: Final[dict[str, tuple[Kind, list[str]]]] = {
    "plate": (Kind.PLATE, [PLATE]),
    "plate in lower case": (Kind.PLATE, [PLATE.lower()]),
    "plate in hexadecimal": (Kind.PLATE, [PLATE.encode().hex().upper()]),
    "plate in base64": (Kind.PLATE, [base64.b64encode(f"a bus: {PLATE}".encode()).decode()]),
    "plate in JSON escapes": (Kind.PLATE, ["".join(f"\\u{ord(letter):04x}" for letter in PLATE)]),
    "plate in a URL": (Kind.PLATE, ["".join(f"%{ord(letter):02X}" for letter in PLATE)]),
    "plate backwards": (Kind.PLATE, [PLATE[::-1]]),
    "bytes as Python shows them": (Kind.PLATE, [repr(PLATE.encode())]),
    "MD5 of a plate": (Kind.HASH, [hashlib.md5(PLATE.encode()).hexdigest()]),
    "SHA-256 of a plate": (Kind.HASH, [hashlib.sha256(PLATE.encode()).hexdigest()]),
    "CRC-32 of a plate": (Kind.HASH, [str(zlib.crc32(PLATE.encode()))]),
    "murmur2 of a plate": (Kind.HASH, [str(murmur2(PLATE.encode()))]),
    "pseudonym in hexadecimal": (Kind.PSEUDONYM, [PSEUDONYM.hex().upper()]),
    "pseudonym in base64": (Kind.PSEUDONYM, [base64.urlsafe_b64encode(b"user" + PSEUDONYM).decode()]),
    "pseudonym as a number": (Kind.PSEUDONYM, [str(int.from_bytes(PSEUDONYM))]),
    "user key": (Kind.KEY, [KEY.hex()]),
    "speed": (Kind.SPEED, [str(SPEEDS[0])]),
    "speed in m/s": (Kind.SPEED, [f"{SPEEDS[0] / 3.6:.3f}"]),
    "rounded speeds in m/s": (Kind.SPEED, [f"{speed / 3.6:.2f}" for speed in SPEEDS[:3]]),
    "speed in mph": (Kind.SPEED, [repr(SPEEDS[0] / 1.609344)]),
    "speed in milli-units": (Kind.SPEED, [str(FIRST.milli)]),
    "speed with an exponent": (Kind.SPEED, [f"{SPEEDS[0]:.8e}"]),
    "speed with separators": (Kind.SPEED, [f"{SPEEDS[0]:,}"]),
    "speeds of four digits": (Kind.SPEED, [f"{speed:.3e}" for speed in SPEEDS[:9]]),
    "rounded speeds": (Kind.SPEED, [f"{speed:.0f}" for speed in SPEEDS[:9]]),
    "position": (Kind.POSITION, [str(FIRST.lat_e7 / 1e7)]),
    "position cut": (Kind.POSITION, [str(FIRST.lon_e7 // 10)]),
    "small hexagon": (Kind.POSITION, [str(h3.latlng_to_cell(FIRST.lat_e7 / 1e7, FIRST.lon_e7 / 1e7, 12))]),
    "time in milliseconds": (Kind.TIME, [str(FIRST.time_ms)]),
    "time in seconds": (Kind.TIME, [str(FIRST.time_ms / 1000)]),
    "time as ISO": (Kind.TIME, [datetime.fromtimestamp(FIRST.time_ms / 1000, UTC).isoformat()]),
    "sum": (Kind.SUM, [f"{SUMS[0]:.3f}"]),
    "sum in milli-units": (Kind.SUM, [f"{SUMS[0] * 1000:.0f}"]),
    "mean": (Kind.MEAN, [f"{MEANS[0]:.3f}"]),
    "mean in full": (Kind.MEAN, [repr(MEANS[0])]),
    "means of five digits": (Kind.MEAN, [f"{mean:.5g}" for mean in MEANS]),
}
BYTES: Final[dict[str, tuple[Kind, bytes]]] = {
    "plate": (Kind.PLATE, PLATE.encode("utf-16")),
    "digest of a plate": (Kind.HASH, hashlib.sha1(PLATE.encode()).digest()),
    "pseudonym": (Kind.PSEUDONYM, PSEUDONYM),
    "pseudonym as a little-endian number": (Kind.PSEUDONYM, PSEUDONYM[::-1]),
    "float64 of a speed": (Kind.SPEED, struct.pack("<d", SPEEDS[0])),
    "float64 of m/s": (Kind.SPEED, struct.pack(">d", SPEEDS[0] / 3.6)),
    "float32 of a speed": (Kind.SPEED, struct.pack(">f", SPEEDS[0])),
    "int64 of a speed": (Kind.SPEED, struct.pack("<q", FIRST.milli)),
    "int32 of a speed": (Kind.SPEED, struct.pack(">i", FIRST.milli)),
    "float64 of a position": (Kind.POSITION, struct.pack("<d", FIRST.lat_e7 / 1e7)),
    "int64 of a time": (Kind.TIME, struct.pack(">q", FIRST.time_ms)),
    "float64 of a sum": (Kind.SUM, struct.pack("<d", SUMS[0])),
    "float32 of a mean": (Kind.MEAN, struct.pack("<f", MEANS[0])),
}
OUTPUTS: Final[dict[str, Callable[[str], bytes]]] = {
    "value of a record": lambda text: json.dumps({"release_id": "t/8742d9d6dffffff", "seq": 3, "x": text}).encode(),
    "header": lambda text: b"ce_id\nt/0\nce_more\n" + text.encode() + b"\n1795000000000",
    "log": lambda text: json.dumps(
        {"event": f"cannot take {text}: refused", "level": "debug", "port": 41_234}
    ).encode(),
    "label of a metric": lambda text: f'hatcast_readings_total{{outcome="accepted",of="{text}"}} 163.0\n'.encode(),
    "figure of a metric": lambda text: f"hatcast_last {text}\nhatcast_next 1.0\n".encode(),
    "table of a command": lambda text: f"│ 12:00 │ {text} │ released │\n".encode(),
    "page": lambda text: f"<p title='{text}'>8742d9d6dffffff</p>".encode(),
}


def kinds(content: bytes, *, columnar: bool = False) -> set[Kind]:
    return {each.kind for each in search_of(REPLACE).find(Output("planted", content, columnar))}


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("output", OUTPUTS)
def test_data_that_is_planted_in_an_output_is_found(form: str, output: str) -> None:
    kind, texts = TEXTS[form]
    write = OUTPUTS[output]
    assert kinds(b"\n".join(map(write, texts))) == {kind}
    assert kinds(b"\n".join(write("nothing") for _ in texts)) == set()


@pytest.mark.parametrize("form", BYTES)
def test_data_that_is_planted_as_bytes_is_found_at_any_offset(form: str) -> None:
    kind, data = BYTES[form]
    for before in range(9):
        assert kinds(b"{" * before + data + b'"seq": 3}') == {kind}
        if len(data) >= 8:
            assert kinds(b"{" * before + data + b'"seq": 3}', columnar=True) == {kind}


def test_numbers_in_protobuf_and_avro_are_found() -> None:
    for varint in (_varint(FIRST.milli), _varint(FIRST.milli << 1)):
        assert kinds(b"\x08" + varint + b"\x10") == {Kind.SPEED}


def _varint(value: int) -> bytes:
    return b"" if not value else bytes([value & 127 | (128 if value >> 7 else 0)]) + _varint(value >> 7)


def test_two_numbers_of_few_digits_may_be_there_by_chance_and_three_are_not() -> None:
    rounded = [f"{speed:.0f}" for speed in SPEEDS[:3]]
    assert kinds(" ".join(rounded[:2]).encode()) == set()
    assert kinds(" ".join(rounded).encode()) == {Kind.SPEED}


def test_under_add_remove_counts_of_hats_are_found_and_ports_and_lines_are_not() -> None:
    users = [len({each.vehicle for each in ADD_REMOVE.readings if each.cell == cell}) for cell in cells()]
    assert len(users) == 2
    hidden = search_of(ADD_REMOVE)
    found = hidden.find(Output("record", json.dumps({"counts": users}).encode()))
    assert {each.kind for each in found} == {Kind.USERS}
    assert hidden.find(Output("log", json.dumps({"at": [f"worker.py:{each}" for each in users]}).encode())) == []
    assert hidden.find(Output("log", " ".join(f"127.0.0.1:{each}" for each in users).encode())) == []


def cells() -> list[str]:
    return sorted({each.cell for each in ADD_REMOVE.readings})


def test_nothing_is_found_where_there_is_nothing() -> None:
    pages = b"".join(page.read_bytes() for page in sorted((ROOT / "docs").glob("*.md")))
    assert len(pages) > 500_000
    assert search_of(REPLACE).find(Output("pages", pages)) == []
    assert search_of(REPLACE).find(Output("golden records", (ROOT / "docs" / "map.md").read_bytes())) == []
