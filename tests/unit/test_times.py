"""Times of foreign records."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.readings.formats._times import time_reader, zone_of
from hatcast.stream.readings.reading import instant_ms, parse_time
from hatcast.stream.time_zones import time_zone

BERLIN = time_zone("Europe/Berlin")
NINE = 1641114000000  # 2022-01-02 09:00:00 UTC


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("2022-01-02T09:00:00Z", NINE),
        ("2022-01-02T14:30:00+05:30", NINE),
        ("2022-01-02 10:00:00", NINE),
        (" 2022-01-02T10:00:00.0005 ", NINE),
        ("20220102T100000", NINE),
        ("1641114000", NINE),
        (1641114000, NINE),
        (1641114000.25, NINE + 250),
        ("1641114000.25", NINE + 250),
        ("1641114000000", NINE),
        (NINE, NINE),
        (NINE * 1000, NINE),
        (NINE * 10**6 + 500_000, NINE),
        (NINE * 10**6 + 500_001, NINE + 1),
        ("2022-01-02", None),
        ("20220102", None),
        ("02.01.2022 10:00", None),
        ("", None),
        (None, None),
        (True, None),
        (12, None),
        (-1641114000, None),
        ("١٦٤١١١٤٠٠٠", None),
        (float("nan"), None),
        (10**400, None),
        ([], None),
    ],
)
def test_iso_times_and_epoch_numbers_of_any_unit_are_read(cell: object, expected: int | None) -> None:
    for time_format in (None, "iso"):
        assert time_reader(time_format, BERLIN)(cell) == expected


def test_of_two_equal_local_times_the_earlier_is_taken_and_a_skipped_one_is_no_time() -> None:
    read = time_reader(None, BERLIN)
    assert read("2022-10-30 02:30:00") == instant_ms(datetime(2022, 10, 30, 0, 30, tzinfo=UTC))
    assert read("2022-10-30 03:00:00") == instant_ms(datetime(2022, 10, 30, 2, 0, tzinfo=UTC))
    assert read("2022-03-27 01:59:59") == instant_ms(datetime(2022, 3, 27, 0, 59, 59, tzinfo=UTC))
    assert read("2022-03-27 02:00:00") is None
    assert read("2022-03-27 02:59:59") is None
    assert read("2022-03-27 03:00:00") == instant_ms(datetime(2022, 3, 27, 1, 0, tzinfo=UTC))


@pytest.mark.parametrize(
    ("time_format", "cell", "expected"),
    [
        ("s", "1641114000.0005", NINE),
        ("s", -1, -1000),
        ("s", 2**62, None),
        ("ms", "1641114000000", NINE),
        ("ms", "2022-01-02T09:00:00Z", None),
        ("us", NINE * 1000 + 500, NINE),
        ("ns", str(NINE * 10**6), NINE),
        ("%d.%m.%Y %H:%M", "02.01.2022 10:00", NINE),
        ("%d.%m.%Y %H:%M", "2.1.2022 10:0", NINE),
        ("%d.%m.%Y %H:%M", " 02.01.2022  10:00", NINE),
        ("%d.%m.%Y %H:%M", "31.02.2022 10:00", None),
        ("%Y%m%d%H%M%S", 20220102100000, NINE),
        ("%Y-%m-%dT%H:%M:%S.%f%z", "2022-01-02T14:30:00.000+05:30", NINE),
        ("%Y-%m-%dT%H:%M:%SZ", "2022-01-02T09:00:00Z", NINE),
        ("%m/%d/%y %I:%M %p", "01/02/22 10:00 AM", NINE),
        ("%d.%m.%Y %H:%M", None, None),
        ("%d.%m.%Y %H:%M", 1.5, None),
    ],
)
def test_a_time_format_reads_its_times_only(time_format: str, cell: object, expected: int | None) -> None:
    assert time_reader(time_format, BERLIN)(cell) == expected


PATTERNS = (
    "%d.%m.%Y %H:%M:%S",
    "%Y%m%d%H%M%S%f",
    "%y/%m/%d %H.%M",
    "%H:%M %d-%m-%Y",
    "%Y-%m-%dT%H:%M:%S.%f%z",
    "%m/%d/%Y %I:%M %p",
)


@given(
    st.datetimes(datetime.fromisoformat("1970-01-02"), datetime.fromisoformat("2068-01-01")), st.sampled_from(PATTERNS)
)
def test_a_pattern_reads_what_strptime_reads(moment: datetime, pattern: str) -> None:
    text = moment.replace(tzinfo=UTC).strftime(pattern)
    expected = datetime.strptime(text, pattern).replace(tzinfo=UTC)
    assert time_reader(pattern, UTC)(text) == instant_ms(expected)


@given(st.text("0123456789.:/ -", max_size=20), st.sampled_from(PATTERNS))
def test_text_that_strptime_rejects_is_no_time(text: str, pattern: str) -> None:
    try:
        expected: int | None = instant_ms(datetime.strptime(text.strip(), pattern).replace(tzinfo=UTC))
    except ValueError:
        expected = None
    assert time_reader(pattern, UTC)(text) == expected


@given(st.datetimes(datetime.fromisoformat("1900-01-01"), datetime.fromisoformat("2200-01-01")), st.integers(-720, 720))
def test_an_offset_is_read_as_in_the_canonical_record(moment: datetime, minutes: int) -> None:
    text = (moment.replace(tzinfo=UTC) + timedelta(minutes=minutes)).isoformat()
    assert time_reader(None, BERLIN)(text) == parse_time(text)


@given(
    st.text() | st.integers() | st.floats() | st.booleans() | st.none(), st.sampled_from([None, "s", "ns", *PATTERNS])
)
def test_any_cell_is_a_64_bit_time_or_nothing(cell: object, time_format: str | None) -> None:
    found = time_reader(time_format, BERLIN)(cell)
    assert found is None or (type(found) is int and -(2**63) <= found < 2**63)


@pytest.mark.parametrize(
    ("time_format", "problem"),
    [
        ("iso8601", "did you mean iso"),
        ("seconds", "is not a time format"),
        ("%Y-%m-%d", "has no hour"),
        ("%H:%M", "has no year, month and day"),
        ("%x %H:%M", "has no year, month and day"),  # of which some locales have the month first, and others the day
        ("%c", "has no year, month and day"),
        ("%Y-%m-%d %X", "has no hour"),
        ("%Y-%m-%d %H:%M %Z", "use %z"),
        ("%Y-%m-%d %H:%Q", "a directive twice, or one that strptime does not know"),
        ("%Y-%m-%d %H:%M %d", "a directive twice"),
        ("%Y-%m-%d %H:%M %", "a directive twice"),
    ],
)
def test_a_wrong_time_format_is_one_line(time_format: str, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        time_reader(time_format, BERLIN)


def test_a_wrong_time_zone_is_one_line() -> None:
    with pytest.raises(
        SettingError, match="times_in: 'Europe/Berln' is not a known time zone; did you mean Europe/Berlin"
    ):
        zone_of("Europe/Berln")
    assert zone_of("UTC").utcoffset(None) in (None, timedelta(0))
