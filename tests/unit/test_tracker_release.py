"""A tracker policy at work: its records, and going on after a crash with the same numbers."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.policy import Policy, TrackerKeys, read_policy
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from hatcast.stream.records import ReleaseRecord
from hatcast.stream.records.fields import Status, query_kind
from hatcast.stream.release.tracker import PolicyTracker
from hatcast.stream.release.tracker_records import MadeQuery, StoredDraw, TrackerRelease, query_release
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import HOUR_MS, NANO

CELLS = ("87608b0d0ffffff", "87608b0d2ffffff", "87608b0d3ffffff")
DATES = ("2022-01-02", "2022-01-03")
NOW_MS = 1_641_098_103_120
_RECORD = msgspec.json.Decoder(ReleaseRecord)


class Counting:
    """Noise that is different with each draw, and counted."""

    def __init__(self) -> None:
        self.draws = 0

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        self.draws += 1
        return Noisy(value + 1_000 * self.draws, distance / epsilon)


def policy(**tracker: Any) -> Policy:
    table = {
        "name": "surat-tracker",
        "upper_bound": 65.0,
        "timezone": "Asia/Kolkata",
        "privacy": {"daily_limit": 5.0},
        "estimator": {"name": "tracker"},
        "tracker": tracker,
    }
    return read_policy(table, {**ESTIMATOR_KEYS, **TRACKER_ESTIMATOR}, lambda _: "")


POLICY = policy()


MEANS = (8_000, 50_000)
"""of a HAT's buses, milli-units: from, to"""


def hat(cell: str, users: int, seed: int, means: tuple[int, int] = MEANS) -> HatUsers:
    made = np.random.default_rng(seed)
    counts = made.integers(5, 60, users)
    return HatUsers(cell, np.arange(100, 100 + users, dtype=np.uint64), counts, counts * made.integers(*means))


def slots(date: str, of: Policy = POLICY, means: tuple[int, int] = MEANS) -> Iterator[tuple[Slot, list[HatUsers]]]:
    """In the first slot one HAT has enough buses: it is asked alone, and others after pulses."""
    inside = (slot for slot in Calendar(of).slots_of(date) if slot.outside is None)
    for number, slot in enumerate(inside):
        users = (2, 7, 12) if number else (2, 2, 12)
        yield slot, [hat(cell, users[at], 10 * number + at, means) for at, cell in enumerate(CELLS)]


class Crash(Exception):
    """Ends a run."""


class Ledger:
    """Records that are kept, and the state after the last day; ends a run after so many commits.

    sent        release_id and bytes of everything that has left
    timetable   of the file, as it is now
    slots_of    slots of a date with their HATs
    """

    timetable: Timetable | None = None

    def __init__(
        self, commits: int = 10**9, slots_of: Callable[[str], Iterator[tuple[Slot, list[HatUsers]]]] = slots
    ) -> None:
        self.slots_of = slots_of
        self.records: dict[str, dict[str, bytes]] = {}
        self.state: bytes | None = None
        self.left = commits
        self.sent: list[tuple[str, bytes]] = []

    def commit(self, releases: Sequence[TrackerRelease]) -> None:
        for release in releases:
            day = self.records.setdefault(release.date, {})
            if release.release_id not in day:
                if not self.left:
                    raise Crash
                self.left -= 1
                day[release.release_id] = numbered(release.record(NOW_MS), len(day) + 1)
            self.sent.append((release.release_id, day[release.release_id]))

    def run(self, noise: Counting, dates: Sequence[str] = DATES, of: Policy = POLICY) -> PolicyTracker:
        tracker = PolicyTracker(of, self.state, self.timetable)
        for date in dates:
            if date <= tracker.settled:
                continue
            if (first := tracker.first_state(date)) is not None:
                _, self.state = first
                tracker = PolicyTracker(of, self.state, self.timetable)
            tracker.begin_day(date, self.records.get(date, {}).items())
            for slot, hats in self.slots_of(date):
                self.commit(tracker.close_slot(slot, hats, noise))
            self.commit(tracker.settle(noise))
            self.state = tracker.end_day()
        return tracker

    def decoded(self) -> list[ReleaseRecord]:
        return [_RECORD.decode(record) for day in self.records.values() for record in day.values()]


