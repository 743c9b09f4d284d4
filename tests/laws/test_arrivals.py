"""A law of recordings under `add_remove`: a vehicle more changes nothing of the others, whatever their arrivals say."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hatcast.agents.batch.fold
from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.retention import RetainChunks
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import unpack
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import Recording
from hatcast.stream.readings.vehicles import PARTITIONERS
from hatcast.stream.replay.heartbeats import Replay, Router, TelemetryMessage
from tests.folding import HOUR, MINUTE, NOON, NOW, PSEUDONYMS
from tests.replayed import fold, policy_of

REPLACE: Final = policy_of(lateness="5m", privacy={"epsilon": 1.0, "max_hats_per_day": 2, "daily_limit": 105.0})
HIDDEN: Final = replace(REPLACE, relation=Relation.ADD_REMOVE)
OURS: Final = "ours"

minutes = st.integers(-90, 90).map(lambda minute: NOON + minute * MINUTE)


@dataclass(frozen=True)
class Sent:
    """A reading, and when it arrived; None: its record does not say."""

    vehicle: str
    time: int
    arrival: int | None


logs = st.lists(st.builds(Sent, st.sampled_from([OURS, "a", "b", "c"]), minutes, st.none() | minutes), max_size=12)
# One reading of ours, in order, before a dozen others that do not say when they arrived.
OVERTAKEN: Final = [Sent("a", NOON, NOON), Sent(OURS, NOON, NOON + 2 * HOUR)] + [
    Sent(f"bus-{i}", NOON, None) for i in range(12)
]


def recording_of(log: Sequence[Sent]) -> Recording:
    records = [Recorded(b"raw", Reading(each.vehicle, each.time, 21.2, 72.8, 30.0), each.arrival) for each in log]
    return Recording(lambda: records, "file")


Found = dict[tuple[str, str, bytes], tuple[int, int]]
"""(slot, cell, pseudonym) -> count, seen."""


def contributed(policy: Policy, log: Sequence[Sent]) -> Found:
    """What each vehicle but ours has contributed, by `batch`."""
    kept = RetainChunks()
    fold_recording(recording_of(log), FoldJob(policy, FoldUsers(PSEUDONYMS), NOW, kept, lambda _: None))
    rows = [(hat, row) for hat in kept.hats() for chunk in kept.chunks(hat).readings for row in unpack(chunk)]
    return {
        (hat.slot, hat.cell, row.pseudonym): (row.count, row.seen)
        for hat, row in rows
        if row.pseudonym != PSEUDONYMS.of(OURS, hat.slot.partition("/")[0])
    }


def replayed(policy: Policy, log: Sequence[Sent]) -> dict[str, list[int]]:
    """HATs of a replay to one partition: users, count, sum, max."""
    plan = Replay(policy, Calendar(policy), Router(1, PARTITIONERS["murmur2"]), NOW)
    messages: list[TelemetryMessage] = list(plan.messages(recording_of(log)))
    return fold(policy, 1, messages)[1]


def without_ours(log: Sequence[Sent]) -> list[Sent]:
    return [each for each in log if each.vehicle != OURS]


def hides(policy: Policy, log: Sequence[Sent]) -> bool:
    """The law."""
    return contributed(policy, log) == contributed(policy, without_ours(log))


@given(logs)
def test_no_vehicle_of_a_recording_changes_what_another_one_contributes(log: list[Sent]) -> None:
    assert hides(HIDDEN, log)


def test_the_vehicle_that_arrives_before_a_dozen_without_an_arrival_makes_none_of_them_late() -> None:
    assert hides(HIDDEN, OVERTAKEN)
    assert len(contributed(HIDDEN, OVERTAKEN)) == 1
    known = [replace(each, arrival=each.arrival or each.time) for each in OVERTAKEN]
    assert len(contributed(HIDDEN, known)) == 13


@given(logs)
def test_a_replay_leaves_out_what_batch_calls_undecodable(log: list[Sent]) -> None:
    known = [each for each in log if each.arrival is not None]
    assert replayed(HIDDEN, log) == replayed(HIDDEN, known) == replayed(REPLACE, known)


def test_under_replace_a_record_takes_the_arrival_before_it() -> None:
    assert len(contributed(REPLACE, without_ours(OVERTAKEN))) == 13
    assert len(contributed(REPLACE, OVERTAKEN)) == 1


def test_arrivals_taken_from_others_break_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_others(records: Iterable[tuple[int, Recorded]]) -> Iterator[tuple[int, Recorded]]:
        return iter(records)

    assert hides(HIDDEN, OVERTAKEN)
    monkeypatch.setattr(hatcast.agents.batch.fold, "invalidate_missing_arrivals", from_others)
    assert not hides(HIDDEN, OVERTAKEN)
