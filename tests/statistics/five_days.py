"""Five days of Capital Metro through a tracker, with simulated noise: one replay for each daily limit and process.

The noise is that of `hatcast evaluate`'s simulations, from a seed: numbers are the same in every run, so a test that
passes on a tree never fails on it. tests/statistics/test_kmeans.py and tests/unit/test_evaluate.py compare the draws
with the system's. A change of the queries draws anew; what a test allows for that, it says.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple, cast

import pytest

from hatcast.agents.timetable.speeds import scheduled_speeds
from hatcast.lab.days import TRACKER_CAP, RecordedDay, open_days, policy_of_recordings, with_users
from hatcast.lab.evaluate.clusters import SimulatedNoise
from hatcast.lab.evaluate.days_replay import DaysReplay, PublishedRuns, TrackerDesign
from hatcast.lab.evaluate.simulation import Draws
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys
from hatcast.stream.readings.formats import FORMATS
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.smoother import DayParts, day_parts
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.track import HatEstimate
from hatcast.stream.tracker.tracker import Tracker
from tests.services.data import DATA, recording

RUNS: Final = 4
FILES: Final = [
    DATA / "capmetro" / f"{date}.csv.gz"
    for date in ("2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27", "2017-03-21")
]
POLICY: Final = policy_of_recordings(None, "capmetro")


class Replayed(NamedTuple):
    """What a tracker publishes in each of `RUNS` runs.

    live, end   of each HAT, at the close of its slot and at the end of its day
    """

    live: PublishedRuns
    end: PublishedRuns


def seeded(seed: int) -> Noise:
    """Simulated Laplace noise. Trackers and estimators of plain means ask for no other: AttributeError if they do."""
    return cast("Noise", SimulatedNoise(Draws(seed)))


@cache
def days() -> list[RecordedDay]:
    """The days, with all HATs of three users or more."""
    with open_days(FILES, FORMATS["capmetro"]) as recordings:
        return with_users(recordings.days(replace(POLICY, max_hats_per_day=TRACKER_CAP), lambda _: None), 3)


def replay_with(noise: Noise) -> DaysReplay:
    return DaysReplay(days(), POLICY.upper_bound, Grid(POLICY.grid), RUNS, noise, Prior.of_policy(POLICY))


@cache
def speeds() -> Timetable:
    """The timetable of that time."""
    return scheduled_speeds(recording("capmetro/gtfs_2016-08-21_2017-01-21.zip"), [POLICY.h3_resolution])


def keys_of(limit: int) -> TrackerKeys:
    return TrackerDesign(0.3, Objective.CELLS).keys(limit, POLICY.upper_bound / 1000)


@cache
def replayed(limit: int) -> Replayed:
    """Most of the time is for choosing the queries, which all runs share."""
    return Replayed(*replay_with(seeded(limit)).tracker(keys_of(limit)))


@cache
def scheduled(limit: int) -> Replayed:
    """As `replayed`, with the timetable."""
    return Replayed(*replace(replay_with(seeded(limit)), timetable=speeds()).tracker(keys_of(limit)))


@cache
def journeys() -> tuple[list[RecordedDay], Replayed]:
    """The same days with standing buses, and as `scheduled` what a tracker of a limit of 5 publishes."""
    policy = replace(POLICY, drop_zero=False)
    with open_days(FILES, FORMATS["capmetro"]) as recordings:
        found = with_users(recordings.days(replace(policy, max_hats_per_day=TRACKER_CAP), lambda _: None), 3)
    replay = replace(replay_with(seeded(5)), days=found, prior=Prior.of_policy(policy), timetable=speeds())
    return found, Replayed(*replay.tracker(keys_of(5)))


def parts_of(limit: int, runs: int) -> list[list[DayParts]]:
    """Return the HATs of the day so far, without their records, after each slot and settlement of the first runs."""
    parts: list[list[DayParts]] = []

    class Observed(Tracker):
        def estimates(self, numbers: Sequence[int]) -> list[list[HatEstimate]]:
            hats, covariance = self.schedule.day.hats, self.schedule.covariance
            parts.append([day_parts((), hats, track, covariance) for track in self.tracks[:runs]])
            return super().estimates(numbers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hatcast.lab.evaluate.days_replay.Tracker", Observed)
        replay_with(seeded(limit)).tracker(keys_of(limit))
    return parts