def test_each_hat_has_a_record_and_each_query_one() -> None:
    ledger, noise = Ledger(), Counting()
    ledger.run(noise)
    records = ledger.decoded()
    hats = [each for each in records if not query_kind(each.release_id)]
    assert len(hats) == 2 * 12 * len(CELLS)
    assert {each.status for each in hats} == {"released", "suppressed", "deferred"}
    assert all((each.counts is not None and each.counts.users == 2) for each in hats if each.status == "suppressed")
    queries = [each for each in records if each.query is not None]
    assert len(queries) == noise.draws > len([each for each in queries if each in hats]) > 0
    for date in DATES:
        numbers = [each.query.number for each in queries if each.date == date if each.query is not None]
        assert numbers == list(range(1, len(numbers) + 1))
    for each in queries:
        assert each.query is not None
        assert each.noise is not None
        assert each.noise.scale == pytest.approx(2 * each.query.clip / each.query.weight / each.query.kept, abs=1e-3)
        assert sum(weight for _, weight, _ in each.query.hats) == pytest.approx(1)
        assert 0 < each.epsilon <= each.query.charges <= each.query.members * 5


def pulses(ledger: Ledger) -> list[ReleaseRecord]:
    return [each for each in ledger.decoded() if query_kind(each.release_id) == "pulse"]


def test_a_pulse_is_of_the_hats_of_its_slot_with_enough_users_and_comes_before_their_own_queries() -> None:
    ledger = Ledger()
    ledger.run(Counting())
    of_slot: dict[tuple[str, str], list[ReleaseRecord]] = {}
    for each in ledger.decoded():
        if query_kind(each.release_id) != "settlement":
            of_slot.setdefault((each.date, each.slot), []).append(each)
    found = pulses(ledger)
    assert found
    for pulse in found:
        hats = [each for each in of_slot[pulse.date, pulse.slot] if not query_kind(each.release_id)]
        enough = {each.cell for each in hats if each.status != "suppressed"}
        assert pulse.query is not None
        assert pulse.query.cells is not None
        assert pulse.cell == pulse.query.cells[0]
        assert set(pulse.query.cells) <= enough
        assert len(pulse.query.cells) == len(pulse.query.hats) == len(set(pulse.query.cells)) > 1
        assert {slot for slot, _, _ in pulse.query.hats} == {pulse.slot}
        assert (pulse.start, pulse.end) == (hats[0].start, hats[0].end)
        assert pulse.counts is None
        assert all(pulse.query.number < each.query.number for each in hats if each.query is not None)
        assert all((pulse.seq or 0) < (each.seq or 0) for each in hats)


def test_a_pulse_that_was_committed_before_a_crash_is_learned_and_not_drawn_again() -> None:
    ledger, noise = Ledger(45), Counting()  # up to the first pulse, of the second date
    with pytest.raises(Crash):
        ledger.run(noise)
    (before,) = pulses(ledger)
    ledger.left = 10**9
    ledger.run(noise)
    after = [each for each in pulses(ledger) if each.release_id == before.release_id]
    assert after == [before]
    assert all(len({record for name, record in ledger.sent if name == each}) == 1 for each, _ in ledger.sent)


def test_the_record_of_a_pulse_over_10000_hats_fits_into_a_message() -> None:
    tracker, noise = PolicyTracker(POLICY, None), Counting()
    tracker.begin_day(DATES[0], [])
    slot, _ = next(slots(DATES[0]))
    random = np.random.default_rng(4)
    hats = []
    for number in range(10_000):
        users = np.unique(random.integers(0, 30_000, 6)).astype(np.uint64)
        counts = random.integers(1, 60, len(users))
        hats.append(HatUsers(f"87608b{number:05x}ffff", users, counts, counts * random.integers(8_000, 50_000)))
    names, closed = iter(hats), []
    for query in tracker._tracker.close_slot(slot.start_ms, 9, [*names]):
        closed.append(query)
        break
    made = MadeQuery(1, closed[0], tuple((slot.name, hat.cell) for hat in hats), 10**9, 30.0, 5 * NANO)
    release = query_release(POLICY, Calendar(POLICY), {slot.name: slot}, made)
    assert made.is_pulse
    assert noise.draws == 0
    assert 500_000 < len(numbered(release.record(NOW_MS), 10**6)) < 900_000


