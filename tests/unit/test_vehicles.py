"""Which user an id is: what programs add to an id, and what they write for none, in every format.

[docs/specification/fold.md, rule 3 and Readings]
"""

import json
import unicodedata
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import hatcast
from hatcast.lab.cli.survey import command as survey
from hatcast.stream.fold.checkpoint import take_changes
from hatcast.stream.fold.open_slots import IdSpans
from hatcast.stream.readings.formats import FORMATS
from hatcast.stream.readings.vehicles import VEHICLE_BYTES_MAX, canonical_vehicle, vehicle_text
from tests.api_data import EXACT, NOON
from tests.batching import batch
from tests.folding import DAY, HOUR, apply, fold_of, record
from tests.folding import NOON as START
from tests.laws.test_missing_speeds import CAPMETRO, ITMS, SIRI
from tests.replayed import policy_of
from tests.services.data import DATA
from tests.unit.test_api_policy import policy

# What NFC composes, decomposes and orders, and white space.
ACCENTED = "ab \u2003\u2000\u0301\u0327\u00e9\u1f82\u1100\u1161\u11a8\U0001d15e\ufb2c\u0344"


def test_a_vehicle_is_its_composed_form_with_single_spaces() -> None:
    assert canonical_vehicle("  cafe\u0301\u00a0 12\t") == "café 12"
    assert canonical_vehicle("HEL-03") != canonical_vehicle("hel-03")


@pytest.mark.parametrize("vehicle", ["", "  ", "\u2003\n", "x" * 129, "é" * 64 + "x", "\ud800"])
def test_an_empty_an_overlong_or_an_unencodable_vehicle_is_none(vehicle: str) -> None:
    assert canonical_vehicle(vehicle) is None


@pytest.mark.parametrize("vehicle", ["x", "x" * 128, "é" * 64, "e\u0301" * 64, " " * 200 + "x" * 128])
def test_a_vehicle_of_up_to_128_bytes_is_one_user(vehicle: str) -> None:
    assert canonical_vehicle(vehicle) is not None


@given(st.text(st.sampled_from(ACCENTED), max_size=300))
def test_a_canonical_vehicle_is_the_whole_id_in_nfc_if_that_is_short_enough(vehicle: str) -> None:
    whole = " ".join(unicodedata.normalize("NFC", vehicle).split())
    is_id = 0 < len(whole.encode()) <= VEHICLE_BYTES_MAX and any(map(str.isalnum, whole))
    assert canonical_vehicle(vehicle) == (whole if is_id else None)


def test_no_code_point_is_more_than_two_of_nfd_for_each_byte_that_it_has_in_nfc() -> None:
    for point in (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000):
        composed = unicodedata.normalize("NFC", point)
        assert len(unicodedata.normalize("NFD", point)) <= 2 * len(composed.encode())


def test_an_id_that_is_too_long_is_not_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    """NFC takes minutes for a megabyte of accents that are not in their order."""
    lengths: list[int] = []
    normalize = unicodedata.normalize

    def noted(form: Literal["NFC"], text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text) if len(text) < 100 else text

    monkeypatch.setattr(unicodedata, "normalize", noted)
    assert canonical_vehicle("a" + "\u0301" * 170_000 + "\u0327" * 170_000) is None
    assert canonical_vehicle(" " * 100_000 + "bus" + "\n" * 100_000) == "bus"
    assert canonical_vehicle("\u00e9" + "\u200b" * 100_000) == "\u00e9"
    assert lengths == [1]


@given(st.text(st.characters()) | st.text("0123456789.,eE+-\u200b ", max_size=12))
def test_a_canonical_vehicle_is_its_own_canonical_form(vehicle: str) -> None:
    canonical = canonical_vehicle(vehicle)
    if canonical is not None:
        assert canonical_vehicle(canonical) == canonical
        assert unicodedata.is_normalized("NFC", canonical)
        assert len(canonical.encode()) <= VEHICLE_BYTES_MAX


@pytest.mark.parametrize(
    "sent",
    [
        *("1234", "1234.0", "1234.00", "1234.", "1234,0", "1.234e3", "1.234E+03", "1.2340e3", "1234e+0", "1234.0e0"),
        *(
            " 1234 ",
            "+1234",
            "01234",
            "0001234.0",
            "\ufeff1234",
            "12\u200b34",
            "12\u00ad34",
            "1234\x00",
            "\u200e1234\u200f",
        ),
    ],
)
def test_a_whole_number_is_one_vehicle_however_programs_write_it(sent: str) -> None:
    assert canonical_vehicle(sent) == "1234"


