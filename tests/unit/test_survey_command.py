"""`hatcast survey`: what it prints, plots and lists, and whose policy may use its list.
`hatcast survey`: private lists, wrong usage, and temporary files that are gone after it.
What a selection draws, and the file that it writes.
"""

import gzip
import json
import os
import signal
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree as ET

import h3.api.basic_int as h3
import numpy as np
import pytest
from click.testing import CliRunner

from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.retention import RetainTotals
from hatcast.agents.config.settings import load_settings
from hatcast.agents.recordings.files import open_recording
from hatcast.lab.cli.survey import command as survey_command
from hatcast.lab.survey.counts import busy_cells, noisy_counts
from hatcast.lab.survey.report import rings_of
from hatcast.lab.survey.rows import DayRows, Spill
from hatcast.lab.survey.run import SurveyJob, survey, survey_policy
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.mechanisms import UnsafeNoise
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.readings.formats import capmetro
from tests.folding import PSEUDONYMS
from tests.replayed import NOW
from tests.support import Scripted
from tests.unit.surveyed import DAYS, TUESDAY, Austin, config_of, run
from tests.unit.test_policy_add_remove import policy as hidden_policy

pytestmark = pytest.mark.usefixtures("elsewhere")

# What it tells


def test_four_days_of_austin_come_to_the_figures_of_the_documentation() -> None:
    done = run(*DAYS, "--format", "capmetro", "--json")
    assert done.stderr == (
        "reads raw data; nothing that it prints or writes is private\n"
        "policy: a general one, without hatcast.toml and --config\n"
    )
    found = json.loads(done.stdout)
    assert found["private"] is False
    assert found["settings"]["days"] == ["2016-11-24", "2016-11-27"]
    figures = {
        resolution: (
            each["cells"],
            each["hats"],
            each["users_of_a_hat"]["median"],
            each["users_of_a_hat"]["p95"],
            each["hats_of_a_user_day"]["max"],
            each["busy_cells"],
        )
        for resolution, each in found["resolutions"].items()
    }
    assert figures == {
        "5": (6, 288, 22, 139, 31, 4),
        "6": (23, 946, 7, 68, 51, 8),
        "7": (98, 4042, 5, 25, 79, 21),
        "8": (433, 14117, 2, 9, 104, 7),
        "9": (1609, 28768, 1, 4, 110, 0),
    }
    assert found["resolutions"]["7"]["edge_km"] == pytest.approx(1.406475763)
    assert found["resolutions"]["7"]["dropped_by_cap"] == {"57": 0.067025, "71": 0.002972, "79": 0.0, "89": 0.0}
    assert len(found["busy_cells"]) == 21
    report = found["resolutions"]["7"]
    assert (report["cell_slots"], report["busy_share"]) == (1092, 0.2143)
    keys = ("mean", "deviation", "min", "p25", "median", "p75", "max")
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text()
    for slot, of in report["by_slot"].items():
        shown = f"{slot} {of['hats']} {of['users']:,} {of['readings']:,} {of['users_of_a_hat']:.1f}"
        assert shown in " ".join(page.split())
    shares = [f"{each['means_at_bound']:.1%}" for each in found["resolutions"].values()]
    assert f"at the bound {' '.join(shares)}" in " ".join(page.split())
    assert [report["users_of_a_hat"][key] for key in keys] == [8.1576, 9.4065, 1, 2, 5, 12, 65]
    assert [report["readings_of_a_hat"][key] for key in keys] == [12.4532, 15.6798, 1, 2, 7, 17, 117]


def test_hats_users_and_readings_are_those_of_batch_without_a_cap() -> None:
    policy = survey_policy(None, "capmetro", {"hours": (0, 24)}, 65_535)
    totals = RetainTotals()
    with open_recording([TUESDAY], capmetro.FORMAT) as recording:
        fold_recording(recording, FoldJob(policy, FoldUsers(PSEUDONYMS), NOW, totals, lambda _: None))
    job = SurveyJob([TUESDAY], capmetro.FORMAT, policy, None, Fraction(10), NOW, lambda _, __: None)
    (found,) = (each for each in survey(job).resolutions if each.resolution == 7)
    assert found.hats == len(totals.hats)
    assert found.users == Counter(users for users, *_ in totals.hats.values())
    assert sum(count * times for count, times in found.readings.items()) == sum(n for _, n, *_ in totals.hats.values())


def test_the_table_says_that_it_is_not_private_and_has_a_column_a_resolution(austin: Austin) -> None:
    text = austin("--resolution", 10).stdout
    assert "Not private" in text
    assert next(line for line in text.splitlines() if line.split()[:1] == ["resolution"]).split() == [
        "resolution",
        *(str(each) for each in range(5, 11)),
    ]


def test_only_the_named_days_and_hours_count_and_means_are_over_all_of_the_days(austin: Austin) -> None:
    found = json.loads(austin("--days", "2017-03-20,2017-03-23", "--hours", "9,10", "--users", "0", "--json").stdout)
    one = json.loads(austin("--hours", "9,10", "--users", "0", "--json").stdout)
    assert sum(one["outcomes"].values()) == sum(found["outcomes"].values())
    assert one["outcomes"]["outside_hours"] > 1000
    assert (found["settings"]["number_of_days"], one["settings"]["number_of_days"]) == (4, 1)
    assert found["resolutions"]["7"]["users_of_a_hat"] == one["resolutions"]["7"]["users_of_a_hat"]
    assert found["busy_cells"] == one["busy_cells"], "more than 0 a day is more than 0 in all"
    more = json.loads(austin("--days", "2017-03-20,2017-03-23", "--hours", "9,10", "--users", "3", "--json").stdout)
    assert set(more["busy_cells"]) < set(one["busy_cells"])
    with pytest.raises(RecordingError, match="has no reading that counts"):
        austin("--days", "2017-03-22,2017-03-23")


