"""`hatcast batch --ledger`: runs with one ledger go on where the last one ended."""

import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest
from click.testing import CliRunner

import hatcast.agents.batch.release
from hatcast.agents.batch.ledger_file import LedgerFile, open_ledger
from hatcast.agents.cli.republish import command as republish
from hatcast.agents.config.settings import load_settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.release.queries import query_release_of
from tests.batching import CONFIG, USERS, batch, dump_of, refusal, releases, telemetry
from tests.folding import DAY, HOUR, MINUTE, NOON, record
from tests.unit.test_batch_add_remove import CELLS, HIDDEN, PLACES
from tests.unit.test_batch_queries import FAST, Killed, query
from tests.unit.test_batch_reports import CELL, OVER, a_report, devices

DATE = "2022-01-02"
ONE = CONFIG.replace("hats_per_day = 40", "hats_per_day = 1").replace("daily_limit = 105.0", "daily_limit = 1.0")
KEY = "5f" * 32


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hatcast.toml"
    path.write_text(ONE)
    return path


def rides(path: Path, *at: int, users: Sequence[str] = USERS) -> Path:
    """The users' readings at each instant."""
    path.write_bytes(b"\n".join(record(vehicle=user, time=instant) for instant in at for user in users))
    return path


def run(config: Path, *files: Path, form: str = "jsonl", said: str = "") -> list[dict[str, Any]]:
    """The records of one run; `said` is in what it says on standard error, which is empty without."""
    done = batch(*files, "--format", form, "--config", config, "--ledger", config.parent / "ledger", "--json")
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)
    return releases(done)


def cost(config: Path) -> float:
    settings = load_settings(config)
    with open_ledger(config.parent / "ledger", settings.policy, settings.user_key) as ledger:
        return ledger.summary(DATE).epsilon_user_day / 1e9


def users_in(ledger: Path) -> dict[str, int]:
    """Slot -> the users of its HAT."""
    with closing(sqlite3.connect(ledger)) as database:
        rows = database.execute("SELECT place, length(vehicles) / 8 FROM entered").fetchall()
    return {place.partition("/")[2]: users for place, users in rows}


def changed(hats: int) -> str:
    return f"HATs that an earlier run released from other readings: {hats}."


# Stored releases


