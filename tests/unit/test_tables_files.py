"""Files of records: a file has its name when it is complete, and takes no other file's name."""

import csv
import json
import os
import resource
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hatcast.agents.tables import files
from hatcast.agents.tables.arrow import table_of_records
from hatcast.agents.tables.files import check_target, open_file, open_growing_file
from hatcast.agents.tables.records import BUDGET_DAYS, RELEASES
from hatcast.stream.errors import HatcastError
from tests.unit.test_tables import goldens

RECORDS = goldens("means")
LINES = (".jsonl", ".csv")


def rows_in(path: Path) -> int:
    """The number of records in a file, which is read with the format's own library."""
    if path.suffix == ".parquet":
        return int(pq.read_table(path).num_rows)
    if path.suffix == ".xlsx":
        with zipfile.ZipFile(path) as book:
            return book.read("xl/worksheets/sheet1.xml").count(b"<row ") - 1
    if path.suffix == ".geojson":
        return len(json.loads(path.read_bytes())["features"])
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return len(list(csv.DictReader(file)))
    return len([json.loads(line) for line in path.read_bytes().splitlines()])


@pytest.mark.parametrize("extension", files.EXTENSIONS)
@pytest.mark.parametrize("number", [0, 1, len(RECORDS)])
def test_a_file_has_every_record(extension: str, number: int, tmp_path: Path) -> None:
    path = tmp_path / f"out{extension}"
    with open_file(path, RELEASES) as file:
        for record in RECORDS[:number]:
            assert file.write(record)
        assert not path.exists()
    assert rows_in(path) == number
    assert [*tmp_path.iterdir()] == [path]


def test_json_lines_are_the_bytes_and_parquet_is_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ROW_GROUP", 3)
    for name in ("a.jsonl", "a.PARQUET"):
        with open_file(tmp_path / name, RELEASES) as file:
            for record in RECORDS:
                file.write(record)
    assert (tmp_path / "a.jsonl").read_bytes() == b"".join(each + b"\n" for each in RECORDS)
    stored = pq.ParquetFile(tmp_path / "a.PARQUET")
    assert stored.read() == table_of_records(RELEASES, RECORDS)
    assert stored.num_row_groups == -(-len(RECORDS) // 3)


@pytest.mark.parametrize("extension", files.EXTENSIONS[1:])
def test_a_record_of_another_kind_is_left_out_and_counted_by_the_caller(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{extension}"
    with open_file(path, RELEASES) as file:
        assert [file.write(each) for each in (b"{}", RECORDS[0], b"\xff")] == [False, True, False]
    assert rows_in(path) == 1


@pytest.mark.parametrize("extension", files.EXTENSIONS)
def test_a_block_that_fails_leaves_nothing(extension: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), open_file(tmp_path / f"out{extension}", RELEASES) as file:
        file.write(RECORDS[0])
        raise RuntimeError
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("extension", files.EXTENSIONS)
def test_a_file_that_follows_is_complete_also_if_its_topic_fails(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{extension}"
    with pytest.raises(KeyboardInterrupt), open_growing_file(path, RELEASES) as file:
        file.write(RECORDS[0])
        assert path.exists() == (extension in LINES)
        if extension in LINES:
            assert rows_in(path) == 1
        file.write(RECORDS[1])
        raise KeyboardInterrupt
    assert rows_in(path) == 2
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("opened", [open_file, open_growing_file])
@pytest.mark.parametrize("extension", files.EXTENSIONS)
def test_a_file_that_exists_stays(opened: type, extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{extension}"
    path.write_text("mine")
    with pytest.raises(HatcastError, match="exists already; name another file, or remove it"), opened(path, RELEASES):
        pass
    assert path.read_text() == "mine"


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_that_appears_meanwhile_stays(linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a parameter of the test
    path = tmp_path / "out.csv"
    if not linked:
        monkeypatch.setattr(os, "link", without_links)
    with pytest.raises(HatcastError, match="exists already"), open_file(path, RELEASES):
        path.write_text("mine")
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(path, "mine")]


def without_links(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", without_links)
    with open_file(tmp_path / "out.csv", RELEASES) as file:
        file.write(RECORDS[0])
    assert rows_in(tmp_path / "out.csv") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("out.xls", "-o: out.xls has no known format; name a file that ends in .jsonl, .csv, .xlsx, .parquet or"),
        ("-", "-o: - has no known format"),
        ("out.csv.gz", "no known format"),
        ("none/out.csv", "-o: folder none does not exist; create it, or name another"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HatcastError) as caught:
        check_target(Path(name))
    assert says in str(caught.value)


def test_rows_without_places_are_not_a_map(tmp_path: Path) -> None:
    says = "would have no place on a map; name a file that ends in .jsonl, .csv, .xlsx or .parquet$"
    with pytest.raises(HatcastError, match=says), open_file(tmp_path / "out.geojson", BUDGET_DAYS):
        pass


@contextmanager
def little_room(size: int) -> Iterator[None]:
    """No file can be longer than this: a write beyond fails as on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("extension", files.EXTENSIONS)
def test_a_full_disk_is_one_line_and_leaves_no_half_file(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{extension}"
    with (
        pytest.raises(HatcastError, match=r"out\.\w+ cannot be written \(File too large\): make room"),
        little_room(3000),
        open_file(path, RELEASES) as file,
    ):
        for record in RECORDS * 100:
            file.write(record)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("extension", LINES)
def test_a_file_of_lines_has_whole_lines_when_the_disk_is_full(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{extension}"
    written = 0
    with pytest.raises(HatcastError, match="make room"), little_room(5000), open_growing_file(path, RELEASES) as file:
        for record in RECORDS * 100:
            file.write(record)
            written += 1
    assert rows_in(path) == written > 0
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("extension", files.EXTENSIONS[2:])
def test_a_full_disk_while_a_topic_is_followed_leaves_no_half_file(
    extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_ROW_GROUP", 3)
    path = tmp_path / f"out{extension}"
    with pytest.raises(HatcastError, match="make room"), little_room(3000), open_growing_file(path, RELEASES) as file:
        for record in RECORDS * 100:
            file.write(record)
    assert [*tmp_path.iterdir()] == []