def test_a_plot_has_a_line_a_resolution(tmp_path: Path, austin: Austin) -> None:
    out = tmp_path / "out.svg"
    austin("--plot", out)
    text = "".join(ET.parse(out).getroot().itertext())
    assert all(f"resolution {each}" in text for each in (5, 6, 7, 8, 9))
    assert "Not private" in text


def test_a_map_has_every_cell_and_loads_nothing(tmp_path: Path, austin: Austin) -> None:
    out = tmp_path / "map.svg"
    found = json.loads(austin("--map", out, "--json").stdout)
    text = out.read_text()
    tree = ET.parse(out).getroot()
    words = "".join(tree.itertext())
    busy, cells = len(found["busy_cells"]), found["resolutions"]["7"]["cells"]
    assert f"{busy} busy cells" in words
    assert f"{cells - busy} other cells" in words
    assert "Not private" in words
    assert " km" in words, "a scale"
    drawn = [each.get("style", "") for each in tree.iter("{http://www.w3.org/2000/svg}path")]
    assert sum("#4caf50" in style for style in drawn) == busy + 1, "and the key"
    references = [value for each in tree.iter() for key, value in each.attrib.items() if key.endswith("href")]
    assert all(value.startswith("#") for value in references)
    assert "<script" not in text
    assert "<image" not in text
    assert "@import" not in text


def test_cells_on_both_sides_of_the_date_line_are_drawn_side_by_side() -> None:
    cells = [h3.latlng_to_cell(-16.8, longitude, 6) for longitude in (179.99, -179.99)]
    longitudes = [longitude for ring in rings_of(cells) for longitude, _ in ring]
    assert max(longitudes) - min(longitudes) < 1
    assert rings_of([]) == []


@pytest.mark.parametrize("users", ["1e999999999", "-1", "1/0", "9" * 5000, "ten", ""])
def test_what_is_no_number_of_users_is_refused_at_once(users: str) -> None:
    refused = CliRunner().invoke(survey_command, ["file.csv", "--format", "capmetro", "--users", users])
    assert refused.exit_code == 2
    assert "write a number of users, such as 10" in refused.output


# The cells that it writes


def test_a_surveyed_list_is_accepted_under_replace_and_refused_under_add_remove(tmp_path: Path, austin: Austin) -> None:
    config = config_of(tmp_path / "hatcast.toml", "cells.txt")
    austin("--config", config, "--cells", tmp_path / "cells.txt")
    text = (tmp_path / "cells.txt").read_text()
    assert text.startswith('source = "survey"\n# not private: ')
    assert len(load_settings(config, {}).policy.cells or ()) == len(text.splitlines()) - 2
    with pytest.raises(HatcastError, match="must be public and listed under add_remove"):
        hidden_policy(cells="survey.txt")
    with pytest.raises(HatcastError, match="exists already"):
        austin("--config", config, "--cells", tmp_path / "cells.txt")


def test_a_list_of_fine_cells_is_surveyed_for_a_policy_of_several_sizes_that_names_it(
    tmp_path: Path, austin: Austin
) -> None:
    sizes = 'resolutions = [7, 8]\nfine_cells = "fine.txt"\ncells = "all"'
    config = config_of(tmp_path / "hatcast.toml", "all")
    config.write_text(config.read_text().replace('cells = "all"', sizes))
    austin("--config", config, "--resolution", 8, "--users", 8, "--cells", tmp_path / "fine.txt")
    fine = load_settings(config, {}).policy.fine
    assert fine is not None
    assert len(fine.cells) == len((tmp_path / "fine.txt").read_text().splitlines()) - 2
    coarse = json.loads(austin("--config", config, "--json").stdout)
    assert coarse == json.loads(austin("--config", config_of(tmp_path / "plain.toml", "all"), "--json").stdout)


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
        run(path)
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


CELLS = [0x87608B0D2FFFFFF, 0x87608B0D3FFFFFF]


def test_every_number_of_every_candidate_gets_noise_for_a_distance_of_k_and_all_of_epsilon() -> None:
    noise = Scripted([5, -3, 0, 1])
    noisy = noisy_counts(np.array([[0, 7], [0, 0]], np.int64), 89, 31, 0.5, noise)
    assert noise.asked == [(0, 89, 0.5), (7, 89, 0.5), (0, 89, 0.5), (0, 89, 0.5)]
    assert noisy.counts.tolist() == [[5, 4], [0, 1]]
    assert noisy.scale == pytest.approx(89 / (31 * 0.5))


def test_noise_alone_decides_below_0_too() -> None:
    noisy = noisy_counts(np.array([[100], [0]], np.int64), 1, 1, 1.0, Scripted([-150, 11]))
    assert busy_cells(CELLS, noisy.counts, Fraction(10), 1) == [CELLS[1]]


def test_a_mean_that_is_just_the_bound_is_not_above_it() -> None:
    counts = np.array([[310, 311], [311, 311]], np.int64)
    assert busy_cells(CELLS, counts, Fraction(10), 31) == [CELLS[1]]


def test_noise_that_does_not_fit_is_refused_whatever_was_counted() -> None:
    with pytest.raises(UnsafeNoise):
        noisy_counts(np.zeros((1, 1), np.int64), 65_535, 31, 1e-12, SystemNoise())
