"""`hatcast survey`: what it prints, plots and lists, and whose policy may use its list."""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree as ET

import h3.api.basic_int as h3
import pytest
from click.testing import CliRunner

from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.retention import RetainTotals
from hatcast.agents.config.settings import load_settings
from hatcast.agents.recordings.files import open_recording
from hatcast.lab.cli.survey import command as survey_command
from hatcast.lab.survey.report import rings_of
from hatcast.lab.survey.run import SurveyJob, survey, survey_policy
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.readings.formats import capmetro
from tests.folding import PSEUDONYMS
from tests.replayed import NOW
from tests.unit.surveyed import DAYS, TUESDAY, Austin, config_of, run
from tests.unit.test_policy_add_remove import policy as hidden_policy

# What it tells


def test_four_days_of_austin_come_to_the_figures_of_the_documentation() -> None:
    done = run(*DAYS, "--format", "capmetro", "--json")
    assert done.stderr == "reads raw data; nothing that it prints or writes is private\n"
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
