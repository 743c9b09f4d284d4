"""The ledger file: one record a HAT for ever, charged in the same durable step, held by one process (I1, I2)."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.batch.ledger_file import LedgerFile, open_ledger
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.ledger.day import Total
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.hats import HatChunks, Release, release_of
from hatcast.stream.release.queries import QueryRelease
from hatcast.stream.units import NANO
from tests.replayed import policy_of
from tests.services.data import ROOT

AT = 1_641_200_000_000
DATE = "2022-01-02"


def a_policy(**changes: Any) -> Policy:
    privacy = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0} | changes.pop("privacy", {})
    return policy_of(privacy=privacy, **changes)


POLICY = a_policy()


def drawn(cell: str, slot: str = f"{DATE}/12:00", users: int = 12, policy: Policy = POLICY) -> Release:
    """A release with its noise, of users who all went at 30 km/h."""
    chunk = pack([Row(i.to_bytes(8, "big"), 2, 60_000, 30_000, 0b11) for i in range(users)])
    return release_of(policy, Calendar(policy), slot, cell, HatChunks([chunk]), SystemNoise())


def committed(ledger: LedgerFile, releases: Sequence[Release | QueryRelease]) -> list[dict[str, Any]]:
    return [json.loads(record) for record in ledger.commit(releases, AT).values()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.ledger"


def test_a_record_stays_as_it_was_committed(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        records = ledger.commit([drawn("a"), drawn("b")], AT)
    with open_ledger(path, POLICY) as ledger:
        assert {name: ledger.find(name) for name in records} == records
        assert ledger.find("test/2022-01-02T12:00/c") is None


def test_a_hat_with_a_record_keeps_it_and_is_not_charged_again(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        first = ledger.commit([drawn("a")], AT)
        before = ledger.summary(DATE)
        again = [drawn("a") for _ in range(5)]  # equal by chance once in a thousand, all five never
        assert any(draw.record(AT) != drawn("a").record(AT) for draw in again)
        for draw in again:
            assert ledger.commit([draw], AT + 1) == first
        assert ledger.summary(DATE) == before


def test_records_are_numbered_by_day_in_the_order_of_their_commits(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        found = committed(ledger, [drawn("b"), drawn("a", "2022-01-03/00:00"), drawn("a"), drawn("c", users=3)])
    assert [(record["cell"], record["seq"]) for record in found] == [("b", 1), ("a", 1), ("a", 2), ("c", 3)]


def test_the_day_tells_releases_and_what_they_cost(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        ledger.commit([drawn("a"), drawn("b"), drawn("c", users=3)], AT)
        day = ledger.summary(DATE)
        assert (day.releases, day.epsilon_sum, day.epsilon_user_day, day.sequence) == (2, 2 * NANO, 2 * NANO, 3)
        assert day.levels == {NANO: 2}
        other = ledger.summary("2022-01-03")
        assert (other.releases, other.epsilon_sum, other.epsilon_user_day, other.sequence) == (0, 0, 0, 0)


def test_a_user_pays_for_the_k_largest_alone(path: Path) -> None:
    policy = a_policy(privacy={"max_hats_per_day": 2})
    with open_ledger(path, policy) as ledger:
        ledger.commit([drawn(cell, policy=policy) for cell in "abcde"], AT)
        assert ledger.summary(DATE).epsilon_user_day == 2 * NANO


def test_beyond_the_days_limit_a_hat_is_exhausted_and_holds_nothing_of_its_estimate(path: Path) -> None:
    policy = a_policy(privacy={"daily_limit": 2.0})
    with open_ledger(path, policy) as ledger:
        found = committed(ledger, [drawn(cell, policy=policy) for cell in "abc"])
        assert [record["status"] for record in found] == ["released", "released", "budget_exhausted"]
        assert not {"mean", "raw", "noise", "interval95"} & found[2].keys()
        day = ledger.summary(DATE)
        assert (day.releases, day.epsilon_sum, day.epsilon_user_day, day.sequence) == (2, 2 * NANO, 2 * NANO, 3)
        (later,) = committed(ledger, [drawn("d", "2022-01-03/12:00", policy=policy)])
        assert later["status"] == "released"


def test_a_suppressed_hat_costs_nothing_on_a_spent_day(path: Path) -> None:
    policy = a_policy(privacy={"daily_limit": 1.0})
    with open_ledger(path, policy) as ledger:
        found = committed(ledger, [drawn("a", policy=policy), drawn("b", users=3, policy=policy)])
    assert [record["status"] for record in found] == ["released", "suppressed"]


def test_all_policies_in_a_file_add_up_against_the_days_limit(path: Path) -> None:
    old, new = a_policy(name="old", privacy={"daily_limit": 2.0}), a_policy(name="new", privacy={"daily_limit": 2.0})
    with open_ledger(path, old) as ledger:
        ledger.commit([drawn("a", policy=old)], AT)
    with open_ledger(path, new) as ledger:
        found = committed(ledger, [drawn("a", policy=new), drawn("b", policy=new)])
        assert [record["status"] for record in found] == ["released", "budget_exhausted"]
        assert (ledger.summary(DATE).releases, ledger.summary(DATE).levels) == (1, {NANO: 2})


def test_beyond_the_limit_of_all_days_every_further_day_is_exhausted(path: Path) -> None:
    policy = a_policy(privacy={"unit": "user", "total_limit": 3.0})
    with open_ledger(path, policy) as ledger:
        found = committed(ledger, [drawn(cell, policy=policy) for cell in "ab"])
    with open_ledger(path, policy) as ledger:
        found += committed(ledger, [drawn(cell, "2022-01-03/12:00", policy=policy) for cell in "ab"])
        found += committed(ledger, [drawn(cell, "2022-01-04/12:00", policy=policy) for cell in "a"])
        assert [record["status"] for record in found] == ["released"] * 3 + ["budget_exhausted"] * 2
        assert [ledger.summary(date).total for date in (DATE, "2022-01-04")] == [Total(3 * NANO, 3 * NANO)] * 2


def test_another_policy_under_the_same_name_is_refused_by_its_differing_keys(path: Path) -> None:
    with open_ledger(path, POLICY):
        pass
    other = a_policy(lateness="6m", privacy={"epsilon": 2.0})
    line = r"another policy\.lateness, policy\.privacy\.epsilon: a policy does not change"
    with pytest.raises(HatcastError, match=line), open_ledger(path, other):
        pass


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path: Path, tmp_path: Path) -> None:
    path.write_text("mean,cell\n" * 1000)
    with pytest.raises(HatcastError, match="is not a ledger of hatcast"), open_ledger(path, POLICY):
        pass
    assert path.read_text() == "mean,cell\n" * 1000
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE releases (x)")
    database.close()
    before = foreign.read_bytes()
    with pytest.raises(HatcastError, match="is not a ledger of hatcast"), open_ledger(foreign, POLICY):
        pass
    assert foreign.read_bytes() == before


def test_a_ledger_cut_off_is_refused(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        ledger.commit([drawn(f"cell-{i}") for i in range(50)], AT)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(HatcastError), open_ledger(path, POLICY) as ledger:
        ledger.commit([drawn("b")], AT)


def test_a_ledger_of_another_version_is_refused(path: Path) -> None:
    with open_ledger(path, POLICY):
        pass
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(HatcastError, match="another version"), open_ledger(path, POLICY):
        pass


@pytest.mark.parametrize("name", [".", "absent/budget.ledger"])
def test_a_place_where_no_file_can_be_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(HatcastError, match="name a file"), open_ledger(tmp_path / name, POLICY):
        pass


def test_a_ledger_in_use_is_refused_until_it_is_free(path: Path) -> None:
    in_use = pytest.raises(HatcastError, match="in use by another `hatcast batch`")
    with open_ledger(path, POLICY), in_use, open_ledger(path, POLICY):
        pass
    with open_ledger(path, POLICY):
        pass


def test_of_a_commit_that_fails_nothing_is_kept(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        impossible = replace(drawn("b"), policy=None)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(AttributeError):
            ledger.commit([drawn("a"), impossible], AT)
        assert ledger.find(drawn("a").release_id) is None
        assert ledger.summary(DATE).sequence == 0


KILLED = """
import os, sys
from pathlib import Path
from hatcast.agents.batch.ledger_file import open_ledger
from tests.unit.test_ledger_file import AT, POLICY, drawn
with open_ledger(Path(sys.argv[1]), POLICY) as ledger:
    (record,) = ledger.commit([drawn("a")], AT).values()
    ledger._database.execute("BEGIN")
    ledger._database.execute("DELETE FROM ledger")
    os.write(1, record)
    os.kill(os.getpid(), 9)
"""


def test_a_commit_survives_a_kill_and_what_was_not_committed_does_not(path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()
    with open_ledger(path, POLICY) as ledger:
        assert ledger.find(drawn("a").release_id) == done.stdout
        assert ledger.summary(DATE).epsilon_sum == NANO


def test_a_copy_made_by_hand_is_a_ledger_too(path: Path, tmp_path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        records = ledger.commit([drawn("a")], AT)
    shutil.copy(path, tmp_path / "copy")
    with open_ledger(tmp_path / "copy", POLICY) as ledger:
        assert {name: ledger.find(name) for name in records} == records