def test_a_run_that_ends_after_any_commit_goes_on_with_the_same_records() -> None:
    whole = Ledger()
    whole.run(Counting())
    number = sum(map(len, whole.records.values()))
    for commits in (*range(0, number, 7), number - 1):
        ledger, noise = Ledger(commits), Counting()
        with pytest.raises(Crash):
            ledger.run(noise)
        seen = {name: record for day in ledger.records.values() for name, record in day.items()}
        ledger.left = number
        ledger.run(Counting())
        after = {name: record for day in ledger.records.values() for name, record in day.items()}
        assert after.keys() == {name for day in whole.records.values() for name in day}
        assert seen.items() <= after.items()
        # Public counts alone decide: all fields but those with noise are those of the run without a crash.
        assert [designed(each) for each in sorted_of(ledger)] == [designed(each) for each in sorted_of(whole)]


def sorted_of(ledger: Ledger) -> list[ReleaseRecord]:
    return sorted(ledger.decoded(), key=lambda each: each.release_id)


def designed(record: ReleaseRecord) -> tuple[object, ...]:
    query = None if record.query is None else msgspec.structs.replace(record.query, sum=0)
    return record.release_id, record.status, record.counts, query, record.epsilon


def test_a_settled_day_is_not_settled_again() -> None:
    ledger, noise = Ledger(), Counting()
    ledger.run(noise)
    drawn = noise.draws
    ledger.run(noise)
    assert noise.draws == drawn


def spoil(day: dict[str, bytes], lost: str) -> None:
    """Delete the first query, take its number from the last one, or let that be of another cell or release."""
    queries = [name for name, record in day.items() if b'"number":' in record]
    if lost == "query":
        del day[queries[0]]
        return
    record = json.loads(day[queries[-1]])
    if lost == "number":
        del record["query"]
        record["status"] = "deferred"
    elif lost == "cell":
        record["cell"] = next(other for other in CELLS if other != record["cell"])
    else:
        record["release_id"] += "/1"
    day[queries[-1]] = json.dumps(record).encode()


@pytest.mark.parametrize("lost", ["state", "query", "number", "cell", "name"])
def test_after_a_loss_no_query_is_made_of_the_day(lost: str) -> None:
    ledger, noise = Ledger(), Counting()
    ledger.run(noise, DATES[:1])
    number = len(ledger.records[DATES[0]])
    ledger.left = 38
    with pytest.raises(Crash):
        ledger.run(noise)
    day = ledger.records[DATES[1]]
    if lost == "state":
        ledger.state = None
    else:
        spoil(day, lost)
    before, drawn, ledger.left = dict(day), noise.draws, number
    tracker = ledger.run(noise, DATES[1:])
    assert tracker.is_different
    assert tracker.closed is Status.DEFERRED
    assert noise.draws == drawn
    added = [_RECORD.decode(record) for name, record in ledger.records[DATES[1]].items() if name not in before]
    assert {each.status for each in added} <= {"deferred", "suppressed"}


