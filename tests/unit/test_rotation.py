"""Which files of tests a run of all leaves out: never one for good, and none that has changed.
How the files of tests are spread over processes. What each of them breaks is its own: tests/services/fixtures.py.
The recorded input that tests stand on.
"""

import json
import subprocess
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.lab.evaluate.simulation import Readings
from tests.services import data, rotation
from tests.services.absent import absence_skips, find_git
from tests.services.data import ROOT
from tests.services.rotation import (
    CASES,
    GROUPS,
    SHARES,
    base_commit,
    cases_left_out,
    changed_since,
    commit_number,
    files_of,
    in_turns,
    left_out,
)
from tests.services.side_by_side import AT_ONCE, WAITING, is_superfluous, next_file, waits

EVERY: Final = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}


def out(changed: set[str] | None, number: int) -> list[str]:
    return [file for files in left_out(changed, number).values() for file in files]


def commit(folder: Path, file: str) -> None:
    """One more commit, with one more file."""
    (folder / file).touch()
    for command in (["add", file], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", file]):
        subprocess.run(["git", *command], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch `main` of three commits, in which git looks from now on."""
    monkeypatch.setattr(rotation, "ROOT", tmp_path)
    monkeypatch.delenv("HATCAST_TEST_BASE", raising=False)
    find_git()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    for file in ("first", "second", "third"):
        commit(tmp_path, file)
    return tmp_path


def test_every_file_of_tests_is_in_one_group_or_runs_each_time() -> None:
    rotating = [file for group in GROUPS for file in files_of(group)]
    assert len(rotating) == len(set(rotating)), "a file is in two groups"
    assert set(rotating) < EVERY
    for number in range(SHARES):
        assert EVERY - set(rotating) <= EVERY - set(out(set(), number))


def test_six_commits_in_a_row_run_every_file_and_each_runs_a_sixth_of_the_groups() -> None:
    rotating = {file for group in GROUPS for file in files_of(group)}
    for number in (0, 1, 1000):
        shares = [rotating - set(out(set(), number + at)) for at in range(SHARES)]
        assert set().union(*shares) == rotating
        assert sum(map(len, shares)) == len(rotating)
        assert max(map(len, shares)) <= len(rotating) / SHARES + 1


@pytest.mark.parametrize("name", GROUPS)
def test_every_pattern_of_a_group_finds_something(name: str) -> None:
    assert [each for each in GROUPS[name] if not [*(ROOT / "tests").glob(each)]] == []


@pytest.mark.parametrize("test", CASES)
def test_a_test_whose_cases_take_turns_is_there_and_its_file_runs_each_time(test: str) -> None:
    file, _, function = test.partition("::")
    assert f"def {function or 'test_'}" in (ROOT / file).read_text()
    assert not any(file in files_of(group) for group in GROUPS)


@pytest.mark.parametrize("name", GROUPS)
def test_a_file_that_has_changed_runs_whatever_the_turn_and_with_all_its_cases(name: str) -> None:
    for file in files_of(name):
        for number in range(SHARES):
            assert {*out(set(), number)} - {*out({file}, number)} <= {file}
            assert file not in out({file}, number)
    for test in CASES:
        assert {*CASES} - {*in_turns({test.partition("::")[0]})} >= {test}


def test_six_commits_in_a_row_run_each_case_of_what_takes_turns_by_cases_and_all_of_others() -> None:
    long = {f"a.py::test_long[{case}]" for case in range(20)} | {f"c.py::test_{name}" for name in "abcdefg"}
    others = {"a.py::test_longer[1]", "b.py::test_long[1]"}
    for number in (0, 1, 1000):
        ran = [
            {*long, *others} - cases_left_out(long | others, ["a.py::test_long", "c.py"], number + at)
            for at in range(SHARES)
        ]
        assert all(others < each for each in ran)
        assert sorted(case for each in ran for case in each - others) == sorted(long)
        assert {len(each - others) for each in ran} == {4, 5}, "the shares are equal"
    assert cases_left_out(long, [], 0) == set()


def test_everything_runs_if_nobody_knows_what_has_changed() -> None:
    assert (left_out(None, 0), in_turns(None)) == ({}, [])


def test_what_has_changed_is_in_a_commit_or_in_none_yet(repository: Path) -> None:
    before = base_commit()
    assert changed_since(before) == {"third"}, "on main the base is the commit before"
    (repository / "first").write_text("more")
    (repository / "new").touch()
    assert changed_since(before) == {"first", "third", "new"}
    assert (changed_since("no such commit"), changed_since(None)) == (None, None)


def test_on_a_branch_the_base_is_where_it_left_main(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "checkout", "-q", "-b", "branch"], cwd=repository, check=True)
    commit(repository, "fourth")
    commit(repository, "fifth")
    assert changed_since(base_commit()) == {"fourth", "fifth"}
    monkeypatch.setenv("HATCAST_TEST_BASE", "HEAD~1")
    assert changed_since(base_commit()) == {"fifth"}


def test_the_next_commit_has_the_next_number(repository: Path) -> None:
    assert commit_number() == 3
    commit(repository, "fourth")
    assert commit_number() == 4


def test_of_a_shallow_clone_and_outside_git_nothing_is_known(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow = tmp_path_factory.mktemp("shallow")
    subprocess.run(["git", "clone", "-q", "--depth", "2", f"file://{repository}", str(shallow)], check=True)
    monkeypatch.setattr(rotation, "ROOT", shallow)
    assert base_commit() is not None
    assert changed_since(base_commit()) is None
    monkeypatch.setattr(rotation, "ROOT", tmp_path_factory.mktemp("nowhere"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", "/")
    assert (base_commit(), changed_since("HEAD")) == (None, None)


COMPUTING = ("tests/laws/test_fold.py", "tests/unit/test_grid.py", "tests/unit/test_hats.py")
FAULTS = ("tests/faults/test_outage.py", "tests/faults/test_storm.py")
files = st.lists(
    st.sampled_from([*COMPUTING, *FAULTS, "tests/laws/test_stores.py", "tests/leaks/test_whole_system.py"]),
    min_size=1,
    unique=True,
).map(sorted)


def test_what_is_said_to_wait_is_there() -> None:
    assert [place for place in WAITING if not (ROOT / place).exists()] == []


def test_files_wait_by_their_folder_or_by_their_name() -> None:
    assert all(map(waits, [*FAULTS, "tests/laws/test_stores.py"]))
    assert not any(map(waits, [*COMPUTING, "tests/faults_of_others/test_storm.py", "tests/laws/test_stores.py.old"]))


@given(left=files)
def test_a_process_takes_the_first_of_its_kind_and_then_what_is_left(left: list[str]) -> None:
    computing = [file for file in left if file in COMPUTING]
    waiting = [file for place in WAITING for file in left if Path(file).is_relative_to(place)]
    assert next_file(left, computes=True) == (computing or left)[0]
    assert next_file(left, computes=False) == (waiting or computing)[0]


@given(left=files, others=st.integers(0, 6))
def test_a_process_ends_if_nothing_is_left_that_waits_and_enough_others_compute(left: list[str], others: int) -> None:
    assert is_superfluous(left, others) is (bool(left) and {*left} <= {*COMPUTING} and others >= AT_ONCE)


def test_what_may_be_published_is_in_the_tree() -> None:
    days = ["2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27", "2017-03-21"]
    for path in ["golden/edge.jsonl", *(f"capmetro/{day}.csv.gz" for day in days)]:
        assert data.recording(path).is_relative_to(data.DATA)


@pytest.mark.parametrize("name", ["edge", "capmetro_2017-03-21", "itms_30min", "gtfs_rt"])
def test_every_golden_has_outcomes_and_hats(name: str) -> None:
    assert {"outcomes", "hats"} <= data.golden(name).keys()


def test_the_itms_like_counts_meet_what_is_published_of_that_hat() -> None:
    found = json.loads((data.DATA / "itms_like_counts.json").read_text())
    counts = sorted(found["counts"], reverse=True)
    assert (len(counts), counts[0], counts[-1], sum(counts)) == (217, 417, 1, 17_166)
    assert median(counts) == 46
    assert (found["U"], found["mean"], found["variance"]) == (65.0, 20.66769, 115.135)
    assert (Readings().upper_bound, Readings().mean, Readings().variance) == (65.0, 20.66769, 115.135)


def test_an_absent_recording_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match=data.RECORDINGS_ABSENT), absence_skips():
        data.recording("no/such/recording.json")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=data.RECORDINGS_ABSENT), absence_skips():
        data.recording("no/such/recording.json")
