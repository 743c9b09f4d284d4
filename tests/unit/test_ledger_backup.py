"""Backups of a ledger file, and what is said of a damaged one: never to go on with another."""

import shutil
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from hatcast.agents.batch.ledger_database import back_up
from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.cli import hatcast
from hatcast.stream.errors import HatcastError
from tests.unit.test_ledger_file import AT, DATE, POLICY, drawn

RESTORE = "restore its last backup"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "day.ledger"
    charge(path, "ab")
    return path


def charge(path: Path, cells: str) -> dict[str, bytes]:
    with open_ledger(path, POLICY) as opened:
        return opened.commit([drawn(cell) for cell in cells], AT)


def damage(path: Path) -> None:
    """Everything after the head, as a failing disk may leave it."""
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))


def test_a_restored_backup_has_every_charge_and_every_record(ledger: Path, tmp_path: Path) -> None:
    before = charge(ledger, "abc")
    with open_ledger(ledger, POLICY) as opened:
        summary = opened.summary(DATE)
    copy = tmp_path / "backup"
    assert back_up(ledger, copy) == 1
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    damage(ledger)
    shutil.copyfile(copy, ledger)
    assert charge(ledger, "abc") == before
    with open_ledger(ledger, POLICY) as opened:
        assert opened.summary(DATE) == summary


def test_a_damaged_ledger_is_to_be_restored_and_never_replaced(ledger: Path) -> None:
    damage(ledger)
    with pytest.raises(HatcastError, match=f"is a damaged ledger: {RESTORE}") as raised, open_ledger(ledger, POLICY):
        pass
    assert "name another" not in str(raised.value)
    assert "do not go on with a new file" in str(raised.value)


def test_a_damaged_ledger_leaves_its_backup_as_it_is(ledger: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    back_up(ledger, copy)
    before = copy.read_bytes()
    damage(ledger)
    with pytest.raises(HatcastError, match=RESTORE):
        back_up(ledger, copy)
    assert copy.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"day.ledger", "backup"}


def test_damage_in_one_page_is_found_by_a_backup_though_the_file_can_be_opened(ledger: Path, tmp_path: Path) -> None:
    with open_ledger(ledger, POLICY) as opened:
        opened.commit([drawn(f"cell-{number}") for number in range(500)], AT)
    whole = bytearray(ledger.read_bytes())
    whole[-4096:-2048] = b"\xff" * 2048
    ledger.write_bytes(whole)
    with pytest.raises(HatcastError, match=f"is a damaged ledger: {RESTORE}"):
        back_up(ledger, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_follows_its_ledger_and_never_replaces_charges_that_the_ledger_lacks(
    ledger: Path, tmp_path: Path
) -> None:
    copy, other = tmp_path / "backup", tmp_path / "new.ledger"
    back_up(ledger, copy)
    charge(ledger, "cd")
    back_up(ledger, copy)
    before = copy.read_bytes()
    charge(other, "a")
    with pytest.raises(HatcastError, match=f"has charges of {DATE} that .* does not have"):
        back_up(other, copy)
    assert copy.read_bytes() == before


def test_a_ledger_in_use_is_not_copied(ledger: Path, tmp_path: Path) -> None:
    with open_ledger(ledger, POLICY), pytest.raises(HatcastError, match="is in use by another `hatcast batch`"):
        back_up(ledger, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize(
    ("copy", "says"),
    [
        ("day.ledger", "is the ledger itself"),
        ("none/backup", "cannot be written"),
        ("text", "is not a ledger of hatcast"),
    ],
)
def test_a_copy_that_cannot_be_made_is_one_line(ledger: Path, tmp_path: Path, copy: str, says: str) -> None:
    (tmp_path / "text").write_text("mean,cell\n" * 1000)
    before = ledger.read_bytes()
    with pytest.raises(HatcastError, match=says) as raised:
        back_up(ledger, tmp_path / copy)
    assert "\n" not in str(raised.value)
    assert ledger.read_bytes() == before


def test_budget_copies_a_ledger_file(ledger: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    done = CliRunner().invoke(hatcast, ["budget", "backup", str(ledger), str(copy)])
    assert (done.exit_code, done.output) == (0, f"copied {ledger} with 1 day to {copy}; it is not private\n")
