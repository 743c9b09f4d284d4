"""What a record becomes is fixed for each number of READING_RULES: a policy's workers, and its ledger, count on it.

If the digest differs, some bus, place, time or value is another one than before: raise READING_RULES, and add its line.
[docs/specification/fold.md, What is pinned]
"""

import io
import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import pytest

from hatcast.stream.readings.formats import FORMATS, Columns, FormatChoice
from hatcast.stream.readings.reading import READING_RULES, Reading, ValueUnits, is_empty, number, parse_time, to_milli
from hatcast.stream.readings.vehicles import canonical_vehicle
from hatcast.stream.time_zones import time_zone
from tests.laws.test_feeds import SAMPLES, recorded_in

RULES: Final = {4: "f3611f8a1686c8ca9393ab87133dc1a4"}
FILES: Final = {  # not all samples: a new one changes no rule
    "jsonl": ("jsonl.jsonl",),
    "itms": ("itms.csv", "itms_flattened.json", "itms_lines.json", "itms_nested.json"),
    "gtfs-rt": ("gtfs-rt.pb",),
    "gtfs-rt-plate": ("gtfs-rt.pb",),
    "gtfs-rt-label": ("gtfs-rt.pb",),
    "gtfs-rt-in-service": ("gtfs-rt.pb",),
    "hfp": ("hfp.txt",),
    "siri": ("siri.json", "siri.xml", "siri_1_3_soap.xml", "siri_lite.json"),
    "siri-in-service": ("siri.xml",),
    "capmetro": ("capmetro.csv",),
}
ZONE: Final = time_zone("Europe/Berlin")
IDS: Final = (
    *(
        "GJ05BX1234",
        "01234",
        "1234.0",
        "1234,0",
        "+1234",
        "-7",
        "1.234e3",
        "1.2e15",
        "12E45",
        "9007199254740993.0",
        "7.5",
    ),
    *("NULL", "none", "\\N", "nan", "-nan", "N/A", "#N/A", "<NA>", "(null)", "-", "--", "unknown", "undefined", "0"),
    *("cafe\u0301\u00a0 12\t", "a\u200bb", "\ufeffbus", "bus  7 ", "?!", "x" * 128, "x" * 129, "\ud800", ""),
)
TIMES: Final = (
    *("2022-01-02T05:29:43+05:30", "2022-01-02 05:29:43 UTC", "2022-01-02 05:29:43 +0530", "20220102T052943Z"),
    *("2022-01-02T05:29:43.0005Z", "2022-01-02T24:00:00Z", "2022-01-02", "2022-W01-1T05:29Z", "1641101383000"),
    *("1641101383", "1641101383.5", "1641101383000000", "202201020529", "2022-03-27 02:30:00", "2022-10-30 02:30:00"),
    *("null", "", "02.01.2022 05:29:43"),
)
NUMBERS: Final = (
    *("30", "30.0005", "-0", "1e400", "nan", "inf", "-inf", "Infinity", "1_0", "\u0663", "1,5", "1.030", "1.030,5"),
    *("null", "N/A", "-", "", " 7 ", "0x10", "30 km/h"),
)


def of(reading: Reading | None) -> object:
    """What the fold takes of a reading."""
    if reading is None:
        return None
    try:
        value: object = to_milli(number(reading.speed), reading.unit)
    except (OverflowError, ValueError):
        value = str(reading.speed)
    place = str(number(reading.lat)), str(number(reading.lon))
    return canonical_vehicle(reading.vehicle), parse_time(reading.time), place, value


def rows() -> Iterator[tuple[str, object, str, object]]:
    """Vehicle, time, latitude and value of records, each of which is plain but for one cell."""
    yield from ((each, TIMES[0], "52.5", "30") for each in IDS)
    yield from (("7", each, "52.5", "30") for each in TIMES)
    yield from (("7", TIMES[0], each, "30") for each in NUMBERS)
    yield from (("7", TIMES[0], "52.5", each) for each in NUMBERS)


def read() -> Iterator[object]:
    """What the readers of all formats make of samples, and of cells that decide."""
    for name, files in FILES.items():
        for file in files:
            yield name, file, [of(each.reading) for each in recorded_in(SAMPLES / file, FORMATS[name])]
    names = {"vehicle": "v", "time": "t", "lat": "y", "lon": "x", "value": "s"}
    records = [dict(zip(("v", "t", "y", "s", "x"), (*row, "13.4"), strict=True)) for row in rows()]
    table = "v|t|y|x|s\n" + "".join("|".join(str(row[each]) for each in names.values()) + "\n" for row in records)
    texts = {"jsonl": "".join(json.dumps(row) + "\n" for row in records), "csv": table}
    for name, text in texts.items():
        for decimal in (".", ","):
            feed = FormatChoice(name, Columns(names, "mph", decimal=decimal)).format(ValueUnits(), ZONE)
            stream = io.BytesIO(text.encode(errors="surrogatepass"))
            yield name, decimal, [of(each.reading) for each in feed.records(stream, name)]


def digest() -> str:
    return blake2b(json.dumps(list(read()), ensure_ascii=True).encode(), digest_size=16).hexdigest()


def test_records_become_what_these_rules_make_of_them() -> None:
    assert digest() == RULES.get(READING_RULES), "raise READING_RULES if this is meant"


@pytest.mark.parametrize("missing", ["null", "\\n"])
def test_another_word_for_no_id_is_noticed(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Mutant: it is an id again."""
    module = "hatcast.stream.readings.vehicles"
    monkeypatch.setattr(f"{module}.is_empty", lambda text: text.lower() != missing and is_empty(text))
    monkeypatch.setattr(f"{module}._known", {})
    assert digest() != RULES[READING_RULES]
