"""What a worker counts of its fold and its releases."""

from collections.abc import Iterator

import pytest

from hatcast.agents.monitoring.declarations import READINGS
from hatcast.agents.monitoring.meters import Meters
from hatcast.agents.release import hats, path
from hatcast.agents.release.hats import ClosingDelays
from hatcast.agents.release.path import count_published
from hatcast.agents.worker import partition
from hatcast.agents.worker.partition import count_outcomes
from hatcast.stream.ledger.proposals import Committed
from tests.exposed import figures

STATUSES = (b"released", b"budget_exhausted", b"released")


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> Meters:
    """A page of the test's own."""
    made = Meters()
    for module in (hats, path, partition):
        monkeypatch.setattr(module, "METERS", made)
    return made


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What the clock shows."""
    now = [1000.0]
    monkeypatch.setattr(hats, "monotonic_s", lambda: now[0])
    yield now


def shown(meters: Meters, name: str) -> dict[tuple[str, ...], float]:
    return {labels: figure for labels, figure in figures(meters.render()[0].decode(), name).items() if figure}


def test_what_a_checkpoint_has_stored_is_counted_once_and_what_was_there_before_is_not(meters: Meters) -> None:
    before = {"accepted": 100, "late": 7}
    before = dict(count_outcomes(READINGS, before, {"accepted": 130, "late": 7, "tick": 0, "zero": 2}))
    count_outcomes(READINGS, before, {"accepted": 131, "late": 7, "tick": 0, "zero": 2})
    assert shown(meters, "hatcast_readings_total") == {("accepted",): 31, ("zero",): 2}


def test_a_state_that_went_back_takes_nothing_off_a_counter(meters: Meters) -> None:
    count_outcomes(READINGS, {"accepted": 100}, {"accepted": 130})
    count_outcomes(READINGS, {"accepted": 90}, {"accepted": 110})  # loaded again
    assert shown(meters, "hatcast_readings_total") == {("accepted",): 50}


def test_releases_are_counted_by_what_their_bytes_say(meters: Meters) -> None:
    head = b'{"policy_id":"p","status":"%s","cell":"a","date":"2022-01-02","released_at":"2022-01-02T10:00:00Z"}'
    records = [Committed(head % each, published=False, new=True) for each in STATUSES]
    count_published("hat", records)
    count_published("query", records[:1])
    assert shown(meters, "hatcast_releases_total") == {
        ("hat", "released"): 2,
        ("hat", "budget_exhausted"): 1,
        ("query", "released"): 1,
    }


def test_the_delay_of_a_slot_begins_when_it_was_first_seen_final(meters: Meters, seconds: list[float]) -> None:
    delays = ClosingDelays()
    delays.add(["d/09:00"])
    seconds[0] += 4
    delays.add(["d/09:00", "d/10:00"])
    assert delays.oldest_s() == 4
    delays.published(["d/09:00", "d/09:00", "d/10:00", "d/11:00"])  # the last was seen by nobody: as if now
    assert shown(meters, "hatcast_closing_delay_seconds_sum") == {(): 8}
    assert shown(meters, "hatcast_closing_delay_seconds_count") == {(): 4}


def test_a_slot_that_is_published_waits_no_more_and_one_seen_meanwhile_stays(seconds: list[float]) -> None:
    delays = ClosingDelays()
    delays.add(["d/09:00"])
    seconds[0] += 5
    read_s = seconds[0]
    delays.add(["d/10:00"])  # by the release loop, while the other one reads
    seconds[0] += 1
    delays.replace([], read_s)
    assert delays.oldest_s() == 1
    delays.replace([], seconds[0])
    assert delays.oldest_s() == 0


def test_a_slot_that_nobody_releases_gets_older_and_older(seconds: list[float]) -> None:
    delays = ClosingDelays()
    for _ in range(10):
        delays.replace(["d/09:00"], seconds[0])
        seconds[0] += 60
    assert delays.oldest_s() == 600