@pytest.mark.parametrize(
    ("sent", "canonical"),
    [
        ("000", "0"),
        ("-7.0", "-7"),
        ("-0", "0"),
        ("1e+05", "100000"),  # R
        ("9007199254740992.0", "9007199254740992"),
        ("1" * 30, "1" * 30),
        ("1,234", "1,234"),  # of 1.234 and 1234, nobody knows which
        ("1 234", "1 234"),
        ("1234,5", "1234,5"),
        ("BUS\t12", "BUS 12"),
        ("BUS\x0012", "BUS12"),
    ],
)
def test_numbers_and_white_space_have_one_form(sent: str, canonical: str) -> None:
    assert canonical_vehicle(sent) == canonical


@pytest.mark.parametrize(
    "sent", ["12.5", "5.10", "12E45", "4e10", "12-34", "0040/00436", "12.34.56", "A01", "1,5", "1e-3"]
)
def test_what_is_no_whole_number_stays_as_it_is(sent: str) -> None:
    assert canonical_vehicle(sent) == sent


@pytest.mark.parametrize("sent", ["3.56938E+14", "1.2345678901234568e+16", "9007199254740993.0", "1e+300", "1.5e999"])
def test_a_number_that_lost_its_last_digits_is_no_vehicle(sent: str) -> None:
    """Two exports of it would have two ids, and two buses one."""
    assert canonical_vehicle(sent) is None


@pytest.mark.parametrize(
    "sent",
    [
        *("NULL", "null", "\\N", "None", "nan", "NaN", "-nan", "N/A", "NA", "<NA>", "#N/A", "NaT", "nil", "undefined"),
        *("-", "--", "?", "...", "\u2014", " ", "\u200b", "\ufeff\x00", "N\u200bULL"),
    ],
)
def test_what_programs_write_for_no_id_is_no_vehicle(sent: str) -> None:
    assert canonical_vehicle(sent) is None


@given(st.integers(0, 2**53), st.integers(0, 4), st.integers(0, 3))
def test_every_float_that_is_a_whole_number_is_that_vehicle(number: int, zeros: int, leading: int) -> None:
    """Text as of pandas, C, JavaScript and SQL, and the number itself as of JSON, Parquet and frames."""
    texts = f"{'0' * leading}{number}", f"{number}.{'0' * zeros}", f"+{number}", repr(float(number)), f"{number:.20e}"
    exact = {canonical_vehicle(text) for text in texts if Fraction(Decimal(text)) == number}
    assert exact - {None} == {str(number)}
    assert None not in exact or number >= 10**11  # one of them may have too many digits for a double
    assert vehicle_text(number) == vehicle_text(float(number)) == str(number)


@pytest.mark.parametrize("cell", [float("nan"), float("inf"), 12.5, 2.0**54, True, None, [7], {"id": 7}, 10**200])
def test_a_value_that_is_no_whole_number_is_no_vehicle(cell: object) -> None:
    assert vehicle_text(cell) is None


JSONL = b'{"vehicle":"7","time":1,"lat":21.2,"lon":72.8,"speed":3}'
RECORDS = {
    "jsonl": JSONL,
    "itms": (ITMS % b',"speed":3'),
    "siri": (SIRI % b',"Velocity":3'),
    "capmetro": (CAPMETRO % b"3").replace(b"2619", b"7"),
}


@pytest.mark.parametrize("name", sorted(RECORDS))
@pytest.mark.parametrize(
    ("sent", "user"), [("1234", "1234"), ("01234.0", "1234"), ("NULL", None), ("N/A", None), ("-", None)]
)
def test_a_record_of_every_format_is_of_the_same_user(name: str, sent: str, user: str | None) -> None:
    mark = b"7," if name == "capmetro" else b'"7"'
    record = RECORDS[name].replace(mark, mark.replace(b"7", sent.encode()), 1)
    reading = FORMATS[name].decode(record)
    assert reading is not None
    assert canonical_vehicle(reading.vehicle) == user


@pytest.mark.parametrize(
    ("sent", "user"), [(b"7", "7"), (b'{"value":7.0}', "7"), (b'{"value":7.5}', None), (b"null", None)]
)
def test_a_number_of_siri_is_a_vehicle_as_elsewhere(sent: bytes, user: str | None) -> None:
    found = FORMATS["siri"].decode((SIRI % b',"Velocity":3').replace(b'"7"', sent))
    assert (found and found.vehicle) == user


def framed(columns: dict[str, list[Any]], kind: str, folder: Path) -> Any:
    """The columns as a frame, or in a file of this kind."""
    frame, path = pl.DataFrame(columns, strict=False), folder / f"r.{kind}"
    if kind in ("polars", "pandas"):
        return frame if kind == "polars" else frame.to_pandas()
    if kind == "csv":
        frame.write_csv(path)
    elif kind == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_ndjson(path)
    return path


