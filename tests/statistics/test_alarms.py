"""Alarms under the tracker's own model: a few are false, and some incidents are found.

Six cities of three days at a total of 5 with a watch list of seven hexagons, and three of five days whose HATs are
all released with epsilon 1; from a seed. In each about one false alarm is expected. With ten times as many a test
fails in 99 of 100 cases, with four times as many in half of them.
"""

from functools import cache

import pytest

from bench.alarms import Found, Plan, simulate, simulate_releases, watch_list
from hatcast.stream.tracker.alarms import Area

AREAS: tuple[Area | None, ...] = (None, "neighbours", "city")


@cache
def of_trackers() -> dict[Area | None, Found]:
    """The queries, which take the time, are the same whatever the incidents."""
    return simulate(5, Plan(runs=6, days=3, learnt=2), is_recorded=False, watch=watch_list(), kinds=AREAS)


def simulated(city: str, area: Area | None) -> Found:
    if city == "tracker":
        return of_trackers()[area]
    return simulate_releases(1, Plan(runs=3, days=5, learnt=2), [area])[area]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("city", ["tracker", "releases"])
def test_about_one_alarm_a_month_is_false(city: str) -> None:
    quiet = simulated(city, None)
    assert quiet.days in (15, 18)
    assert quiet.alarms <= 3


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("city", "area", "least"),
    [
        ("tracker", "neighbours", 0.2),
        ("tracker", "city", 0.25),
        ("releases", "neighbours", 0.35),
        ("releases", "city", 0.9),
    ],
)
def test_incidents_that_numbers_are_about_are_found(city: str, area: Area, least: float) -> None:
    assert simulated(city, area).share >= least
