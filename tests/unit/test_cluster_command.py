"""`hatcast cluster`: what is released and what it costs, who is local, what is refused; and its simulation.
The state file of a clustering: a damaged one is refused, and nothing is drawn or sent from it.
"""

import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import numpy as np
import pytest
from click.testing import CliRunner, Result

from hatcast.agents.cluster.live.state import Chosen, ClusteringPlan, open_state
from hatcast.agents.cluster.release import select_local, select_slots
from hatcast.agents.config.settings import load_settings
from hatcast.lab.cli.cluster import command
from hatcast.lab.cli.evaluate import command as evaluate
from hatcast.lab.evaluate.clusters import CONTENDERS
from hatcast.stream.errors import HatcastError
from tests import batching
from tests.folding import HOUR, NOON, record
from tests.services.data import ROOT

CONFIG = batching.CONFIG.replace("[0, 24]", "[12, 15]")
RELEASE = ("--format", "jsonl", "--epsilon", 8)
LIVE = ("live", "--date", "2022-01-02", "--epsilon", 4, "--state", "x.db")
SIMULATION = ("--users", 200, "--runs", 2, "--iterations", 2, "--local", 0.5)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A recording of 40 buses, half of them slow and half of them fast, at noon and at two; and a configuration."""
    config = tmp_path / "hatcast.toml"
    config.write_text(CONFIG)
    recording = tmp_path / "day.jsonl"
    recording.write_bytes(
        b"\n".join(
            record(vehicle=f"bus-{bus}", time=NOON + hour * HOUR, speed=10.0 if bus % 2 else 50.0)
            for hour in (0, 2)
            for bus in range(40)
        )
    )
    return recording, config


def run(*arguments: object) -> Result:
    """The command in this process; a refusal is raised."""
    words = [str(argument) for argument in arguments]
    return CliRunner(catch_exceptions=False).invoke(command, words if words[:1] == ["live"] else ["offline", *words])


def released(files: tuple[Path, Path], *arguments: object) -> dict[str, Any]:
    done = run(files[0], "--config", files[1], *RELEASE, "--json", *arguments)
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Releases


def test_a_release_tells_centres_by_slot_what_it_cost_and_that_no_ledger_counts_it(files: tuple[Path, Path]) -> None:
    done = run(files[0], "--config", files[1], *RELEASE, "--json")
    found = json.loads(done.stdout)
    assert "costs each vehicle's day epsilon 8. No ledger counts it: every further run" in done.stderr
    assert (found["epsilon"], found["relation"], found["privacy_unit"]) == (8.0, "replace", "user_day")
    assert found["ledger"] is None
    assert found["users"] == {"central": 40, "local": 0}
    assert found["slots"] == ["12:00", "13:00", "14:00"]
    assert len(found["clusters"]) == 4
    for each in found["clusters"]:
        assert len(each["centre"]) == len(each["noise_deviation"]) == len(each["central_weight"]) == 3
        assert all(0 <= speed <= 65 for speed in each["centre"])


def test_the_noise_that_is_told_is_that_of_epsilon_and_of_the_noisy_count(files: tuple[Path, Path]) -> None:
    """sqrt 2 b_T / N, b_T = 2 (d + 1) tau U / epsilon, and what noise on the count adds: from 1 to sqrt 2 times it."""
    found = released(files, "--slots", "12:00", "--clusters", 1, "--iterations", 1)
    (only,) = found["clusters"]
    assert only["last_moved"] == 1
    least = math.sqrt(2) * (2 * 2 * 1 * 65 / 8) / only["users"]
    assert 0.98 * least <= only["noise_deviation"][0] <= 1.02 * math.sqrt(2) * least


def test_every_run_draws_anew_and_from_the_same_start(files: tuple[Path, Path]) -> None:
    one, other = (released(files, "--iterations", 1, "--clusters", 2) for _ in range(2))
    assert [each["users"] for each in one["clusters"]] != [each["users"] for each in other["clusters"]]
    assert one["seed"] == other["seed"] == 1


@pytest.mark.parametrize(
    ("arguments", "central", "local"),
    [
        (("--local", 1), range(1), range(40, 41)),
        (("--local", 0.5), range(1, 40), range(1, 40)),
        (("--local", 0.5, "--blend", "tcm_only"), range(3, 40), range(1)),
        (("--local", 0.5, "--blend", "lm_only"), range(1), range(3, 40)),
    ],
)
def test_a_blend_asks_those_that_it_names(
    files: tuple[Path, Path], arguments: tuple[object, ...], central: range, local: range
) -> None:
    found = released(files, *arguments)
    assert found["users"]["central"] in central
    assert found["users"]["local"] in local
    weights = {weight for each in found["clusters"] if each["last_moved"] for weight in each["central_weight"]}
    if found["blend"] != "pwh" or not central[-1]:
        assert weights <= {1.0 if central[-1] else 0.0}


def test_who_is_local_is_told_by_the_key_and_the_pseudonym_alone() -> None:
    pseudonyms = np.arange(4_000, dtype=np.uint64)
    key, other = bytes(32), bytes([1] * 32)
    found = select_local(pseudonyms, 0.3, key)
    assert (found == select_local(pseudonyms, 0.3, key)).all()
    assert (select_local(pseudonyms[::2], 0.3, key) == found[::2]).all(), "not by who else is there"
    assert (found != select_local(pseudonyms, 0.3, other)).any()
    assert (found <= select_local(pseudonyms, 0.6, key)).all()
    assert abs(found.mean() - 0.3) < 0.05
    assert not select_local(pseudonyms, 0.0, key).any()
    assert select_local(pseudonyms, 1.0, key).all()


def test_a_release_is_shown_as_a_table_and_drawn(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    done = run(files[0], "--config", files[1], *RELEASE, "--slots", "14:00,12:00", "--plot", out)
    assert [line.split()[0] for line in done.stdout.splitlines() if ":00" in line] == ["12:00", "14:00"]
    assert "users, about" in done.stdout
    assert out.read_text().startswith("<?xml")


def test_the_examples_of_the_help_and_of_the_docs_name_slots_of_the_shipped_policy() -> None:
    shipped = load_settings(ROOT / "hatcast.toml", {}).policy
    examples = f"{command.epilog}\n{(ROOT / 'docs/cluster.md').read_text()}"
    found = re.findall(r"--slots (\d[\d:,]*)", examples)
    assert len(found) >= 2
    for slots in found:
        assert select_slots(shipped, slots.split(",")) == slots.split(",")


# Refusals


def test_what_cannot_be_released_is_refused_in_one_line(files: tuple[Path, Path], tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_bytes(b"\n".join(record(vehicle=f"bus-{bus}") for bus in range(2)))
    for arguments, line in (
        ((files[0], "--config", files[1], *RELEASE, "--slots", "12:30"), "12:30: the policy's are 12:00, 13:00, 14:00"),
        ((few, "--config", files[1], *RELEASE), "min_users"),
        ((files[0], "--config", files[1], *RELEASE, "--blend", "lm_only"), "min_users"),
    ):
        with pytest.raises(HatcastError, match=line) as refused:
            run(*arguments)
        assert "\n" not in str(refused.value)


def test_a_live_clustering_without_devices_or_such_slots_is_refused_before_anything_is_opened(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = (*LIVE[:-1], tmp_path / "x.db", "--config", files[1])
    with pytest.raises(HatcastError, match="takes no reports of devices: its estimator is baseline"):
        run(*arguments)
    hybrid = CONFIG.replace('"baseline"', '"pwh"').replace(
        "[policy]", '[policy]\nreplaces = "old"\nfrom = "2022-02-01"'
    )
    files[1].write_text(hybrid)
    with pytest.raises(HatcastError, match=r"--date 2022-01-02 has no slot 12:00 under this policy"):
        run(*arguments)
    assert not (tmp_path / "x.db").exists()


def test_a_policy_under_which_nobody_may_know_how_many_there_are_is_refused(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "cells.txt").write_text(f'source = "public"\n{h3.latlng_to_cell(21.2, 72.8, 7)}')
    hidden = CONFIG.replace('"baseline"', '"capped_ratio"\narray_length = 2').replace("min_users = 3", "")
    hidden = hidden.replace("hours =", 'cells = "cells.txt"\nhours =')
    files[1].write_text(hidden.replace("epsilon =", 'relation = "add_remove"\nepsilon ='))
    with pytest.raises(HatcastError, match="K-means is proved for replace only"):
        run(files[0], "--config", files[1], *RELEASE)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("FILE",),
        ("FILE", "--format", "jsonl"),
        ("FILE", *RELEASE, "--epsilon", 0),
        ("FILE", *RELEASE, "--epsilon", "nan"),
        ("FILE", *RELEASE, "--epsilon", 10.5),
        ("FILE", *RELEASE, "--iterations", 0),
        ("FILE", *RELEASE, "--iterations", 101),
        ("FILE", *RELEASE, "--clusters", 0),
        ("FILE", *RELEASE, "--local", 1.1),
        ("FILE", *RELEASE, "--plot", "no.nonsense"),
        ("live",),
        (*LIVE[:3], "--state", "x.db"),
        (*LIVE, "--date", "yesterday"),
        (*LIVE, "--round-seconds", 0.5),
        (*LIVE, "FILE", "--format", "jsonl"),
        (*LIVE, "--ledger", "ledger.db"),
        (*LIVE, "FILE", "--format", "jsonl", "--ledger", "ledger.db", "--blend", "lm_only"),
    ],
)
def test_wrong_usage_is_told_as_such(arguments: tuple[object, ...]) -> None:
    assert run(*arguments).exit_code == 2


# The simulation


def simulate(*arguments: object) -> Result:
    return CliRunner(catch_exceptions=False).invoke(evaluate, ["clusters", *map(str, arguments)])


def test_a_simulation_compares_all_with_the_result_without_noise_and_is_the_same_again(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    done = simulate(*SIMULATION, "--json", "--plot", out)
    assert "nothing that it prints is private" in done.stderr
    found = json.loads(done.stdout)
    assert list(found["wcss"]) == list(CONTENDERS) == found["settings"]["contenders"]
    for row in found["wcss"].values():
        assert list(row) == ["1", "2"]
        assert 0 < row["2"]["mean"] < 2, "within the unit square"
    assert json.loads(simulate(*SIMULATION, "--json").stdout) == found
    assert json.loads(simulate(*SIMULATION, "--json", "--seed", 2).stdout) != found
    assert "pwh:printed" in out.read_text()


def test_a_simulation_is_shown_as_a_table() -> None:
    lines = simulate(*SIMULATION).stdout
    assert all(name in lines for name in CONTENDERS)
    assert "epsilon 7" in lines


@pytest.mark.parametrize("share", [0, 1])
def test_a_simulation_needs_both_groups(share: int) -> None:
    assert simulate("--local", share).exit_code == 2


CHOSEN = Chosen(
    policy_id="b2:0",
    date="2022-01-02",
    slots=("09:00",),
    clusters=2,
    iterations=3,
    epsilon=4.0,
    seed=1,
    blend="lm_only",
)


def plan() -> ClusteringPlan:
    return ClusteringPlan(clustering="c", chosen=CHOSEN, answers_from=())


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE rounds RENAME COLUMN numbers TO numbert",
        "DELETE FROM plan",
        "UPDATE plan SET body = CAST('{' AS BLOB)",
        "UPDATE plan SET charged = 'x'",
        "UPDATE rounds SET numbers = CAST('[]' AS BLOB)",
    ],
)
def test_a_damaged_state_file_of_a_clustering_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "state"
    with open_state(path, CHOSEN, plan) as state:
        state.begin_round(1, b"{}", 7)
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()
    with (
        pytest.raises(HatcastError, match="is a damaged state file: start a new clustering with another --state"),
        open_state(path, CHOSEN, plan) as state,
    ):
        state.numbers(1)
