"""Skill of live estimates: how much better they are than what everybody knows.    [docs/choosing.md]"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hatcast.lab.days import RecordedDay
from hatcast.lab.evaluate.days_replay import PublishedRuns, Truth, filled, hats_of
from hatcast.lab.evaluate.simulation import Floats
from hatcast.stream.tracker.timetable import Timetable, deviation

PUBLIC: Final = {"half_bound": "U/2", "last": "last value", "timetable": "timetable"}
"""Baselines, and their names in a table"""
_SLOPE: Final = 0.8  # of speeds on scheduled ones: a reader who trusts the timetable


@dataclass(frozen=True, slots=True)
class Skill:
    """1 - MSE / MSE(best public baseline) of live estimates: 0 is no better than what everybody knows.

    A city has one sequence of noise, so each run is compared with the baseline that is best in it on the date.
    """

    mean: float  # over dates and runs
    worst: float  # of the worst date: the mean over runs
    standard_error: float | None  # of `mean`, over runs; None for one
    baselines: dict[str, float]  # mean absolute error of each baseline, over all HATs and runs


def skill_of(
    live: PublishedRuns,
    end: PublishedRuns,
    days: Sequence[RecordedDay],
    upper_bound: float,
    timetable: Timetable | None,
) -> Skill:
    """Return the skill of live estimates; end: those of the days' ends, which a later date's baselines may use."""
    truth = Truth.of(days)
    baselines = {
        "half_bound": np.full(live.means.shape, upper_bound / 2),
        "last": _last_published(live.means, end.means, days, truth, upper_bound),
    }
    if timetable is not None:
        baselines["timetable"] = _scheduled(live.means, end.means, days, upper_bound, timetable)

    def squared(values: Floats, part: slice) -> Floats:
        return np.asarray(np.square(values[:, part] - truth.means[part]).mean(axis=1))

    skills = np.array(
        [
            1 - squared(live.means, date) / np.min([squared(values, date) for values in baselines.values()], axis=0)
            for date, _ in _parts(days)
        ]
    )
    of_run = skills.mean(axis=0)
    error = float(of_run.std(ddof=1)) / len(of_run) ** 0.5 if len(of_run) > 1 else None
    errors = {name: float(np.abs(values - truth.means).mean()) for name, values in baselines.items()}
    return Skill(float(skills.mean()), float(skills.mean(axis=1).min()), error, errors)


def _parts(days: Sequence[RecordedDay]) -> Iterator[tuple[slice, list[slice]]]:
    """Yield the columns of each day, and those of each of its slots."""
    at = 0
    for day in days:
        begin, slots = at, []
        for slot in day.slots:
            slots.append(slice(at, at + len(slot.hats)))
            at += len(slot.hats)
        yield slice(begin, at), slots


def _last_published(live: Floats, end: Floats, days: Sequence[RecordedDay], truth: Truth, upper_bound: float) -> Floats:
    """Return for each HAT what was last published of its cell, at first the mean of other cells' values, or U/2."""
    last = np.full((len(live), len(set(truth.cells))), np.nan)
    found = np.empty_like(live)
    for day, slots in _parts(days):
        for slot in slots:
            cells = truth.cells[slot]
            found[:, slot], last[:, cells] = last[:, cells], live[:, slot]
        last[:, truth.cells[day]] = end[:, day]
    return filled(found, upper_bound / 2)


def _scheduled(
    live: Floats, end: Floats, days: Sequence[RecordedDay], upper_bound: float, timetable: Timetable
) -> Floats:
    """Return for each HAT the level of the city that was published before, and its cell's part of the timetable."""
    parts = (timetable.speeds.get(hat.cell) for hat in hats_of(days))
    cells = np.array([0.0 if speed is None else _SLOPE * deviation(speed) for speed in parts])
    found, before, number = np.empty_like(live), np.zeros(len(live)), 0
    level = np.full(len(live), upper_bound / 2)
    for day, slots in _parts(days):
        settled, counted = before, number
        for slot in slots:
            found[:, slot] = level[:, None] + cells[slot]
            before, number = before + (live[:, slot] - cells[slot]).sum(axis=1), number + slot.stop - slot.start
            level = before / number
        before, number = settled + (end[:, day] - cells[day]).sum(axis=1), counted + day.stop - day.start
        level = before / number
    return found
