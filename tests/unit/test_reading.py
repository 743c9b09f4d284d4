"""Rules of single readings, against slow exact arithmetic.    [docs/specification/fold.md, rules 3, 5 and 6]
What a record becomes is fixed for each number of READING_RULES: a policy's workers, and its ledger, count on it.

If the digest differs, some bus, place, time or value is another one than before: raise READING_RULES, and add its line.
[docs/specification/fold.md, What is pinned]
"""

import io
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from hashlib import blake2b
from typing import Final, Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.stream.readings import reading
from hatcast.stream.readings.formats import FORMATS, Columns, FormatChoice
from hatcast.stream.readings.formats._times import time_reader
from hatcast.stream.readings.reading import (
    NOT_FINITE,
    READING_RULES,
    UNITS,
    Reading,
    ValueUnits,
    is_complete,
    is_empty,
    number,
    parse_time,
    to_milli,
)
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms, canonical_vehicle
from hatcast.stream.time_zones import time_zone
from tests.laws.test_feeds import SAMPLES, recorded_in

units = st.sampled_from(sorted(UNITS))


@st.composite
def speeds_near_ties(draw: st.DrawFn) -> tuple[float, str]:
    """Speeds whose milli-units lie within a few doubles of half an integer."""
    unit = draw(units)
    half = Fraction(2 * draw(st.integers(-(2**33), 2**33)) + 1, 2)
    speed = float(half / UNITS[unit])
    for _ in range(draw(st.integers(0, 3))):
        speed = math.nextafter(speed, draw(st.sampled_from((-math.inf, math.inf))))
    return speed, unit


def by_the_books(speed: float, unit: str) -> int:
    return round(Fraction(speed) * UNITS[unit])


def float_product(speed: float, unit: str) -> int:
    """The mutant: the product alone, rounded."""
    return round(speed * float(UNITS[unit]))


@given(speeds_near_ties())
@example((0.0005, "km/h"))
@example((0.0015, "km/h"))
@example((-0.0, "mph"))
def test_milli_units_near_a_tie_are_those_of_the_exact_fraction(case: tuple[float, str]) -> None:
    assert to_milli(*case) == by_the_books(*case)


@given(st.floats(allow_nan=False, allow_infinity=False), units)
def test_milli_units_of_any_finite_double_are_those_of_the_exact_fraction(speed: float, unit: str) -> None:
    assert to_milli(speed, unit) == by_the_books(speed, unit)


def test_the_float_product_alone_would_round_some_speeds_the_wrong_way() -> None:
    ties = ((float(Fraction(2 * n + 1, 2) / UNITS[unit]), unit) for n in range(3000) for unit in UNITS)
    assert any(float_product(*tie) != by_the_books(*tie) for tie in ties)


@pytest.mark.parametrize(
    ("speed", "unit", "milli"),
    [(1.0, "km/h", 1000), (1.0, "m/s", 3600), (1.0, "mph", 1609), (1.0, "kn", 1852), (10.0, "mph", 16093)],
)
def test_each_unit_has_its_own_factor(speed: float, unit: str, milli: int) -> None:
    assert to_milli(speed, unit) == milli


def test_an_unknown_unit_or_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(KeyError):
        to_milli(1.0, "furlong")
    for speed in (math.nan, math.inf, -math.inf):
        with pytest.raises((OverflowError, ValueError)):
            to_milli(speed, "km/h")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Whole seconds: Python 3.11, which the rule names, reads an offset below one second as none.