def test_the_lines_of_a_date_are_printed_again_from_the_ledger(tmp_path: Path, config: Path) -> None:
    config.write_text(CONFIG)
    given = rides(tmp_path / "days", NOON, NOON + HOUR, NOON + DAY)
    done = batch(given, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    *first, last = done.stdout.splitlines()
    assert len(first) == 2

    def again(date: str) -> list[str]:
        arguments = [date, "--ledger", str(tmp_path / "ledger"), "--config", str(config)]
        return CliRunner(catch_exceptions=False).invoke(republish, arguments).stdout.splitlines()

    assert again(DATE) == first
    assert again("2022-01-03") == [last]
    with pytest.raises(HatcastError, match="has no releases of 2022-01-04 under policy"):
        again("2022-01-04")


# K over all runs


def test_a_morning_and_an_evening_released_in_two_runs_let_a_bus_into_k_hats_together(
    tmp_path: Path, config: Path
) -> None:
    morning, evening = rides(tmp_path / "morning", NOON), rides(tmp_path / "evening", NOON + 6 * HOUR)
    [first] = run(config, morning)
    assert first["status"] == "released"
    assert run(config, evening) == []
    assert run(config, morning, evening) == [first]
    assert cost(config) == 1.0


def test_buses_that_were_not_there_in_the_morning_are_released_in_the_evening(tmp_path: Path, config: Path) -> None:
    run(config, rides(tmp_path / "morning", NOON, users=USERS[:8]))
    [evening] = run(config, rides(tmp_path / "evening", NOON + 6 * HOUR, users=USERS[4:]))
    assert (evening["slot"], evening["status"]) == ("18:00", "released")
    assert users_in(tmp_path / "ledger") == {"12:00": 8, "18:00": 4}
    assert cost(config) == 1.0, "each bus is in one of the two"


def test_a_day_begins_with_k_again(tmp_path: Path, config: Path) -> None:
    run(config, rides(tmp_path / "today", NOON))
    [tomorrow] = run(config, rides(tmp_path / "tomorrow", NOON + DAY))
    assert tomorrow["status"] == "released"


def test_parts_of_a_dump_that_grows_keep_to_one_k(tmp_path: Path, config: Path) -> None:
    def dump(*at: int) -> Path:
        logs = telemetry(3, *at)
        return dump_of(tmp_path / "dump", [[*log, (at[-1] + 30 * HOUR, None)] for log in logs])

    [first] = run(config, dump(NOON), form="kafka")
    assert run(config, dump(NOON, NOON + 6 * HOUR), form="kafka") == [first]
    assert run(config, rides(tmp_path / "evening", NOON + 6 * HOUR)) == [], "a recording of the same buses too"


def test_a_run_that_was_killed_has_counted_what_it_released(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hatcast.agents.batch.release, "MAX_BATCH", 1)
    path = rides(tmp_path / "two", NOON, users=USERS[:6])
    path.write_bytes(path.read_bytes() + b"\n" + rides(tmp_path / "x", NOON + HOUR, users=USERS[6:]).read_bytes())
    commit = LedgerFile.commit

    def killed(ledger: LedgerFile, *given: Any) -> dict[str, bytes]:
        commit(ledger, *given)
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(LedgerFile, "commit", killed)
        run(config, path)
    assert users_in(tmp_path / "ledger") == {"12:00": 6}
    run(config, rides(tmp_path / "evening", NOON + 6 * HOUR))
    assert users_in(tmp_path / "ledger") == {"12:00": 6, "18:00": 6}
    assert [each["slot"] for each in run(config, path)] == ["12:00"]


def test_devices_enter_k_hats_over_all_runs_too(tmp_path: Path, config: Path) -> None:
    config.write_text(ONE.replace("baseline", "pwh").replace("daily_limit = 1.0", "daily_limit = 9.0"))
    far = h3.latlng_to_cell(22.0, 72.8, 7)

    def reported(cell: str) -> list[dict[str, Any]]:
        sent = [(OVER, a_report(config, number, cell=cell)) for number in range(4)]
        reports = devices(tmp_path, [*sent, (NOON + 30 * HOUR, b"")])
        options = ("--format", "kafka", "--config", config, "--reports", reports, "--ledger", tmp_path / "ledger")
        return releases(batch(dump_of(tmp_path / "no-bus", [[(NOON + 30 * HOUR, None)]]), *options, "--json"))

    [first] = reported(CELL)
    assert reported(far) == []
    assert reported(CELL) == [first]


def test_answers_to_queries_read_a_bus_in_k_places_over_all_runs(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(
        ONE.replace("min_users = 3", "min_users = 1").replace("daily_limit = 1.0", "daily_limit = 9.0")
        + query(**FAST | {"epsilon": 0.5, "days": 2, "missing_days": "leave_out"})
    )
    read: set[tuple[str, str]] = set()

    def spied(asked: Any, calendar: Any, cell: str, days: Any, noise: Any) -> Any:
        read.update((date, f"{cell}/{asked.closing.name}") for date, kept in days.items() if len(kept.counts))
        return query_release_of(asked, calendar, cell, days, noise)

    monkeypatch.setattr("hatcast.stream.release.queries.query_release_of", spied)
    morning, evening = rides(tmp_path / "1", NOON, users=["bus"]), rides(tmp_path / "2", NOON + HOUR, users=["bus"])
    next_day = [rides(tmp_path / f"next-{hour}", NOON + DAY + hour * HOUR, users=["bus"]) for hour in range(2)]
    for files in ([morning], [evening], [evening, next_day[1]], [morning, evening, *next_day]):
        batch(*files, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    assert {date for date, _ in read} == {DATE, "2022-01-03"}
    assert len(read) == 2, "one place a day"


# What has its record


def test_a_run_over_the_same_file_prints_the_same_and_says_nothing(tmp_path: Path, config: Path) -> None:
    config.write_text(ONE.replace("hats_per_day = 1", "hats_per_day = 2"))
    path = rides(tmp_path / "day", NOON, NOON + HOUR, NOON + 2 * HOUR)
    arguments = (path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger")
    first, shown = batch(*arguments, "--json"), batch(*arguments)
    again = batch(*arguments, "--json")
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert "over_cap" in shown.stdout
    assert batch(*arguments).stdout == shown.stdout


def test_readings_that_come_after_their_hats_release_are_late_and_one_line_says_so(
    tmp_path: Path, config: Path
) -> None:
    first = run(config, rides(tmp_path / "some", NOON, users=USERS[:6]))
    more = rides(tmp_path / "more", NOON + MINUTE, users=USERS[6:])
    assert run(config, more, said=changed(1)) == []
    assert run(config, tmp_path / "some", more, said=changed(1)) == first
    done = batch(more, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger")
    assert "late" in done.stdout
    [evening] = run(config, rides(tmp_path / "evening", NOON + 6 * HOUR, users=USERS[6:]))
    assert evening["status"] == "released", "who came too late has entered nothing"


def test_more_readings_of_those_who_are_in_a_hat_are_told_too(tmp_path: Path, config: Path) -> None:
    first = run(config, rides(tmp_path / "some", NOON))
    assert run(config, rides(tmp_path / "rest", NOON + MINUTE), said=changed(1)) == first
    assert run(config, tmp_path / "some", tmp_path / "rest", said=changed(1)) == first


def test_under_add_remove_runs_share_k_and_nothing_tells_of_readings_that_came_too_late(tmp_path: Path) -> None:
    (tmp_path / "cells.txt").write_text('source = "public"\n' + "\n".join(CELLS))
    config = tmp_path / "hidden.toml"
    config.write_text(HIDDEN.replace("max_hats_per_day = 9", "max_hats_per_day = 1"))

    def at(name: str, lat: float, *instants: int) -> Path:
        path = tmp_path / name
        path.write_bytes(b"\n".join(record(vehicle=user, time=each, lat=lat) for each in instants for user in USERS))
        return path

    first = run(config, at("noon", PLACES[0][0], NOON))
    assert sorted(each["status"] for each in first) == ["released", "suppressed", "suppressed"]
    assert run(config, at("again", PLACES[1][0], NOON)) == first, "in an hour that is released nobody is let in"
    later = run(config, at("later", PLACES[0][0], NOON + HOUR))
    assert {(each["slot"], each["status"]) for each in later} == {("13:00", "suppressed")}


# Whose users they are


def test_the_key_of_users_stays_in_the_file_which_is_its_owners_alone(tmp_path: Path, config: Path) -> None:
    run(config, rides(tmp_path / "morning", NOON))
    ledger = tmp_path / "ledger"
    assert stat.S_IMODE(ledger.stat().st_mode) == 0o600
    with closing(sqlite3.connect(ledger)) as database:
        [(fingerprint, key)] = database.execute("SELECT fingerprint, key FROM user_key").fetchall()
        assert len(key) == 32
        assert len(fingerprint) == 32
    assert all(user.encode() not in ledger.read_bytes() for user in USERS)


def test_a_key_of_ones_own_is_not_kept_and_has_to_be_given_again(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rides(tmp_path / "morning", NOON)
    arguments = (path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    monkeypatch.setenv("HATCAST_USER_KEY", KEY)
    first = batch(*arguments).stdout
    assert bytes.fromhex(KEY) not in (tmp_path / "ledger").read_bytes()
    assert batch(*arguments).stdout == first
    monkeypatch.setenv("HATCAST_USER_KEY", "60" * 32)
    assert "was created with another user key" in refusal(*arguments)
    monkeypatch.delenv("HATCAST_USER_KEY")
    assert "was created with a user key of your own: give it again" in refusal(*arguments)


def test_a_file_that_has_its_own_key_refuses_another_one(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rides(tmp_path / "morning", NOON)
    run(config, path)
    monkeypatch.setenv("HATCAST_USER_KEY", KEY)
    line = refusal(path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger")
    assert line.endswith("the file has its own key: remove that setting")
