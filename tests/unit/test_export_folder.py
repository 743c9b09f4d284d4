"""The folder of an export: refused if it is in use, damaged or something else's."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hatcast.agents.export.run import STATE, ExportFolder, ExportProgress, open_folder
from hatcast.agents.tables.arrow import schema_of, table_of_rows
from hatcast.agents.tables.columns import Row, row_of
from hatcast.agents.tables.records import TABLES
from hatcast.stream.errors import HatcastError
from tools.schemas import FOLDER as SCHEMAS
from tools.schemas.asyncapi import version
from tools.schemas.golden import read_golden

ESTIMATES, RELEASES = TABLES["estimates"], TABLES["means"]
DAY = date(2022, 1, 2)


def row(name: str, day: date = DAY, **fields: object) -> Row:
    base: Row = dict.fromkeys(schema_of(ESTIMATES).names)
    return base | {"estimate_id": name, "date": day, "start": datetime(2022, 1, 2, tzinfo=UTC)} | fields


def test_of_equal_keys_the_last_estimate_and_the_first_release_stay(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        folder.merge(ESTIMATES, [row("b"), row("a", stage="live"), row("c", date(2022, 1, 3))])
        folder.merge(ESTIMATES, [row("a", stage="predicted"), row("a", stage="settled")])
        folder.merge(RELEASES, [{"release_id": "a", "date": DAY, "status": "released"}])
        folder.merge(RELEASES, [{"release_id": "a", "date": DAY, "status": "suppressed"}])
    stored = pq.read_table(tmp_path / "out" / "estimates" / "2022-01-02.parquet").to_pylist()
    assert [(each["estimate_id"], each["stage"]) for each in stored] == [("a", "settled"), ("b", None)]
    [release] = pq.read_table(tmp_path / "out" / "releases" / "2022-01-02.parquet").to_pylist()
    assert release["status"] == "released"


def test_offsets_are_kept_and_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        folder.merge(ESTIMATES, [row("a")])
        folder.set_progress("hats.estimates", ExportProgress("id", {0: 3, 11: 5}))
    left = tmp_path / "estimates" / "2022-01-02.parquet.part"
    left.write_bytes(b"half")
    with open_folder(tmp_path) as folder:
        assert folder.progress("hats.estimates") == ExportProgress("id", {0: 3, 11: 5})
        assert folder.progress("hats.means") is None
    assert not left.exists()


def test_one_export_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    with open_folder(tmp_path), pytest.raises(HatcastError, match="in use by another export"), open_folder(tmp_path):
        pass
    with open_folder(tmp_path):
        pass


@pytest.mark.parametrize("state", ["{", '{"version": 2, "topics": {}}', '{"version": 1, "offsets": {}}', "[]"])
def test_a_state_that_cannot_be_read_asks_for_a_new_folder(tmp_path: Path, state: str) -> None:
    (tmp_path / STATE).write_text(state)
    with pytest.raises(HatcastError, match="is damaged, or of another version: export to a new folder"):
        ExportFolder(tmp_path)


def test_a_folder_of_something_else_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(HatcastError, match=f"is not empty and has no {STATE}"), open_folder(tmp_path):
        pass
    with pytest.raises(HatcastError, match=r"cannot be used \(File exists\)"), open_folder(tmp_path / "thesis.txt"):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("damage", [{"estimate_id": None}, {"date": date(2022, 1, 3)}, {"date": None}])
def test_a_file_with_a_row_that_has_no_key_or_another_date_is_damaged(tmp_path: Path, damage: Row) -> None:
    with open_folder(tmp_path / "out") as folder:
        folder.merge(ESTIMATES, [row("a")])
        table = table_of_rows(ESTIMATES, [row("a") | damage])
        pq.write_table(table, tmp_path / "out" / "estimates" / "2022-01-02.parquet")
        with pytest.raises(HatcastError, match=r"2022-01-02.parquet is damaged: delete the folder of the export"):
            folder.merge(ESTIMATES, [row("b")])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        folder.merge(ESTIMATES, [row("a")])
        path = tmp_path / "estimates" / "2022-01-02.parquet"
        path.write_bytes(path.read_bytes()[:40])
        with pytest.raises(HatcastError, match=r"2022-01-02.parquet is damaged: delete the folder of the export"):
            folder.merge(ESTIMATES, [row("b")])


@pytest.mark.parametrize(("topic", "kind"), [("means", "release"), ("estimates", "estimate"), ("queries", "query")])
def test_a_row_says_whether_its_cell_is_a_remainder(topic: str, kind: str) -> None:
    found = {}
    for path in (SCHEMAS / "golden" / version() / kind).glob("*.json"):
        exported = row_of(TABLES[topic], bytes(read_golden(path).value))
        assert exported is not None
        found[path.stem] = exported["remainder"]
    assert {case for case, is_remainder in found.items() if is_remainder} == {
        case for case in found if case.endswith("_remainder")
    }
    assert True in found.values()
