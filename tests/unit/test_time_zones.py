"""Time zone data: which version is read, and what processes with different versions do about one local date."""

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.config.settings import load_settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import take_changes
from hatcast.stream.time_zones import TIME_ZONE_DATA, time_zone
from tests.batching import CONFIG, batch, refusal, releases
from tests.folding import DAY, HOUR, NOON, apply, fold_of, record
from tests.other_tzdata import ZONE, install_other_tzdata, use_other_tables
from tests.replayed import policy_of

POLICY = policy_of(timezone=ZONE)
BERLIN = policy_of(timezone="Europe/Berlin")
KOLKATA = "2022-01-02T00:00:00+05:30 to 2022-01-03T00:00:00+05:30"
DHAKA = "2022-01-02T00:00:00+06:00 to 2022-01-03T00:00:00+06:00"


# Which data are read


def shown(**environment: str) -> str:
    """What a child process of this environment reads."""
    script = "from hatcast.stream.time_zones import *; import datetime as d; "
    script += f"print(TIME_ZONE_DATA, d.datetime(2022, 1, 2, tzinfo=time_zone({ZONE!r})).utcoffset())"
    path = os.pathsep.join([*environment.pop("first", "").split(), str(Path.cwd())])
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path} | environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_the_package_comes_before_the_files_of_the_system(tmp_path: Path) -> None:
    system = install_other_tzdata(tmp_path) / "tzdata" / "zoneinfo"
    assert shown(PYTHONTZPATH=str(system)) == f"{TIME_ZONE_DATA} 5:30:00"


def test_another_version_of_the_package_is_what_a_process_reads_and_says(tmp_path: Path) -> None:
    assert shown(first=str(install_other_tzdata(tmp_path))) == "tzdata 1999z 6:00:00"


def test_a_zone_that_the_package_lacks_is_read_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatcast.stream.time_zones._packaged", frozenset)
    time_zone.cache_clear()
    try:
        assert datetime(2022, 1, 2, tzinfo=time_zone(ZONE)).isoformat() == "2022-01-02T00:00:00+05:30"
        with pytest.raises(LookupError):
            time_zone("Asia/Nowhere")
    finally:
        time_zone.cache_clear()


# Rules of a local date


def test_the_rules_of_a_date_are_the_instants_on_it() -> None:
    of = Calendar(BERLIN).rules_of
    version = f" by {TIME_ZONE_DATA}"
    assert of("2026-07-01") == f"2026-07-01T00:00:00+02:00 to 2026-07-02T00:00:00+02:00{version}"
    assert of("2026-10-25") == (
        "2026-10-25T00:00:00+02:00 to 2026-10-25T03:00:00+02:00,"
        f" 2026-10-25T02:00:00+01:00 to 2026-10-26T00:00:00+01:00{version}"
    )
    assert of("2026-03-29") == (
        "2026-03-29T00:00:00+01:00 to 2026-03-29T02:00:00+01:00,"
        f" 2026-03-29T03:00:00+02:00 to 2026-03-30T00:00:00+02:00{version}"
    )
    assert Calendar(policy_of(timezone="Pacific/Apia")).rules_of("2011-12-30") == f"no date{version}"


def test_a_date_that_was_opened_under_other_rules_is_refused_with_both_and_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Calendar(POLICY).rules_of("2022-01-02")
    Calendar(POLICY).check_rules([("2022-01-02", opened), ("2022-01-03", Calendar(POLICY).rules_of("2022-01-03"))])
    use_other_tables(monkeypatch)
    with pytest.raises(HatcastError) as error:
        Calendar(POLICY).check_rules([("2022-01-02", opened)])
    assert str(error.value) == (
        f"2022-01-02 in {ZONE} was opened as {KOLKATA} by {TIME_ZONE_DATA}; here it is {DHAKA} by {TIME_ZONE_DATA}:"
        " install the version of the Python package tzdata that opened it"
        " (An update of time zone data in docs/runbook.md)"
    )


def test_another_version_with_the_same_rules_is_no_contradiction() -> None:
    Calendar(POLICY).check_rules([("2022-01-02", f"{KOLKATA} by tzdata 1999z")])


def test_a_published_slot_that_begins_or_ends_elsewhere_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = ("2022-01-02", "2022-01-02T23:00:00+05:30", "2022-01-03T00:00:00+05:30")
    before = ("2022-01-02", "2021-01-02T00:00:00+01:00", slot[2])  # of a period that began under other rules
    Calendar(POLICY).check_published(*slot)
    Calendar(POLICY).check_published(*before)
    use_other_tables(monkeypatch)
    for one in (slot, before):
        with pytest.raises(HatcastError, match=r"was opened as 202.*; here it is 2022-01-02T00:00:00\+06:00"):
            Calendar(POLICY).check_published(*one)


# When a date opens


def test_the_changes_that_have_the_first_hat_of_a_date_have_the_rules_of_all_that_are_open() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, None), (NOON, record(vehicle="late", time=NOON - 10 * DAY))])
    assert take_changes(fold).rules == {}
    apply(fold, [(NOON, record())])
    assert list(take_changes(fold, journal=True).rules) == ["2022-01-02"]
    apply(fold, [(NOON, record(vehicle="other"))])
    assert take_changes(fold, journal=True).rules == {}
    apply(fold, [(NOON + DAY, record(time=NOON + DAY))])
    rules = take_changes(fold).rules
    assert list(rules) == ["2022-01-02", "2022-01-03"]
    assert rules["2022-01-02"] == f"{KOLKATA} by {TIME_ZONE_DATA}"


# `hatcast batch --ledger`


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hatcast.toml"
    assert CONFIG.count('"UTC"') == 1
    path.write_text(CONFIG.replace('"UTC"', f'"{ZONE}"'))
    return path


def arguments(config: Path, *times: int) -> tuple[object, ...]:
    """A run over a file of the readings at these times."""
    file = config.parent / f"{times[0]}.jsonl"
    file.write_bytes(b"\n".join(record(vehicle=f"bus {number}", time=at) for at in times for number in range(30)))
    return (file, "--format", "jsonl", "--config", config, "--ledger", config.parent / "ledger", "--json")


def test_a_ledger_file_with_a_date_of_other_rules_is_refused_before_a_reading_counts_twice(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = arguments(config, NOON)
    [released] = releases(batch(*given))
    assert (released["date"], released["slot"]) == ("2022-01-02", "17:00")
    use_other_tables(monkeypatch)
    said = refusal(*given)
    assert f"was opened as {KOLKATA}" in said
    assert "install the version of the Python package tzdata" in said
    assert "was opened as" in refusal(*arguments(config, NOON + DAY)), "the dates share an hour"


def test_a_clustering_opens_the_date_that_it_charges_in_a_ledger_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, policy = config.parent / "ledger", load_settings(config).policy
    with open_ledger(path, policy) as ledger:
        assert not ledger.reserve_clustering("clusters", "2022-01-03", 10**12), "no room"
        assert ledger.reserve_clustering("clusters", "2022-01-02", 10**9)
    use_other_tables(monkeypatch)
    with pytest.raises(HatcastError, match=r"^2022-01-02 .* was opened as"), open_ledger(path, policy):
        pass


def test_a_run_that_released_nothing_has_opened_no_date(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert releases(batch(*arguments(config, NOON + 400 * DAY * 20))) == []
    use_other_tables(monkeypatch)
    [released] = releases(batch(*arguments(config, NOON, NOON + HOUR // 60)))
    assert (released["slot"], released["start"]) == ("18:00", "2022-01-02T18:00:00+06:00")
