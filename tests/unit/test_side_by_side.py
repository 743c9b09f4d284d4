"""How the files of tests are spread over processes. What each of them breaks is its own: tests/services/fixtures.py."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.services.data import ROOT
from tests.services.side_by_side import WAITING, next_file, waits

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
