"""Compare designs over whole days of recordings, at several daily limits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hatcast.lab.days import TRACKER_CAP, RecordedDay, open_days, with_users
from hatcast.lab.evaluate.contenders import BadContender, Contender, parse_contender
from hatcast.lab.evaluate.days.replay import Replay, TrackerDesign, epsilon_of_hat
from hatcast.lab.evaluate.days.scores import Scores, Truth, constant_scores, scores_of
from hatcast.lab.processes import in_processes
from hatcast.stream.errors import RecordingError, SettingError
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.readings.formats import Format

_MILLI: Final = 1000
DEFAULT: Final = (TRACKER, "array_averaging")
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Job:
    """Designs and limits of a comparison.

    limits      epsilon that a bus can lose on one day
    designs     names of `--estimators`; a `Contender` is an estimator of the papers
    cap         K of the papers' estimators
    min_users   HATs with fewer users are neither released nor scored
    """

    paths: Sequence[Path]
    feed: Format
    policy: Policy
    limits: Sequence[float]
    designs: Sequence[str | Contender]
    tracker: TrackerDesign
    cap: int
    min_users: int
    runs: int


@dataclass(frozen=True, slots=True)
class Result:
    """Scores of one design at one daily limit.

    live, end   of the estimates at the close of a HAT's slot, and at the end of its day
    plain       of an estimator's own releases; None for a tracker, which has none
    released    share of the scored HATs of which something was released
    """

    live: Scores
    end: Scores
    plain: Scores | None = None
    released: float = 1.0


_NOTHING: Final = Result({}, {})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results by design and daily limit, and the scores of constants.

    dates   local dates with a scored HAT
    hats    number of scored HATs
    unit    of errors
    """

    dates: list[str]
    hats: int
    results: dict[str, dict[float, Result]]
    constants: dict[str, Scores]
    unit: str = "km/h"


def parse_designs(text: str) -> list[str | Contender]:
    """Parse `--estimators`: `tracker` and estimators of the papers with their settings. Raises BadContender."""
    found: list[str | Contender] = []
    for name in dict.fromkeys(part.strip() for part in text.split(",")):
        if name == TRACKER:
            found.append(name)
            continue
        contender = parse_contender(name)
        if Relation.REPLACE not in contender.estimator.keys.relations or contender.printed:
            raise BadContender(f"--estimators: {name!r} is not an estimator for relation replace; leave it out")
        found.append(contender)
    return found


def compare_days(job: Job, noise: Noise, read: Progress, replayed: Progress) -> Comparison:
    """Fold the recordings and replay them for each design and limit.

    Calls `read` with the number of records folded since the last call, and `replayed` with 1 for each design and limit.
    Raises RecordingError, SettingError.
    """
    if job.policy.relation is not Relation.REPLACE:
        raise SettingError(
            "policy.privacy.relation",
            f"is {job.policy.relation.value}, but whole days are compared under replace",
            "name another --config",
        )
    days, capped = _folded(job, read)
    replay = Replay(days, job.policy.upper_bound, Grid(job.policy.grid), job.runs, noise)
    tasks = [
        _Task(replay, capped if isinstance(each, Contender) else [], _name_of(each), limit, job.tracker, job.cap)
        for each in job.designs
        for limit in job.limits
    ]
    results: dict[str, dict[float, Result]] = {
        _name_of(each): dict.fromkeys(job.limits, _NOTHING) for each in job.designs
    }
    for position, result in in_processes(_result_of, tasks):
        results[tasks[position].name][tasks[position].limit] = result
        replayed(1)
    truth = Truth.of(days)
    constants = constant_scores(truth, job.policy.upper_bound / _MILLI)
    unit = job.policy.released_value.unit
    return Comparison([day.date for day in days], len(truth.means), results, constants, unit)


def _name_of(each: str | Contender) -> str:
    return each.name if isinstance(each, Contender) else each


@dataclass(frozen=True, slots=True)
class _Task:
    """One row at one limit. It is sent to another process, to which an estimator goes by its name."""

    replay: Replay
    capped: list[RecordedDay]
    name: str
    limit: float
    tracker: TrackerDesign
    cap: int


def _result_of(task: _Task) -> Result:
    truth = Truth.of(task.replay.days)
    if task.name == TRACKER:
        live, end = task.replay.tracker(task.tracker.keys(task.limit, task.replay.upper_bound / _MILLI))
        return Result(scores_of(live, truth), scores_of(end, truth))
    epsilon = epsilon_of_hat(task.limit, task.cap)
    plain, live, end = task.replay.smoothed(parse_contender(task.name), task.capped, epsilon)
    return Result(scores_of(live, truth), scores_of(end, truth), scores_of(plain, truth), plain.released)


def _folded(job: Job, read: Progress) -> tuple[list[RecordedDay], list[RecordedDay]]:
    """Return the days as a tracker folds them, and with at most K HATs of each bus."""
    with open_days(job.paths, job.feed) as recordings:
        everything = recordings.days(replace(job.policy, max_hats_per_day=TRACKER_CAP, continual=None), read)
        days = with_users(everything, job.min_users)
        if not days:
            raise RecordingError(
                ", ".join(path.name for path in job.paths),
                f"has no HAT with {job.min_users} users",
                "name more recordings, or a smaller --min-users",
            )
        if all(isinstance(each, str) for each in job.designs):
            return days, []
        # A HAT counts by all of its users, so min_users is not applied to those whom K leaves.
        return days, recordings.days(replace(job.policy, max_hats_per_day=job.cap, continual=None), read)
