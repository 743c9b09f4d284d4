"""`hatcast survey`: private lists, wrong usage, and temporary files that are gone after it."""

import gzip
import json
import os
import signal
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest

from hatcast.agents.config.settings import load_settings
from hatcast.lab.survey.rows import DayRows, Spill
from hatcast.lab.survey.run import SurveyJob, survey, survey_policy
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import capmetro
from tests.replayed import NOW
from tests.unit.surveyed import TUESDAY, Austin, config_of, run


def test_without_a_busy_cell_no_file_is_written(tmp_path: Path, austin: Austin) -> None:
    with pytest.raises(HatcastError, match="no cell of resolution 9 has more than 1000 users"):
        austin("--cells", tmp_path / "cells.txt", "--users", 1000, "--resolution", 9)
    assert not (tmp_path / "cells.txt").exists()


def test_a_private_list_names_its_charge_where_it_is_read_and_prints_nothing_else(
    tmp_path: Path, candidates: Path, austin: Austin
) -> None:
    config, target = config_of(tmp_path / "hatcast.toml", "kept.txt"), tmp_path / "kept.txt"
    given = ("--private", 10, "--candidates", candidates, "--days", "2017-03-21,2017-03-21", "--config", config)
    done = austin(*given, "--cells", target, "--users", 1, "--json")
    charge = "epsilon 10 is charged to each local day from 2017-03-21 to 2017-03-21 (1 day)"
    assert charge in done.stderr
    assert charge in target.read_text()
    assert target.read_text().startswith('source = "private"\n')
    assert 'timezone = "America/Chicago"\n' in target.read_text()
    found = json.loads(done.stdout)
    assert set(found) == {
        *("private", "relation", "settings", "candidates", "epsilon", "epsilon_of_each_day"),
        *("epsilon_of_a_user_on_all_days", "noise", "cells"),
    }
    assert found["noise"]["scale"] == 5 / 10
    assert found["cells"] == target.read_text().splitlines()[6:]
    assert 0 < len(found["cells"]) <= found["candidates"]
    assert {f"{cell:x}" for cell in load_settings(config, {}).policy.cells or ()} == set(found["cells"])
    text = austin(*given, "--cells", tmp_path / "again.txt").stdout
    assert text.splitlines()[0].endswith("within K = 5 HATs a day")


def test_a_recording_without_a_reading_is_chosen_from_as_any_other(tmp_path: Path, candidates: Path) -> None:
    """That nobody was there must not be told by a refusal."""
    empty = tmp_path / "empty.csv.gz"
    empty.write_bytes(gzip.compress(gzip.decompress(TUESDAY.read_bytes()).splitlines()[0] + b"\n"))
    given = ("--private", 1, "--candidates", candidates, "--days", "2017-03-21,2017-03-24")
    done = run(empty, "--format", "capmetro", *given, "--cells", tmp_path / "kept.txt")
    assert done.exit_code == 0
    assert "source" in (tmp_path / "kept.txt").read_text()


@pytest.mark.parametrize("source", ["survey", "private"])
def test_candidates_that_are_not_public_are_refused(
    tmp_path: Path, candidates: Path, source: str, austin: Austin
) -> None:
    cost = (
        'epsilon = 1.0\ndays = "2017-03-21,2017-03-21"\ntimezone = "America/Chicago"\n' if source == "private" else ""
    )
    candidates.write_text(candidates.read_text().replace('"public"\n', f'"{source}"\n{cost}'))
    with pytest.raises(HatcastError, match="make the list without looking at the data"):
        austin(
            *("--private", 1, "--candidates", candidates, "--days", "2017-03-21,2017-03-21"),
            *("--cells", tmp_path / "kept.txt"),
        )


# What it leaves behind