IDS: dict[str, list[Any]] = {
    "texts": ["1234", None, "NULL", "01234.0"],
    "whole numbers": [1234, None, None, 1234],
    "floats": [1234.0, None, float("nan"), 1234.0],
}


@pytest.mark.parametrize("ids", sorted(IDS))
@pytest.mark.parametrize("kind", ["polars", "pandas", "csv", "parquet", "jsonl"])
def test_a_bus_is_one_user_in_frames_and_files_of_every_type(tmp_path: Path, kind: str, ids: str) -> None:
    """K = 1: in another hour the same bus is over its cap, and a row without an id is nobody's."""
    columns: dict[str, list[Any]] = {
        "bus": IDS[ids],
        "time": [int(NOON.timestamp() * 1000) + hour * 3_600_000 for hour in range(4)],
        "lat": [52.5] * 4,
        "lon": [13.4] * 4,
        "speed": [20.0] * 4,
    }
    data = framed(columns, kind, tmp_path)
    capped = policy(privacy=EXACT | {"max_hats_per_day": 1, "daily_limit": 10.0})
    released = hatcast.batch(data, capped, ledger=tmp_path / "ledger", columns={"vehicle": "bus"}, unit="km/h")
    assert released.outcomes == {"accepted": 1, "over_cap": 1, "undecodable": 2}


@pytest.mark.parametrize(("file", "other"), [("ids_float.csv", "over_cap"), ("ids_null.csv", "undecodable")])
def test_files_as_people_have_them_have_one_user_a_bus(file: str, other: str) -> None:
    folder = DATA / "wild"
    found = batch(folder / file, "--format", "csv", "--config", folder / "k1.toml", "--contributions", "--json")
    assert json.loads(found.stdout)["outcomes"] == {"accepted": 1, other: 1}


def rotating(tmp_path: Path, slots_of_an_id: int) -> tuple[str, ...]:
    """Twenty buses, twelve hours, a new id for each bus after so many of them; the arguments of a command."""
    lines = [
        {
            "vehicle": f"bus {bus} {hour // slots_of_an_id}",
            "time": int(NOON.timestamp() * 1000) + hour * 3_600_000 + bus,
        }
        | {"lat": 52.5, "lon": 13.4, "speed": 20.0}
        for hour in range(12)
        for bus in range(20)
    ]
    path = tmp_path / f"{slots_of_an_id}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path), "--format", "jsonl", "--config", str(DATA / "wild" / "utc.toml")


@pytest.mark.parametrize(("slots", "ids"), [(1, 240), (2, 120), (3, None), (12, None)])
def test_ids_that_live_in_one_or_two_timeslots_get_a_hint(tmp_path: Path, slots: int, ids: int | None) -> None:
    arguments = rotating(tmp_path, slots)
    told = f"hint: {ids} of {ids} vehicle ids are in one or two timeslots of their day: if ids change from trip to trip"
    for done in (
        batch(*arguments, "--contributions"),
        batch(*arguments, "--ledger", tmp_path / "ledger"),
        CliRunner(catch_exceptions=False).invoke(survey, arguments),
    ):
        assert done.exit_code == 0, done.output
        assert ("hint: " in done.stderr) == (ids is not None)
        assert ids is None or told in done.stderr


def test_a_feed_of_rotating_ids_as_it_is_gets_the_hint() -> None:
    folder = DATA / "wild"
    arguments = folder / "ids_rotating.jsonl", "--format", "jsonl", "--config", folder / "utc.toml", "--contributions"
    assert "hint: 240 of 240 vehicle ids" in batch(*arguments).stderr


@pytest.mark.parametrize(
    ("vehicles", "slots", "few"),
    [([1] * 20, 6, 20), ([1] * 19, 24, 0), ([1] * 99, 5, 0), ([3] * 9 + [2] * 91 + [0] * 9, 6, 91)],
)
def test_days_of_few_vehicles_or_timeslots_are_not_counted(vehicles: list[int], slots: int, few: int) -> None:
    spans = IdSpans()
    spans.add(vehicles, slots)
    assert spans.few == few
    assert (spans.hint() is not None) == (few > 0)


def test_a_fold_counts_the_ids_of_a_day_once_it_is_over() -> None:
    """Ids that change every hour, beside buses that drive all day."""
    fold = fold_of(policy_of(lateness="1h"))
    for hour in range(6):
        at = START + hour * HOUR
        ids = [name for bus in range(30) for name in (f"X{bus}", f"Y{hour}-{bus}")]
        apply(fold, [(at, record(vehicle=each, time=at)) for each in ids])
        take_changes(fold)
        fold.drop_closed()
    assert (fold.spans.few, fold.spans.many) == (0, 0)
    apply(fold, [(START + 3 * DAY, None)])
    take_changes(fold)
    fold.drop_closed()
    assert (fold.spans.few, fold.spans.many) == (180, 30)