def test_a_tracker_that_does_not_compare_stored_queries_goes_on_after_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant draws, though it does not know what each bus has paid."""
    begin = PolicyTracker.begin_day

    def of_queries(self: PolicyTracker, date: str, records: Iterable[tuple[str, bytes]]) -> None:
        begin(self, date, [(name, record) for name, record in records if b'"query"' in record])

    monkeypatch.setattr(PolicyTracker, "begin_day", of_queries)
    monkeypatch.setattr(StoredDraw, "is_of", lambda *_: True)
    with pytest.raises(AssertionError):
        test_after_a_loss_no_query_is_made_of_the_day("state")


def test_what_a_bus_pays_is_at_most_the_limit_and_is_reported() -> None:
    tracker = PolicyTracker(POLICY, None)
    tracker.begin_day(DATES[0], [])
    assert tracker.spent() is None
    for slot, hats in slots(DATES[0]):
        tracker.close_slot(slot, hats, Counting())
    live = tracker.spent()
    tracker.settle(Counting())
    settled = tracker.spent()
    assert live is not None
    assert settled is not None
    assert live[0] <= 0.3 * 5 * NANO
    assert live[0] < settled[0] <= 5 * NANO
    assert settled[1] <= settled[0]


def test_an_incomplete_day_has_no_query() -> None:
    tracker, noise = PolicyTracker(POLICY, None), Counting()
    tracker.begin_day(DATES[0], [])
    tracker.close_day(Status.INCOMPLETE)
    released = [each for slot, hats in slots(DATES[0]) for each in tracker.close_slot(slot, hats, noise)]
    assert {each.status for each in released} == {Status.INCOMPLETE}
    assert tracker.settle(noise) == []
    assert noise.draws == 0


def paid(ledger: Ledger) -> dict[str, int]:
    """Return the most that a bus has paid on each date, 1e-9, for every number that has left.

    Who pays what in a query follows from the counts: the schedule is replayed on them, and every number that has left
    for a query, the same one twice not counted, costs its members again.
    """
    left: dict[tuple[str, int], set[int]] = {}
    for _, record in ledger.sent:
        release = _RECORD.decode(record)
        if release.query is not None:
            left.setdefault((release.date, release.query.number), set()).add(release.query.sum)
    tracker, most = Tracker(POLICY.keys_of(TrackerKeys), Prior.of(65.0)), {}
    for date in DATES:
        tracker.begin_day()
        queries: list[ResidualQuery] = []
        for slot, hats in slots(date):
            enough = [each for each in hats if len(each.counts) >= POLICY.min_users]
            queries += tracker.close_slot(slot.start_ms, slot.start_ms // HOUR_MS % 24, enough)
        queries += tracker.settle()
        costs = np.zeros(100, np.int64)
        for number, query in enumerate(queries, start=1):
            costs[query.members.buses] += query.charges * len(left.get((date, number), ()))
        most[date] = int(costs.max())
    return most


def is_lawful(ledger: Ledger) -> bool:
    """Whether each release has one value, and no bus has lost more than the limit."""
    values: dict[str, set[bytes]] = {}
    for name, record in ledger.sent:
        values.setdefault(name, set()).add(record)
    return all(len(each) == 1 for each in values.values()) and all(most <= 5 * NANO for most in paid(ledger).values())


def crashed(commits: int, *, forgets: bool = False) -> Ledger:
    """A run that ends after so many commits, and one that goes on. forgets: Redis lost the state of the first day."""
    ledger = Ledger(commits)
    with pytest.raises(Crash):
        ledger.run(Counting())
    ledger.left = 10**9
    if forgets:
        ledger.state = None
    ledger.run(Counting())
    return ledger


def test_no_bus_loses_more_than_the_limit_and_each_query_has_one_value() -> None:
    whole = Ledger()
    whole.run(Counting())
    first = len(whole.records[DATES[0]])
    for commits in (5, first - 2, first, first + 20):
        assert is_lawful(crashed(commits))
    assert is_lawful(crashed(first + 20, forgets=True))


def test_a_tracker_that_forgets_what_is_stored_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: what is drawn again is sent, as if the ledger had let it."""
    begin = PolicyTracker.begin_day
    monkeypatch.setattr(PolicyTracker, "begin_day", lambda self, date, _: begin(self, date, []))
    ledger = Ledger(20)
    with pytest.raises(Crash):
        ledger.run(Counting())
    ledger.left, ledger.records = 10**9, {}
    noise = Counting()
    noise.draws = 10**6
    ledger.run(noise)
    assert not is_lawful(ledger)


def test_a_settlement_that_is_made_twice_breaks_the_law() -> None:
    """The mutant: the state is stored before the settlement, and its records are not found."""
    ledger = Ledger()
    ledger.run(Counting())
    tracker, noise = PolicyTracker(POLICY, None), Counting()
    noise.draws = 10**6
    tracker.begin_day(DATES[0], [])
    for slot, hats in slots(DATES[0]):
        tracker.close_slot(slot, hats, Counting())
    twice = Ledger()
    twice.commit(tracker.settle(noise))
    ledger.sent += twice.sent
    assert not is_lawful(ledger)