def test_temporary_files_are_their_owners_and_gone_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = []

    def stop(what: str, _: int) -> None:
        (folder,) = tmp_path.iterdir()
        modes.append((what, folder.stat().st_mode & 0o777))
        os.kill(os.getpid(), signal.SIGTERM)

    policy = survey_policy(None, "capmetro", {}, None)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        survey(SurveyJob([TUESDAY], capmetro.FORMAT, policy, None, Fraction(10), NOW, stop))
    assert modes == [("reading records", 0o700)]
    assert [*tmp_path.iterdir()] == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_temporary_files_that_cannot_be_written_are_one_clear_line(tmp_path: Path) -> None:
    rows = DayRows(1)
    for column in (rows.users, rows.slots, rows.steps, rows.arrivals, rows.at_bound, rows.cells[0]):
        column.append(1)
    spill = Spill(tmp_path, (7,), 1)
    (tmp_path / "2017-03-20").touch()
    (tmp_path / "2017-03-21" / "0.parquet").mkdir(parents=True)
    for day in ("2017-03-20", "2017-03-21"):
        with pytest.raises(HatcastError, match=r"temporary files cannot be written in .* or set TMPDIR$"):
            spill.write({day: rows})


# What cannot be


@pytest.mark.parametrize(
    "arguments",
    [
        ("--private", 1),
        ("--private", 1, "--candidates", "c.txt", "--cells", "o.txt"),
        ("--private", 0, "--candidates", "c.txt", "--cells", "o.txt", "--days", "2017-03-21,2017-03-21"),
        ("--private", "nan", "--candidates", "c.txt", "--cells", "o.txt", "--days", "2017-03-21,2017-03-21"),
        ("--private", 1, "--candidates", "c", "--cells", "o", "--days", "2017-03-21,2017-03-21", "--plot", "p.svg"),
        ("--private", 1, "--candidates", "c", "--cells", "o", "--days", "2017-03-21,2017-03-21", "--map", "m.svg"),
        ("--candidates", "c.txt"),
        ("--users", "-1"),
        ("--users", "many"),
        ("--hours", "21,9"),
        ("--hours", "9"),
        ("--days", "2017-03-21"),
        ("--resolution", 16),
        ("--plot", "out.nonsense"),
        ("--map", "out.html"),
    ],
)
def test_wrong_usage_is_told_as_such(arguments: tuple[object, ...], austin: Austin) -> None:
    assert austin(*arguments).exit_code == 2


def test_a_recording_of_an_unknown_place_needs_a_time_zone(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"vehicle": "a", "time": 1641124800000, "lat": 21.2, "lon": 72.8, "speed": 3}')
    with pytest.raises(HatcastError, match="name --timezone or --config"):
        run(path, "--format", "jsonl")
    assert run(path, "--format", "jsonl", "--timezone", "UTC").exit_code == 0
    with pytest.raises(HatcastError, match="is not a known time zone"):
        run(path, "--format", "jsonl", "--timezone", "Surat")


def test_a_folder_that_is_missing_is_told_before_anything_is_read(tmp_path: Path) -> None:
    for option in ("--cells", "--plot"):
        with pytest.raises(HatcastError, match="does not exist"):
            run(tmp_path / "absent", "--format", "capmetro", option, tmp_path / "no" / "file.svg")


def test_the_policys_own_cells_and_first_date_do_not_narrow_a_survey(
    tmp_path: Path, candidates: Path, austin: Austin
) -> None:
    config = config_of(tmp_path / "hatcast.toml", candidates.name)
    text = config.read_text().replace('"austin"', '"austin"\nreplaces = "old"\nfrom = "2030-01-01"')
    config.write_text(text)
    assert austin("--config", config, "--json").stdout != ""
    plain = json.loads(austin("--json").stdout)["resolutions"]
    configured = json.loads(austin("--config", config, "--json").stdout)["resolutions"]
    assert {r: each["hats"] for r, each in plain.items()} == {r: each["hats"] for r, each in configured.items()}
    hidden = config_of(tmp_path / "hidden.toml", "absent.txt", "add_remove", "capped_ratio")
    with pytest.raises(HatcastError, match="cannot be read"):
        austin("--config", hidden)
