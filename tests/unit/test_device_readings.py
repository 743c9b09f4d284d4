"""How a device's readings were read is fixed in its state file, and compared before it reads any."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from hatcast.agents.config.settings import Settings, parse_settings
from hatcast.agents.device.fold import OwnHat, Rules
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.run import DeviceOptions, open_device
from hatcast.agents.device.store import open_store
from hatcast.agents.recordings import pinned
from hatcast.agents.recordings.pinned import Read
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Slot
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.readings.formats import Columns, FormatChoice
from hatcast.stream.readings.reading import READING_RULES
from tests.devices import HOUR, NOON, policy_table
from tests.other_tzdata import ZONE, use_other_tables

JSONL = FormatChoice("jsonl")
FILE = [("rides.csv", b"its digest")]


def settings_of(timezone: str) -> Settings:
    return parse_settings({"policy": policy_table(timezone=timezone)}, Path(), {})


def csv(times_in: str | None = None, vehicle: str = "plate") -> FormatChoice:
    return FormatChoice("csv", Columns({"vehicle": vehicle}, "km/h", times_in=times_in))


def report(state: Path, settings: Settings, choice: FormatChoice, dates: Sequence[str] = ("2022-01-02",)) -> None:
    rules = Rules(settings.policy, None)
    hats = [OwnHat("bus", Slot(date, "12:00", NOON, NOON + HOUR, None), 0x87608B0D2FFFFFF, 1, 1) for date in dates]
    with open_store(state) as store:
        reporter = Reporter(rules, store, SystemNoise(), read=Read.of(choice, FILE, settings))
        assert len(reporter.draw(hats, 0)) == len(dates)


def refusal(state: Path, settings: Settings, choice: FormatChoice, *, live: bool = False) -> str:
    contents = () if live else [("again.csv", FILE[0][1])]
    with (
        pytest.raises(HatcastError) as refused,
        open_device(settings, DeviceOptions(state, choice), live=live, contents=contents, partitions=1),
    ):
        raise AssertionError("it was opened")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_live_source_and_another_recording_are_read_in_the_zone_and_unit_of_the_first(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", settings_of("UTC")
    report(state, settings, csv())
    for live in (True, False):
        line = refusal(state, settings, csv("America/New_York"), live=live)
        assert line.startswith(f"{state}: times_in is America/New_York, and earlier runs had UTC")
        assert "could lose epsilon 105 a day once more" in line
    miles = FormatChoice("csv", Columns({"vehicle": "plate"}, "mph"))
    assert "unit is mph, and earlier runs had km/h" in refusal(state, settings, miles)


def test_the_same_content_is_read_in_one_format_and_by_the_same_columns(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", settings_of("UTC")
    report(state, settings, csv())
    for other, words in ((csv(vehicle="trip"), "not as format csv, columns vehicle=trip"), (JSONL, "format jsonl")):
        line = refusal(state, settings, other)
        assert line.startswith("again.csv: an earlier run used readings of the same content as format csv, columns")
        assert words in line


def test_a_day_is_not_reported_by_the_clock_of_another_policy(tmp_path: Path) -> None:
    report(tmp_path / "state", settings_of("UTC"), JSONL)
    line = refusal(tmp_path / "state", settings_of("Asia/Tokyo"), JSONL)
    assert "policy.timezone is Asia/Tokyo, and earlier runs had UTC" in line


def test_a_hatcast_with_other_reading_rules_does_not_use_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(tmp_path / "state", settings_of("UTC"), JSONL)
    monkeypatch.setattr(pinned, "READING_RULES", READING_RULES + 1)
    assert f"was run under rules {READING_RULES}" in refusal(tmp_path / "state", settings_of("UTC"), JSONL)


def test_a_date_that_has_reports_has_the_same_time_zone_data_until_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, settings = tmp_path / "state", settings_of(ZONE)
    report(state, settings, JSONL)
    use_other_tables(monkeypatch)
    assert "2022-01-02 in Asia/Kolkata was opened as" in refusal(state, settings, JSONL)
    report(state, settings, JSONL, ["2022-01-06"])
    with open_store(state) as store:
        store.readings.check_dates(Rules(settings.policy, None).calendar)


def test_a_run_that_reports_nothing_fixes_nothing(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", settings_of("UTC")
    report(state, settings, csv(), dates=())
    report(state, settings, csv("Asia/Tokyo", "trip"))
    assert "earlier runs had Asia/Tokyo" in refusal(state, settings, csv())
