"""Records, files and settings that are damaged: each is refused in one line, or left out, by whatever reads it."""

import gzip
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hatcast
from hatcast.agents.batch.ledger_days import ledger_records, read_ledger
from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.device.store import open_store
from hatcast.agents.device.stored import StoredMessage, VehicleHat
from hatcast.agents.export.run import STATE, open_folder
from hatcast.agents.kafka.registry import Facts
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.outputs import Record
from hatcast.agents.recovery.published_records import decode_contents
from hatcast.agents.tables.columns import row_of
from hatcast.agents.tables.records import TABLES
from hatcast.agents.tables.terminal import read_shown
from hatcast.agents.timetable.network import read_network
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Columns
from hatcast.stream.release.spending import fineness_of
from hatcast.stream.tracker.observations import read_release as read_published
from tests.displaying import SETTINGS
from tests.unit.test_ledger_file import AT, POLICY, drawn

NOT_UTF_8 = b'{"release_id":"\xe5"}'
TOO_DEEP = b'{"release_id":' + b"[" * 100_000
every_damage = pytest.mark.parametrize("record", [NOT_UTF_8, TOO_DEEP, b"", b"null"], ids=["text", "deep", "", "null"])


@every_damage
def test_a_record_that_cannot_be_decoded_is_left_out_by_every_reader_of_output_topics(record: bytes) -> None:
    assert read_shown(record) is None
    assert read_published(record, POLICY) is None
    assert [table.name for table in TABLES.values() if row_of(table, record) is not None] == []
    for holds_budgets in (False, True):
        found = decode_contents(
            "topic",
            [Record(0, "key", record, is_ours=True)],
            holds_budgets=holds_budgets,
            policy_id=POLICY.policy_id,
            fineness=fineness_of(POLICY),
        )
        assert (found.releases, found.budgets) == ([], {})


@pytest.mark.parametrize(
    "forged",
    [
        {"epsilon": -1.0},
        {"device_epsilon": -1.0},
        {"release_id": f"{POLICY.name}:b/2022-01-02/12:00/a"},
        {"query": {"limit": -1.0}},
        {"query": "daily", "most_hats": -1},
        {"query": "daily", "last_date": "9999-12-31"},
        {"query": "daily", "first_date": "2022-01-03"},
    ],
    ids=json.dumps,
)
def test_a_record_with_a_charge_a_policy_or_a_period_that_none_can_have_is_left_out_of_a_recovery(
    forged: dict[str, Any],
) -> None:
    record = {
        **dict.fromkeys(("cell", "slot", "policy_id"), "a"),
        "release_id": f"{POLICY.name}/2022-01-02/12:00/a",
        "date": "2022-01-02",
        "status": "released",
        "start": "2022-01-02T12:00:00Z",
        "end": "2022-01-02T13:00:00Z",
        "epsilon": 1.0,
        "relation": "replace",
        **dict.fromkeys(("first_date", "last_date"), "2022-01-02"),
    }

    def adopted(*records: dict[str, Any]) -> int:
        values = [Record(offset, "key", json.dumps(each).encode(), is_ours=True) for offset, each in enumerate(records)]
        found = decode_contents(
            "topic", values, holds_budgets=False, policy_id=POLICY.policy_id, fineness=fineness_of(POLICY)
        )
        return len(found.releases)

    assert adopted(record) == 1
    assert adopted(record | forged, record) == 1


@every_damage
@pytest.mark.parametrize("key", ["policy/city", "sealed/city", "day/city/2022-01-02"])
def test_a_record_of_the_registry_that_cannot_be_decoded_is_named(record: bytes, key: str) -> None:
    with pytest.raises(HatcastError, match=f"topic {SETTINGS.topics.registry}: the record '{key}' cannot be read"):
        Domain.of(Facts.of(SETTINGS.topics.registry, {key: record}), SETTINGS, 1)


