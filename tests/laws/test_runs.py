"""Laws of `batch` runs that share a ledger: together they keep a day's promise, however the readings are cut into runs.

What a release reads is written down where it is estimated, so that the laws do not ask the ledger what they check.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import h3.api.basic_int as h3
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.batch.ledger_users import LedgerRuns
from hatcast.agents.batch.release import FilesPath, count_changed, release_final
from hatcast.agents.batch.retention import RetainChunks
from hatcast.stream.fold.packing import unpack
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import Recording
from hatcast.stream.release.hats import Hat, Release, releases_of
from tests.folding import HOUR, MINUTE, NOON, NOW, PSEUDONYMS
from tests.replayed import policy_of
from tests.support import examples

K: Final = 2
POLICY: Final = policy_of(
    privacy={"epsilon": 1.0, "max_hats_per_day": K, "daily_limit": 2.0, "min_users": 1}, min_interval="10m"
)
often = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Sent:
    """A reading that arrives as it is made."""

    vehicle: str
    at: int
    lat: float
    speed: float


sent = st.builds(
    Sent,
    st.sampled_from("abc"),
    st.integers(0, 59).map(lambda step: NOON + step * 5 * MINUTE),  # five slots
    st.sampled_from([21.2, 21.6]),
    st.integers(1, 60).map(float),
)
logs = st.lists(sent, max_size=16)
several = st.lists(logs, min_size=1, max_size=4)


@dataclass
class Ledger:
    """A ledger file, and what was read of whom for all that was drawn into it.

    rows      HAT -> pseudonym -> (count, total, max, seen)
    changed   HATs of the last run that an earlier one has released from other readings
    """

    path: Path
    rows: dict[str, dict[bytes, tuple[int, int, int, int]]] = field(default_factory=dict)
    changed: int = 0

    def run(self, log: Sequence[Sent], policy: Policy = POLICY) -> list[bytes]:
        """One run over the readings, in order of arrival; its records."""
        readings = [Reading(each.vehicle, each.at, each.lat, 72.8, each.speed) for each in log]
        records = [Recorded(b"raw", each, int(each.time)) for each in readings]
        kept = RetainChunks()

        def spied(policy: Policy, calendar: Any, hats: Sequence[Hat], *given: Any) -> list[Release]:
            for slot, cell, chunks in hats:
                assert f"{slot}/{cell}" not in self.rows, "drawn twice"
                self.rows[f"{slot}/{cell}"] = {
                    row.pseudonym: (row.count, row.total, row.maximum, row.seen)
                    for chunk in chunks.readings
                    for row in unpack(chunk)
                }
            return releases_of(policy, calendar, hats, *given)

        with open_ledger(self.path, policy, PSEUDONYMS.key) as ledger, pytest.MonkeyPatch.context() as patched:
            patched.setattr("hatcast.agents.batch.release.releases_of", spied)
            job = FoldJob(policy, FoldUsers(PSEUDONYMS, ledger.users.vehicles), NOW, kept, lambda _: None)
            folded = fold_recording(Recording(lambda: records, "file"), job)
            self.changed = count_changed(folded, kept, ledger)
            return list(release_final(FilesPath(folded, kept, ledger, SystemNoise())))

    def cost(self, date: str) -> float:
        """What the ledger says that the date has cost."""
        with open_ledger(self.path, POLICY, PSEUDONYMS.key) as ledger:
            return ledger.summary(date).epsilon_user_day / 1e9


@contextmanager
def a_ledger() -> Iterator[Ledger]:
    with tempfile.TemporaryDirectory() as folder:
        yield Ledger(Path(folder) / "ledger")


def hats_of_users(ledger: Ledger) -> Mapping[bytes, list[str]]:
    found = defaultdict(list)
    for hat, rows in ledger.rows.items():
        for pseudonym in rows:
            found[pseudonym].append(hat)
    return found


def keep_the_promise(runs: Sequence[Sequence[Sent]]) -> bool:
    """The law: over all runs nobody enters more than K HATs, and what they cost is what the ledger says, at most."""
    with a_ledger() as ledger:
        for log in runs:
            ledger.run(log)
        entered = hats_of_users(ledger)
        released = Counter(hat for log in runs for hat in released_in(ledger.run(log)))  # none is drawn again
        worst = max((sum(hat in released for hat in hats) for hats in entered.values()), default=0)
        return (
            hats_of_users(ledger) == entered
            and all(len(hats) <= K for hats in entered.values())
            and worst <= ledger.cost("2022-01-02") <= 2.0
        )


def released_in(records: Sequence[bytes]) -> list[str]:
    """`date/slot/cell` of what was released with noise."""
    found = []
    for record in records:
        if b'"status":"released"' in record:
            _, at, cell = record.split(b'"release_id":"')[1].split(b'"')[0].decode().split("/")
            found.append(f"{at.replace('T', '/')}/{cell}")
    return found


def as_one(log: Sequence[Sent], cuts: Sequence[int]) -> bool:
    """The law: runs that are cut where slots begin read what one run over all of it reads."""
    log = sorted(log, key=lambda each: each.at)
    edges = [0, *(NOON + cut * HOUR for cut in sorted(cuts)), NOW]
    with a_ledger() as ledger, a_ledger() as alone:
        for first, end in pairwise(edges):
            ledger.run([each for each in log if first <= each.at < end])
        alone.run(log)
        return ledger.rows == alone.rows


def repeat_themselves(runs: Sequence[Sequence[Sent]]) -> bool:
    """The law: a run over the same readings prints the same bytes, whatever was run between, and says nothing of it."""
    with a_ledger() as ledger:
        first = ledger.run(runs[0])
        if ledger.run(runs[0]) != first or ledger.changed:
            return False
        others = [ledger.run(log) for log in runs[1:]]
        return [ledger.run(log) for log in runs] == [first, *others]


@often
@given(several)
def test_nobody_enters_more_than_k_hats_however_readings_are_cut_into_runs(runs: list[list[Sent]]) -> None:
    assert keep_the_promise(runs)


@often
@given(logs, st.lists(st.integers(1, 4), max_size=3))
def test_runs_cut_where_slots_begin_read_what_one_run_reads(log: list[Sent], cuts: list[int]) -> None:
    assert as_one(log, cuts)


@often
@given(several)
def test_a_run_over_the_same_readings_prints_the_same_bytes(runs: list[list[Sent]]) -> None:
    assert repeat_themselves(runs)


# Mutants


def forgets(self: LedgerRuns, date: str) -> Mapping[bytes, int]:
    return {}


def counts_each_hat_as_one(self: LedgerRuns, date: str) -> Mapping[bytes, int]:
    return dict.fromkeys(entered(self, date), 1)


def knows_no_member(self: LedgerRuns, slot: str) -> Mapping[int, frozenset[bytes]]:
    return {cell: frozenset() for cell in released(self, slot)}


def knows_no_hat(self: LedgerRuns, slot: str) -> Mapping[int, frozenset[bytes]]:
    return {}


def knows_one_member(self: LedgerRuns, slot: str) -> Mapping[int, frozenset[bytes]]:
    return {cell: frozenset(sorted(users)[:1]) for cell, users in released(self, slot).items()}


entered, released = LedgerRuns.entered, LedgerRuns.released
SPOILED: Final[dict[str, tuple[str, Callable[..., Any], Callable[..., bool]]]] = {
    "a ledger that forgets who entered what": ("entered", forgets, keep_the_promise),
    "users who entered one HAT, however many they entered": ("entered", counts_each_hat_as_one, keep_the_promise),
    "HATs that have nobody in them": ("released", knows_no_member, repeat_themselves),
    "HATs that nobody has released": ("released", knows_no_hat, repeat_themselves),
    "one user a HAT": ("released", knows_one_member, repeat_themselves),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_ledger_breaks_a_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, mutant, law = SPOILED[name]
    monkeypatch.setattr(LedgerRuns, method, mutant)
    tried = settings(max_examples=500, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    try:
        find(several, lambda runs: not law(runs), settings=tried)
    except NoSuchExample:
        pytest.fail("no runs break the law")


def test_the_laws_see_hats_of_both_cells() -> None:
    with a_ledger() as ledger:
        ledger.run([Sent("a", NOON, 21.2, 10.0), Sent("b", NOON, 21.6, 10.0)])
        cells = {h3.latlng_to_cell(lat, 72.8, 7) for lat in (21.2, 21.6)}
        assert {h3.str_to_int(hat.split("/")[2]) for hat in ledger.rows} == cells
