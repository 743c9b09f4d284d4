"""Laws of what a user enters in a horizon: never more than is declared, however the log is cut, packed or run again.

tests/laws/test_fold.py compares the same fold with an oracle, and with itself after checkpoints, restarts and crashes.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.batch.ledger_users import LedgerRuns
from hatcast.agents.batch.release import FilesPath, release_final
from hatcast.agents.batch.retention import RetainChunks
from hatcast.stream.fold.calendar import Slot
from hatcast.stream.fold.packing import pack_cell_slots, pack_day, pack_horizon, unpack, unpack_horizon
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import ContinualKeys, Policy
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import Recording
from hatcast.stream.release.continual import CellHat, ContinualRelease, RunningSums
from tests.folding import DAY, HOUR, MINUTE, NOON, NOW, PSEUDONYMS, apply, contributions, occurring
from tests.laws import fold_oracle
from tests.laws.fold_logs import Case, cases, slots_of_day
from tests.replayed import policy_of
from tests.support import examples

often = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
now_and_then = settings(often, max_examples=examples(30))


def is_within_the_declared(case: Case) -> bool:
    """The law, from the contributions alone: cells, slots of a cell and their distances, for each user and horizon."""
    fold = case.empty_fold()
    apply(fold, case.log, case.now)
    keys = case.policy.keys_of(ContinualKeys)
    first = case.policy.hours[0] * HOUR // MINUTE
    entered: dict[bytes, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, cell, user in contributions(fold):  # a pseudonym is of one horizon
        date, name = at.split("/")
        minutes = int(name[:2]) * 60 + int(name[3:]) - first
        day = datetime.fromisoformat(date).toordinal()
        entered[user][cell].append(day * slots_of_day(case.policy) + minutes * MINUTE // case.policy.slot_length_ms)
    return all(
        len(cells) <= keys.max_cells
        and all(len(slots) <= keys.max_slots for slots in cells.values())
        and all(b - a >= keys.min_separation for slots in cells.values() for a, b in pairwise(sorted(slots)))
        for cells in entered.values()
    )


@often
@given(cases(horizon=True, mixed=False))
def test_no_user_enters_more_than_is_declared(case: Case) -> None:
    assert is_within_the_declared(case)


MUTANTS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "a slot more": lambda keys: {"max_slots": keys.max_slots + 1},
    "slots farther apart": lambda keys: {"min_separation": keys.min_separation + 1},
    "a cell more": lambda keys: {"max_cells": keys.max_cells + 1},
    "a day longer": lambda keys: {
        "horizon_days": keys.horizon_days + 1,
        "slots": keys.slots // keys.horizon_days * (keys.horizon_days + 1),
    },
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_fold_of_another_participation_is_told_apart(mutant: Callable[[Any], dict[str, Any]]) -> None:
    def differs(case: Case) -> bool:
        keys = case.policy.keys_of(ContinualKeys)
        wrong = replace(case, policy=replace(case.policy, method=replace(keys, **mutant(keys))))
        fold = wrong.empty_fold()
        apply(fold, case.log, case.now)
        return occurring(fold) != dict(fold_oracle.fold(case.rules(), case.now, case.log).outcomes)

    tried = settings(max_examples=500, phases=[Phase.generate], deadline=None, database=None)
    find(cases(horizon=True, mixed=False), differs, settings=tried)


places = st.dictionaries(
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=9, unique=True).map(sorted),
    max_size=4,
)
users = st.lists(st.tuples(st.binary(min_size=8, max_size=8), places), min_size=1, max_size=64)


@often
@given(users, st.integers(1, 50))
def test_users_of_a_horizon_survive_packing_and_damage_is_noticed(packed: list[Any], lost: int) -> None:
    chunk = pack_horizon([(user, pack_cell_slots(of_user)) for user, of_user in packed])
    assert unpack_horizon(chunk) == packed
    for damaged in (chunk[:-1], chunk + b"\0", chunk[: -min(lost, len(chunk))], b"\0\2" + chunk[2:], b""):
        with pytest.raises(ValueError, match="users of a horizon are"):
            unpack_horizon(damaged)
    with pytest.raises(ValueError, match="format version"):
        unpack_horizon(pack_day([(user, 1) for user, _ in packed]))


# Runs that share a ledger file


def horizon_policy() -> Policy:
    table: dict[str, Any] = {"kind": "tree", "horizon_days": 2, "max_slots": 2, "min_separation": 2, "max_cells": 1}
    return policy_of(
        privacy={"epsilon": 1.0},
        estimator=None,
        min_interval="10m",
        lateness="0s",
        continual=table | {"from": "2022-01-01"},
    )


@dataclass(frozen=True)
class Sent:
    """A reading that arrives as it is made."""

    vehicle: str
    at: int
    lat: float


sent = st.builds(
    Sent,
    st.sampled_from("ab"),
    st.integers(0, 5).flatmap(
        lambda slot: st.integers(0, 3).map(lambda step: NOON + slot * 5 * HOUR + step * 15 * MINUTE)
    ),
    st.sampled_from([21.2, 21.6]),
)
logs = st.lists(sent, max_size=16)


@dataclass
class Runs:
    """A ledger file, and the rows of each HAT that entered a running sum."""

    path: Path
    policy: Policy = field(default_factory=horizon_policy)
    rows: dict[tuple[str, str], dict[bytes, Any]] = field(default_factory=dict)

    def run(self, log: Sequence[Sent]) -> Mapping[str, int]:
        """Fold and release the readings, in order of arrival, and return the outcomes."""
        readings = [Reading(each.vehicle, each.at, each.lat, 72.8, 30.0) for each in log]
        records = [Recorded(b"raw", each, int(each.time)) for each in readings]
        kept, advance = RetainChunks(), RunningSums.advance

        def spied(sums: RunningSums, slot: Slot, hats: Sequence[CellHat], noise: Any) -> list[ContinualRelease]:
            drawn = advance(sums, slot, hats, noise)
            for hat, release in zip(hats, drawn, strict=True):
                if release.state is not None:
                    assert (slot.key, hat.cell) not in self.rows, "entered twice"
                    rows = (row for chunk in hat.chunks.readings for row in unpack(chunk))
                    self.rows[slot.key, hat.cell] = {row.pseudonym: (row.count, row.total) for row in rows}
            return drawn

        with open_ledger(self.path, self.policy, PSEUDONYMS.key) as ledger, pytest.MonkeyPatch.context() as patched:
            patched.setattr(RunningSums, "advance", spied)
            job = FoldJob(self.policy, FoldUsers(PSEUDONYMS, ledger.users.vehicles), NOW, kept, lambda _: None)
            folded = fold_recording(Recording(lambda: records, "file"), job)
            list(release_final(FilesPath(folded, kept, ledger, SystemNoise())))
        return {outcome: number for outcome, number in folded.outcomes.items() if number}


@contextmanager
def runs() -> Iterator[Runs]:
    with tempfile.TemporaryDirectory() as folder:
        yield Runs(Path(folder) / "ledger")


def read_as_one(log: Sequence[Sent], cuts: Sequence[int]) -> bool:
    """The law: runs that are cut where slots begin enter what one run enters, and a repeated one the same again."""
    log = sorted(log, key=lambda each: each.at)
    edges = [0, *(NOON + cut * 5 * HOUR for cut in sorted(cuts)), NOW]
    with runs() as cut, runs() as alone:
        outcomes = [cut.run([each for each in log if first <= each.at < end]) for first, end in pairwise(edges)]
        at_once = alone.run(log)
        total: dict[str, int] = defaultdict(int)
        for each in outcomes:
            for outcome, number in each.items():
                total[outcome] += number
        entered = dict(alone.rows)
        return cut.rows == entered and dict(total) == dict(at_once) == dict(alone.run(log)) and alone.rows == entered


def stay_within_the_declared(logs_of_runs: Sequence[Sequence[Sent]]) -> bool:
    """The law: what enters the sums of all runs together is within the participation of `horizon_policy`."""
    with runs() as ledger:
        for log in logs_of_runs:
            ledger.run(sorted(log, key=lambda each: each.at))
        entered: dict[bytes, list[tuple[str, str]]] = defaultdict(list)
        for hat, rows in ledger.rows.items():
            for user in rows:
                entered[user].append(hat)
        hours = {
            user: sorted(datetime.fromisoformat(slot.replace("/", "T")) for slot, _ in hats)
            for user, hats in entered.items()
        }
        return all(
            len({cell for _, cell in hats}) == 1
            and len(hats) <= 2
            and all(b - a >= timedelta(hours=2) for a, b in pairwise(hours[user]))
            for user, hats in entered.items()
        )


@now_and_then
@given(st.lists(logs, min_size=2, max_size=4))
def test_no_user_enters_more_than_is_declared_over_all_runs(logs_of_runs: list[list[Sent]]) -> None:
    assert stay_within_the_declared(logs_of_runs)


@now_and_then
@given(logs, st.lists(st.integers(1, 5), max_size=3))
def test_runs_over_one_horizon_enter_what_one_run_enters(log: list[Sent], cuts: list[int]) -> None:
    assert read_as_one(log, cuts)


def test_a_ledger_that_forgets_a_horizon_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LedgerRuns, "members", lambda *_: {})
    both_cells = [Sent("a", NOON, 21.2), Sent("a", NOON + 10 * HOUR, 21.6)]
    assert not read_as_one(both_cells, [1])
    assert not stay_within_the_declared([[each] for each in both_cells])


def test_a_slot_that_was_entered_later_keeps_its_distance_too() -> None:
    with runs() as ledger:
        later = [Sent("a", NOON + 5 * HOUR, 21.2)]
        earlier = [Sent("a", NOON + 3 * HOUR, 21.2), Sent("a", NOON + 4 * HOUR, 21.2)]
        assert ledger.run(later) == {"accepted": 1}
        assert ledger.run(earlier) == {"accepted": 1, "over_participation": 1}
        assert ledger.run(later) == {"accepted": 1}  # what has entered is never over
        assert ledger.run([Sent("b", NOON + 5 * HOUR, 21.2)]) == {"late": 1}  # the HAT has its record


def test_a_slot_one_nearer_to_an_earlier_one_than_declared_does_not_enter() -> None:
    with runs() as ledger:
        assert ledger.run([Sent("a", NOON + 3 * HOUR, 21.2), Sent("a", NOON + 4 * HOUR, 21.2)]) == {
            "accepted": 1,
            "over_participation": 1,
        }


def test_a_new_horizon_has_new_pseudonyms_and_forgets_the_old_one() -> None:
    with runs() as ledger:  # horizons of 2022-01-01 and of 2022-01-03
        stays = [Sent("a", NOON, lat) for lat in (21.2, 21.6)]
        assert ledger.run(stays) == {"accepted": 1, "over_participation": 1}
        assert ledger.run([replace(each, at=each.at + DAY) for each in stays]) == {
            "accepted": 1,
            "over_participation": 1,
        }
        pseudonyms = {user for rows in ledger.rows.values() for user in rows}
        assert pseudonyms == {PSEUDONYMS.of("a", date) for date in ("2022-01-01", "2022-01-03")}
