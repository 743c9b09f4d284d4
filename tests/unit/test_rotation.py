"""Which files of tests a run of all leaves out: never one for good, and none that looks at what has changed."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.services import rotation
from tests.services.data import ROOT
from tests.services.rotation import (
    GROUPS,
    SHARES,
    Group,
    base_commit,
    cases_left_out,
    changed_since,
    commit_number,
    in_turns,
    left_out,
)

EVERY: Final = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
every_group = pytest.mark.parametrize("name", GROUPS)


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
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    for file in ("first", "second", "third"):
        commit(tmp_path, file)
    return tmp_path


def test_every_file_of_tests_is_in_one_group_or_runs_each_time() -> None:
    rotating = [file for group in GROUPS.values() for file in group.files()]
    assert len(rotating) == len(set(rotating)), "a file is in two groups"
    assert set(rotating) < EVERY
    for number in range(SHARES):
        assert EVERY - set(rotating) <= EVERY - set(out(set(), number))


def test_six_commits_in_a_row_run_every_file_and_each_runs_a_sixth_of_the_groups() -> None:
    rotating = {file for group in GROUPS.values() for file in group.files()}
    for number in (0, 1, 1000):
        shares = [rotating - set(out(set(), number + at)) for at in range(SHARES)]
        assert set().union(*shares) == rotating
        assert sum(map(len, shares)) == len(rotating)
        assert max(map(len, shares)) <= len(rotating) / SHARES + 1


@every_group
def test_every_pattern_of_a_group_finds_something(name: str) -> None:
    group = GROUPS[name]
    assert [each for each in group.tests if not [*(ROOT / "tests").glob(each)]] == []
    assert [each for each in group.about if not [*ROOT.glob(each)]] == []
    for test in group.cases:
        file, _, function = test.partition("::")
        assert f"\ndef {function}(" in (ROOT / file).read_text(), test
        assert not any(file in other.files() for other in GROUPS.values()), "its file is left out as a whole"


@every_group
def test_a_group_runs_whole_if_its_part_or_one_of_its_own_files_has_changed(name: str) -> None:
    group = GROUPS[name]
    parts = [next(iter(ROOT.glob(pattern))) for pattern in group.about]
    inside = [part / "any" / "file.py" if part.is_dir() else part for part in parts]
    own = [*group.files(), *(test.partition("::")[0] for test in group.cases)]
    for file in [*(path.relative_to(ROOT).as_posix() for path in inside), own[0]]:
        assert not {*group.cases} & {*in_turns({file})}, file
        for number in range(SHARES):
            assert name not in left_out({file}, number), file
            assert len(left_out({file}, number)) > len(left_out(set(), number)) / 2, "others are left out all the same"


def test_six_commits_in_a_row_run_each_case_of_a_test_whose_cases_take_turns_and_all_of_others() -> None:
    long, others = {f"a.py::test_long[{case}]" for case in range(20)}, {"a.py::test_longer[1]", "b.py::test_long[1]"}
    for number in (0, 1, 1000):
        ran = [
            {*long, *others} - cases_left_out(long | others, ["a.py::test_long"], number + at) for at in range(SHARES)
        ]
        assert all(others < each for each in ran)
        assert sorted(case for each in ran for case in each - others) == sorted(long)
    assert cases_left_out(long, [], 0) == set()


@pytest.mark.parametrize("changed", [None, {"uv.lock"}, {"README.md", "tests/services/rotation.py"}])
def test_everything_runs_if_what_has_changed_is_unknown_or_concerns_all(changed: set[str] | None) -> None:
    assert left_out(changed, 0) == {}


def test_a_change_beside_a_part_is_none_of_it() -> None:
    group = Group((), ("lab",))
    assert group.is_touched({"lab/days.py"})
    assert not group.is_touched({"laboratory.py", "README.md"})


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
