"""A worker's file in its group, and how it keeps it."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hatcast.agents.worker import membership
from hatcast.agents.worker.membership import MemberFile, Membership, dead_members, group_prefix, member_folder
from tests.services.lifecycle import free_ports

GROUP = "hatcast-surat"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def nobody() -> Iterator[dict[str, Any]]:
    """Options of a client whose Kafka does not run."""
    with free_ports(1) as (port,):
        yield {"bootstrap_servers": f"127.0.0.1:{port}"}


def contents() -> list[str]:
    return [path.read_text() for path in member_folder().iterdir()]


def leave_dead_member(client: dict[str, Any]) -> None:
    file = MemberFile.create(member_folder(), group_prefix(client["bootstrap_servers"], GROUP))
    file.write("dead")
    os.close(file._descriptor)  # as the kernel does at the end of a process


async def test_without_a_temporary_directory_a_worker_starts_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    with nobody() as client, capture_logs() as logs:
        own = Membership(GROUP, client, 10.0, lambda: "own")
        await own.start()
        await own.run(asyncio.Event())
        own.close()
    assert [(each["log_level"], each["why"]) for each in logs] == [("warning", "no usable temporary directory found")]


async def test_what_else_is_in_the_folder_does_not_matter(temporary: Path) -> None:
    (folder := member_folder()).joinpath("a folder").mkdir()
    os.utime(folder / "a folder", (0, 0))
    with nobody() as client, closing(Membership(GROUP, client, 10.0, lambda: "own")) as own:
        await own.start()
        own._keep_file(folder)
        assert {path.name for path in folder.iterdir()} > {"a folder"}


async def test_the_id_is_written_when_there_is_one_and_when_it_changes() -> None:
    ids: list[str | None] = [None]
    with nobody() as client, closing(Membership(GROUP, client, 10.0, lambda: ids[0])) as own:
        await own.start()
        assert contents() == [""]
        for ids[0] in ("first", "second"):
            own._keep_file(member_folder())
            assert contents() == [ids[0]]


async def test_a_file_that_somebody_deleted_is_created_again() -> None:
    with nobody() as client, closing(Membership(GROUP, client, 10.0, lambda: "own")) as own:
        await own.start()
        for path in member_folder().iterdir():
            path.unlink()
        own._keep_file(member_folder())
        assert contents() == ["own"]
    assert contents() == []


async def test_a_look_that_fails_is_followed_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    stopping = asyncio.Event()

    def fails_once(folder: Path, prefix: str) -> Any:
        looks.append(1)
        if len(looks) == 2:
            raise OSError(24, "Too many open files")
        if len(looks) == 4:
            stopping.set()
        return dead_members(folder, prefix)

    monkeypatch.setattr(membership, "dead_members", fails_once)
    monkeypatch.setattr(membership, "_LOOK_S", 0.01)
    with nobody() as client, capture_logs() as logs, closing(Membership(GROUP, client, 10.0, lambda: "own")) as own:

        async def live() -> None:
            await own.start()
            await own.run(stopping)

        await live()
    assert [each["why"] for each in logs] == ["too many open files"]


async def test_while_kafka_is_away_a_dead_member_is_tried_again_until_its_session_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(membership, "monotonic_s", lambda: now_s[0])
    with nobody() as client, closing(Membership(GROUP, client, 10.0, lambda: "own")) as own:
        for _ in range(2):  # the second dies long after: its time begins with its own first try
            leave_dead_member(client)
            for after_s, left in ((0.0, True), (9.0, True), (2.0, False)):
                now_s[0] += after_s
                await own._remove_dead(member_folder())
                assert ("dead" in contents()) is left
            now_s[0] += 3_600.0
