"""The tracker: how near it comes to the speed of the road, and how long it takes. No services."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import numpy as np

from bench.figures import Figure, say, show
from bench.road import UPPER_BOUND, City, Floats
from hatcast.lab.days import TRACKER_CAP, open_days, policy_of_recordings, with_users
from hatcast.lab.evaluate.days_replay import TrackerDesign
from hatcast.lab.plan.counts import CountedDays, counts_of_days
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import FORMATS
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.tracker import HatUsers, Tracker

_DATA: Final = Path(__file__).parents[1] / "tests" / "data" / "capmetro"
_DATES: Final = ("2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27")
_MIN_USERS: Final = 3
_HOUR_MS: Final = 3_600_000
_WINDOW: Final = 3  # days up to the named one, over which an error is the mean
_AFTER: Final = (7, 30, 60)
_LIMITS: Final = {
    "live": {5: {7: 1.9, 30: 1.35}},
    "end": {5: {7: 1.7, 30: 1.3}, 2: {7: 2.1, 30: 1.7}},
}
"""km/h, by total and day: of the road's speed at the close of each hour, and at the end of the day"""
_CELLS: Final = 10_000
_BUSES_OF_CELL: Final = 10
_LARGE_HAT: Final = 1_000_000
_HOURS_BEFORE: Final = 8  # of the day, when the large hour closes
_MOST_SECONDS: Final = {"hour_of_10000_cells_s": 30.0, "hat_of_1e6_buses_s": 2.0}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--days", default=60, show_default=True, type=click.IntRange(7, 1000))
@click.option("--totals", default="1,2,5", show_default=True, help="Epsilons of a bus and day.")
@click.option("--runs", default=2, show_default=True, type=click.IntRange(1, 100), help="Sequences of noise.")
@click.option("--seed", default=0, show_default=True, help="Of the city's speeds; noise has no seed.")
@click.option("--share", default=0.3, show_default=True, type=click.FloatRange(0, 1))
@click.option("--objective", default="cells", show_default=True, type=click.Choice([each.value for each in Objective]))
def command(  # noqa: PLR0913, PLR0917 - click's way
    as_json: bool,  # noqa: FBT001
    days: int,
    totals: str,
    runs: int,
    seed: int,
    share: float,
    objective: str,
) -> int:
    """Measure errors against the road's speed in a simulated city, and seconds of a large hour and a large HAT."""
    counts = _recorded_counts()
    design = TrackerDesign(share, Objective(objective))
    figures = list(_speed())
    for total in (float(text) for text in totals.split(",")):
        figures += _errors(counts, days, seed, total, design, runs)
    return show(f"tracker: {days} days, {runs} runs, share {share:g}, {objective}", figures, as_json=as_json)


def _recorded_counts() -> CountedDays:
    policy = replace(policy_of_recordings(None, "capmetro"), max_hats_per_day=TRACKER_CAP)
    with open_days([_DATA / f"{date}.csv.gz" for date in _DATES], FORMATS["capmetro"]) as recordings:
        return counts_of_days(with_users(recordings.days(policy, lambda _: None), _MIN_USERS))


def _errors(
    counts: CountedDays, days: int, seed: int, total: float, design: TrackerDesign, runs: int
) -> Iterator[Figure]:
    """Yield the mean absolute errors of `road`, live and at day end, on the days up to each of `_AFTER`."""
    begun = time.process_time()
    tracker = Tracker(design.keys(total, UPPER_BOUND), Prior.of(UPPER_BOUND), runs)
    live, end = [], []
    for slots in City(counts, days, seed).days():
        tracker.begin_day()
        of_slots = []
        for slot in slots:
            first = len(tracker.schedule.day.hats)
            _release(tracker, tracker.close_slot(slot.number * _HOUR_MS, slot.hour, slot.hats))
            of_slots.append(_road(tracker, range(first, first + len(slot.hats))) - slot.road)
        _release(tracker, tracker.settle())
        truth = np.concatenate([slot.road for slot in slots])
        live.append(float(np.abs(np.concatenate(of_slots, axis=1)).mean()))
        end.append(float(np.abs(_road(tracker, range(len(truth))) - truth).mean()))
    say(f"total {total:g}: {days} days in {time.process_time() - begun:.0f} CPU s")
    for day in (day for day in _AFTER if day <= days):
        name = f"total_{total:g}_day_{day}"
        for when, errors in (("live", live), ("end", end)):
            limit = _LIMITS[when].get(int(total), {}).get(day)
            error = float(np.mean(errors[day - _WINDOW : day]))
            yield Figure(f"{name}_{when}", error, "km/h")
            if limit is not None:
                yield Figure(f"{name}_{when}_over_{limit:g}", error / limit, "times", most=1.0)


def _release(tracker: Tracker, queries: Iterable[ResidualQuery]) -> None:
    noise = SystemNoise()
    for query in queries:
        for track in tracker.tracks:
            track.learn(query, track.draw(query, tracker.values, noise))


def _road(tracker: Tracker, numbers: range) -> Floats:
    """Return the estimates of the road, float64 [runs, H], within [0, U]."""
    roads = [[each.road.mean for each in track] for track in tracker.estimates(numbers)]
    return np.asarray(np.clip(np.array(roads), 0, UPPER_BOUND), np.float64)


def _speed() -> Iterator[Figure]:
    """Yield CPU seconds of a tracker's two largest steps: design, draw, update, estimates. One core, no Redis."""
    for name, hats in (
        ("hour_of_10000_cells_s", [_hat(cell, _BUSES_OF_CELL) for cell in range(_CELLS)]),
        ("hat_of_1e6_buses_s", [_hat(0, _LARGE_HAT)]),
    ):
        tracker = Tracker(TrackerDesign(0.3, Objective.CELLS).keys(5, UPPER_BOUND), Prior.of(UPPER_BOUND))
        tracker.begin_day()
        for hour in range(_HOURS_BEFORE):  # the HATs of the hours before, and of each hour only the first query
            next(tracker.close_slot(hour * _HOUR_MS, hour, hats), None)
        begun = time.process_time()
        first = len(tracker.schedule.day.hats)
        _release(tracker, tracker.close_slot(_HOURS_BEFORE * _HOUR_MS, _HOURS_BEFORE, hats))
        tracker.estimates(range(first, first + len(hats)))
        taken = time.process_time() - begun
        say(f"{name}: {taken:.2f}")
        yield Figure(name, taken, "CPU s", most=_MOST_SECONDS[name])


def _hat(cell: int, buses: int) -> HatUsers:
    """Return a HAT of a cell's own buses, some of which are also in the next cell."""
    users = np.arange(cell * buses // 2, cell * buses // 2 + buses, dtype=np.uint64)
    readings = 1 + np.arange(buses) % 5
    return HatUsers(f"{cell:05}", users, readings, readings * 25_000)