offsets = st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)), offsets)  # noqa: DTZ001 - the offset is drawn beside it
def test_iso_text_rounds_fractions_of_a_millisecond_half_to_even(local: datetime, offset: timezone) -> None:
    instant = local.replace(tzinfo=offset)
    exact = Fraction((instant - EPOCH) // timedelta(microseconds=1), 1000)
    assert parse_time(instant.isoformat()) == round(exact)
    assert parse_time(instant.isoformat(" ")) == round(exact)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00.0005Z", 0),
        ("1970-01-01T00:00:00.001500Z", 2),
        ("1970-01-01T00:00:00.002500+00:00", 2),
        ("1970-01-01T00:00:00.002501+00:00", 3),
        ("1969-12-31T23:59:59.999500Z", 0),
        ("1969-12-31T23:59:59.998500Z", -2),
        ("2022-01-02T05:29:43+05:30", 1641081583000),
        ("2022-01-02 05:29:43+05:30", 1641081583000),
        ("2022-01-01T23:59:43Z", 1641081583000),
        ("20220101T235943Z", 1641081583000),
        ("1641081583000", 1641081583000),
        ("164108158300", 164108158300),  # 12 digits
        ("000000000001", 1),
        ("202201012359", 202201012359),  # 12 digits are epoch ms, even where they look like a date
    ],
)
def test_text_names_an_instant(text: str, instant: int) -> None:
    assert parse_time(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2022-01-02T05:29:43",  # no offset
        "2022-01-02",
        "20220102",  # 8 digits: a date without an offset
        "16410815830",  # 11 digits
        "-1641081583000",
        "1641081583000.5",
        " 1641081583000",
        "１６４１０８１５８３０００",  # digits, but not ASCII
        "2022-02-30T00:00:00Z",
        "2022-01-02T05:29:43+25:00",
        "9" * 20,
        "9" * 100_000,
        "2022-01-02T05:29:43+05:30\ud800",
    ],
)
def test_other_text_names_none(text: str) -> None:
    assert parse_time(text) is None


def test_an_instant_at_the_ends_of_the_calendar_does_not_raise() -> None:
    assert parse_time("0001-01-01T00:00:00+23:59") == -62135596800000 - 86340000
    assert parse_time("9999-12-31T23:59:59.999999-23:59") == 253402300800000 + 86340000


@given(st.text() | st.integers() | st.floats())
def test_parsing_a_time_never_raises(time: str | float) -> None:
    parsed = parse_time(time)
    assert parsed is None or type(parsed) is int


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_epoch_milliseconds_rounded_half_to_even(time: float) -> None:
    assert parse_time(time) == round(Fraction(time))


def test_no_instant_is_a_number_that_is_not_finite() -> None:
    assert [parse_time(time) for time in NOT_FINITE.values()] == [None] * 3


@pytest.mark.parametrize("field", ["lat", "lon", "speed"])
@pytest.mark.parametrize(
    ("value", "complete"), [(1.5, True), ("nan", True), ("-inf", True), ("NaN", False), ("1", False)]
)
def test_a_number_may_be_a_text_that_json_has_no_number_for(field: str, value: float | str, *, complete: bool) -> None:
    reading = Reading("bus", 0, 1.0, 2.0, 3.0)
    setattr(reading, field, value)
    assert is_complete(reading) is complete


def test_an_unknown_unit_makes_a_reading_incomplete() -> None:
    assert is_complete(Reading("bus", 0, 1.0, 2.0, 3.0, "kn"))
    assert not is_complete(Reading("bus", 0, 1.0, 2.0, 3.0, "KM/H"))


def test_the_texts_stand_for_numbers_that_are_not_finite() -> None:
    assert math.isnan(number("nan"))
    assert (number("inf"), number("-inf"), number(2.5)) == (math.inf, -math.inf, 2.5)


@pytest.mark.parametrize("date", ["2022-01-02", None])
def test_pseudonyms_of_two_keys_have_none_in_common(date: str | None) -> None:
    of_keys = [{Pseudonyms(bytes([key] * KEY_BYTES)).of(f"bus{n}", date) for n in range(100)} for key in range(2)]
    assert [len(each) for each in of_keys] == [100, 100]
    assert of_keys[0].isdisjoint(of_keys[1])


class Python314(datetime):
    """`datetime` as of Python 3.14, whose `fromisoformat` takes hour 24 for the next day's midnight."""

    @classmethod
    def fromisoformat(cls, date_string: str) -> Self:
        ends = re.sub(r"(?<=[T ])24(?=:?00)", "00", date_string)
        return super().fromisoformat(ends) + timedelta(days=ends != date_string)


@pytest.mark.parametrize("text", ["2022-01-02T24:00:00Z", "2022-01-02 24:00+05:30", "20220102T2400Z"])
def test_hour_24_is_no_time_also_where_python_reads_it_as_the_next_midnight(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = time_reader(None, UTC)
    assert (parse_time(text), read(text)) == (None, None)
    monkeypatch.setattr(reading, "datetime", Python314)
    assert Python314.fromisoformat(text).day == 3
    assert (parse_time(text), read(text)) == (None, None)
    for midnight in ("2022-01-24T00:00Z", "20220124T0000Z", "2022-01-02T00:00:24Z"):
        assert parse_time(midnight) == read(midnight) is not None


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