@every_damage
def test_a_file_of_such_records_is_refused(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "releases.jsonl.gz"
    path.write_bytes(gzip.compress(record + b"\n" + record))
    if record:
        with pytest.raises(HatcastError, match="has no published records"):
            hatcast.read(path)


@every_damage
def test_an_export_whose_state_cannot_be_decoded_is_refused(record: bytes, tmp_path: Path) -> None:
    (tmp_path / STATE).write_bytes(record)
    with pytest.raises(HatcastError, match="is damaged, or of another version"), open_folder(tmp_path):
        pass


def test_columns_on_several_lines_are_refused() -> None:
    with pytest.raises(HatcastError, match="columns: is not a list of FIELD=COLUMN; write it on one line"):
        Columns.parse("vehicle=a\rtime=b")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET key = 'costs:2022-01-02:other' WHERE key LIKE 'costs:%'",
        "DELETE FROM ledger WHERE key LIKE 'ledger:%'",
        "DELETE FROM ledger WHERE key LIKE 'levels:%'",
        "DELETE FROM ledger WHERE key LIKE 'releases:%' AND field LIKE '%/a'",
        "DELETE FROM ledger WHERE key = 'total'",
        "UPDATE ledger SET value = CAST('0' AS BLOB) WHERE field LIKE 'releases:%'",
        "UPDATE ledger SET value = CAST('0' AS BLOB) WHERE field LIKE 'cost:%'",
        "UPDATE ledger SET value = CAST('x' AS BLOB) WHERE field = 'sequence'",
        "UPDATE ledger SET value = CAST('01' AS BLOB) WHERE field = 'sequence'",
        "UPDATE ledger SET value = CAST('\uff11' AS BLOB) WHERE field = 'sequence'",
        "UPDATE ledger SET value = 1 WHERE field = 'sequence'",
        "UPDATE ledger SET field = 'sequences' WHERE field = 'sequence'",
        "UPDATE ledger SET value = CAST('-1' AS BLOB) WHERE key LIKE 'costs:%'",
        "UPDATE ledger SET key = 'other' WHERE key = 'total'",
        "INSERT INTO ledger VALUES ('successors', 'test', CAST('2022-01-09' AS BLOB))",
        "UPDATE policies SET canonical = CAST('{}' AS BLOB)",
        "UPDATE ledger SET value = CAST('{}' AS BLOB) WHERE key LIKE 'releases:%'",
        "ALTER TABLE ledger RENAME COLUMN value TO valeu",
        "DROP TABLE entered",
        "ALTER TABLE ledger ADD COLUMN x TEXT",
    ],
)
def test_a_ledger_file_that_is_no_possible_ledger_is_refused_by_whatever_reads_it(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "ledger"
    with open_ledger(path, POLICY) as ledger:
        ledger.commit([drawn("a"), drawn("b")], AT)
    assert len(ledger_records(path)) == 2
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    with pytest.raises(HatcastError, match="is a damaged ledger: restore its last backup"), open_ledger(path, POLICY):
        pass
    with pytest.raises(HatcastError, match="is a damaged ledger"), read_ledger(path, POLICY):
        pass
    with pytest.raises(HatcastError, match="is a damaged ledger"):
        ledger_records(path)


def test_a_damaged_state_file_of_a_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with open_store(path) as store:
        store.id_of("bus", "2022-01-02")
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(4096) + whole[8192:])
    with pytest.raises(HatcastError, match="state"), open_store(path):
        pass


def damaged_store(path: Path, *statements: str) -> None:
    """Make a state file of a device, and run statements on it."""
    with open_store(path) as store:
        store.id_of("bus", "2022-01-02")
        store.add(VehicleHat("bus", "2022-01-02", "09:00", "a"), 1, StoredMessage(0, "id", b"{}", 1, 2))
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE reports RENAME COLUMN closes_ms TO closes_m"],
        ["DROP INDEX unsent"],
        ["PRAGMA writable_schema = ON", "UPDATE sqlite_master SET sql = replace(sql, 'round INTEGER', 'round TEXT')"],
        ["PRAGMA writable_schema = ON", "UPDATE sqlite_master SET sql = CAST(sql AS BLOB) WHERE name = 'reports'"],
        ["DELETE FROM forgotten"],
        ["UPDATE reports SET cost_nano = -1"],
        ["UPDATE reports SET cost_nano = 'one'"],
        ["UPDATE reports SET body = 'text'"],
    ],
)
def test_a_state_file_whose_schema_or_values_are_damaged_is_refused_when_it_is_opened(
    tmp_path: Path, statements: list[str]
) -> None:
    path = tmp_path / "state"
    damaged_store(path)
    with open_store(path) as store:
        assert len(store.unsent()) == 1
    path.unlink()
    damaged_store(path, *statements)
    with pytest.raises(HatcastError, match="is a damaged state file: name another one with --state"), open_store(path):
        pass


def test_a_state_file_with_a_text_that_is_not_utf_8_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state"
    damaged_store(path, "UPDATE reports SET id = CAST(x'ff' AS TEXT)")
    with (
        pytest.raises(HatcastError, match="is a damaged state file") as refused,
        open_store(path) as store,
    ):
        store.unsent()
    assert "\n" not in str(refused.value)


def test_a_timetable_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gtfs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("Ä.txt", "")
    path.write_bytes(path.read_bytes().replace("Ä".encode(), b"\xc4."))
    with pytest.raises(HatcastError, match="is not a whole zip file"):
        read_network(path)
