"""Estimates from plain releases on five days of Capital Metro: errors in km/h, and coverage.

An oracle for the claim of decision 32, that smoothing halves the errors. The noise is seeded (five_days.py), so there
is no false alarm. A mean of runs may be above its limit by four standard errors, so that it also passes with other
draws. An error that grows by 10 % is seen.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import pytest

from hatcast.lab.days import RecordedDay, open_days
from hatcast.lab.evaluate.contenders import parse_contender
from hatcast.lab.evaluate.days_replay import PublishedRuns, Scores, Truth, constant_scores, epsilon_of_hat, scores_of
from hatcast.stream.readings.formats import FORMATS
from tests.statistics.five_days import FILES, POLICY, days, replay_with, seeded
from tests.statistics.test_tracker_accuracy import STANDARD_ERRORS

CAP: Final = 10
LIMIT: Final = 10  # so epsilon is 1 for each HAT
LEAST_ERROR: Final = 0.05  # of a mean over runs, as so few of them estimate it badly
COVERAGE: Final = (0.93, 0.98)


@cache
def capped() -> list[RecordedDay]:
    with open_days(FILES, FORMATS["capmetro"]) as recordings:
        return recordings.days(replace(POLICY, max_hats_per_day=CAP), lambda _: None)


@cache
def published() -> Sequence[PublishedRuns]:
    """What is released, and the estimates after each hour and at the end of the day."""
    contender = parse_contender("array_averaging")
    return replay_with(seeded(1)).smoothed(contender, capped(), epsilon_of_hat(LIMIT, CAP))


def scores(of: Sequence[RecordedDay]) -> list[Scores]:
    return [scores_of(each, Truth.of(of)) for each in published()]


def counting_readings() -> list[RecordedDay]:
    """The same days, each HAT with the users that K admits, if there are any: what a release is the mean of."""
    admitted = {(slot.key, hat.cell): hat for day in capped() for slot in day.slots for hat in slot.hats}
    return [
        replace(
            day,
            slots=tuple(
                replace(slot, hats=tuple(admitted.get((slot.key, hat.cell), hat) for hat in slot.hats))
                for slot in day.slots
            ),
        )
        for day in days()
    ]


def error(found: Scores, column: str = "mae") -> float:
    """An error, less what its noise may have added."""
    score = found[column]
    return score.value - STANDARD_ERRORS * max(score.standard_error or 0, LEAST_ERROR)


@pytest.mark.timeout(400)
def test_smoothing_halves_the_errors_of_array_averaging_and_is_better_than_any_constant() -> None:
    plain, live, end = scores(days())
    city = constant_scores(Truth.of(days()), POLICY.upper_bound / 1000)["city"]
    assert plain["mae"].value > 10
    for each in (live, end):
        assert error(each) < 5.4
        assert error(each) < city["mae"].value - 0.3
        assert error(each, "by_users") < 4.1


@pytest.mark.timeout(400)
def test_intervals_cover_95_percent_of_the_means_that_are_released_also_on_the_first_day() -> None:
    counted = counting_readings()
    first = slice(0, sum(len(slot.hats) for slot in days()[0].slots))
    truth = Truth.of(counted)
    for each in published()[1:]:
        for part in (slice(None), first):
            scored = Truth(truth.means[part], truth.users[part], truth.cells[part])
            found = scores_of(PublishedRuns(*(whole[:, part] for whole in (each.means, each.low, each.high))), scored)
            assert COVERAGE[0] <= found["coverage"].value <= COVERAGE[1]


@pytest.mark.timeout(400)
def test_intervals_cover_the_means_of_all_readings_at_least_as_often() -> None:
    for found in scores(days())[1:]:
        assert found["coverage"].value >= COVERAGE[0]
