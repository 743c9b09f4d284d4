"""Files that show which members of a group are dead: locked while their process lives, by the kernel."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hatcast.agents.worker.membership import (
    MemberFile,
    dead_members,
    delete_old_files,
    group_prefix,
    member_folder,
)
from tests.services.data import ROOT

PREFIX = group_prefix("kafka:9092", "hatcast-surat")
_MEMBER = """
import sys
from pathlib import Path
from hatcast.agents.worker.membership import MemberFile

file = MemberFile.create(Path(sys.argv[1]), sys.argv[2])
if sys.argv[3]:
    file.write(sys.argv[3])
print("locked", flush=True)
sys.stdin.read()
"""


class Member:
    """A process with a member's file."""

    def __init__(self, folder: Path, member_id: str, prefix: str = PREFIX) -> None:
        command = [sys.executable, "-c", _MEMBER, str(folder), prefix, member_id]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"locked\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    close = kill


def ids(folder: Path, prefix: str = PREFIX) -> set[str]:
    with dead_members(folder, prefix) as dead:
        return set(dead)


def test_a_member_is_dead_once_its_process_was_killed_and_not_before(tmp_path: Path) -> None:
    with closing(Member(tmp_path, "one")) as one, closing(Member(tmp_path, "two")):
        assert ids(tmp_path) == set()
        one.kill()
        assert ids(tmp_path) == {"one"}


def test_a_stopped_process_keeps_its_membership(tmp_path: Path) -> None:
    with closing(Member(tmp_path, "one")) as one:
        one.process.send_signal(signal.SIGSTOP)
        assert ids(tmp_path) == set()


def test_a_member_of_another_group_or_kafka_is_not_looked_at(tmp_path: Path) -> None:
    other = group_prefix("kafka:9093", "hatcast-surat")
    assert len({PREFIX, other, group_prefix("kafka:9092", "hatcast-suva")}) == 3
    with closing(Member(tmp_path, "one", other)) as one:
        one.kill()
        assert ids(tmp_path) == set()
        assert ids(tmp_path, other) == {"one"}


def test_a_dead_member_is_one_processes_concern_at_a_time(tmp_path: Path) -> None:
    with closing(Member(tmp_path, "one")) as one:
        one.kill()
    with dead_members(tmp_path, PREFIX) as first:
        assert set(first) == {"one"}
        assert ids(tmp_path) == set()
    assert ids(tmp_path) == {"one"}


def test_a_member_whose_file_was_deleted_is_not_dead_again(tmp_path: Path) -> None:
    with closing(Member(tmp_path, "one")) as one:
        one.kill()
    with dead_members(tmp_path, PREFIX) as dead:
        for path in dead.values():
            path.unlink()
    assert ids(tmp_path) == set()


def test_the_newest_id_of_a_member_counts(tmp_path: Path) -> None:
    own = MemberFile.create(tmp_path, PREFIX)
    own.write("hatcast-surat-0123456789")
    own.write("two")
    os.close(own._descriptor)  # as the kernel does at the end of a process
    assert ids(tmp_path) == {"two"}


@pytest.mark.parametrize("written", [b"", b"\x00\x00\x00", b"a\nb"])
def test_a_file_without_an_id_is_deleted(tmp_path: Path, written: bytes) -> None:
    (tmp_path / f"{PREFIX}cut").write_bytes(written)
    assert ids(tmp_path) == set()
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_closed_leaves_nothing(tmp_path: Path) -> None:
    MemberFile.create(tmp_path, PREFIX).close()
    assert not list(tmp_path.iterdir())


def test_old_files_of_dead_members_are_deleted_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    other = group_prefix("kafka:9093", "hatcast-surat")
    with closing(Member(tmp_path, "lives")), closing(Member(tmp_path, "died", other)) as died:
        died.kill()
        newest_ms = max(path.stat().st_mtime_ns for path in tmp_path.iterdir()) // 1_000_000
        delete_old_files(tmp_path, newest_ms - 60_000)
        assert len(list(tmp_path.iterdir())) == 2
        delete_old_files(tmp_path, newest_ms + 60_000)
        assert [path.name.startswith(PREFIX) for path in tmp_path.iterdir()] == [True]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path


def test_the_folder_is_this_users_alone(temporary: Path) -> None:
    folder = member_folder()
    assert folder.parent == temporary
    assert folder.stat().st_mode & 0o777 == 0o700
    assert member_folder() == folder


def test_a_folder_that_others_can_write_to_is_not_used(temporary: Path) -> None:
    member_folder().chmod(0o777)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        member_folder()


def test_a_link_in_place_of_the_folder_is_not_followed(temporary: Path) -> None:
    (elsewhere := temporary / "elsewhere").mkdir(mode=0o700)
    (temporary / f"hatcast-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        member_folder()
