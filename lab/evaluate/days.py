"""Compare designs over whole days of recordings, at several daily limits: a table, JSON and rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from rich.table import Column, Table

from hatcast.agents.cli.report import Report, rounded
from hatcast.agents.progress import AddBar
from hatcast.agents.tables.terminal import table
from hatcast.lab.days import TRACKER_CAP, RecordedDay, open_days, with_users
from hatcast.lab.evaluate.contenders import BadContender, parse_contender
from hatcast.lab.evaluate.days_replay import (
    MANY_USERS,
    DaysReplay,
    PublishedRuns,
    Scores,
    TrackerDesign,
    Truth,
    constant_scores,
    epsilon_of_hat,
    scores_of,
)
from hatcast.lab.evaluate.skill import PUBLIC, Skill, skill_of
from hatcast.lab.processes import in_processes
from hatcast.stream.errors import RecordingError, SettingError
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import MeansKeys, Policy, Relation
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.readings.formats import Format
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.timetable import Timetable

_MILLI: Final = 1000
DEFAULT: Final = (TRACKER, "array_averaging")
MONTH: Final = 31  # days
Progress = Callable[[int], None]
_CONSTANTS: Final = {"half_bound": "U/2", "city": "the city's mean", "cell": "each cell's mean"}
_COLUMNS: Final = {
    "mae": "error",
    "by_users": "by users",
    "ge10": f">= {MANY_USERS}",
    "coverage": "covered",
    "half_width": "+-",
}


@dataclass(frozen=True, slots=True)
class DaysJob:
    """Designs and limits of a comparison."""

    paths: Sequence[Path]
    feed: Format
    policy: Policy
    limits: Sequence[float]  # epsilon that a bus can lose on one day
    designs: Sequence[str]  # names of `--estimators`, as `parse_designs` returns them
    tracker: TrackerDesign
    cap: int  # K of the papers' estimators
    min_users: int  # HATs with fewer users are neither released nor scored
    runs: int
    timetable: Timetable | None = None  # of the tracker; None: it has none


@dataclass(frozen=True, slots=True)
class Result:
    """Scores of one design at one daily limit."""

    # live, end: of the estimates at the close of a HAT's slot, and at the end of its day
    live: Scores
    end: Scores
    skill: Skill  # of the live estimates
    plain: Scores | None = None  # of an estimator's own releases; None for a tracker, which has none
    released: float = 1.0  # share of the scored HATs of which something was released


_NOTHING: Final = Result({}, {}, Skill(0, 0, None, {}))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results by design and daily limit, and the scores of constants."""

    dates: list[str]  # local dates with a scored HAT
    hats: int  # number of scored HATs
    results: dict[str, dict[float, Result]]
    constants: dict[str, Scores]
    unit: str = "km/h"  # of errors


def parse_designs(text: str) -> list[str]:
    """Parse `--estimators`: `tracker` and estimators of the papers with their settings. Raises BadContender."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name != TRACKER:
            contender = parse_contender(name)
            if Relation.REPLACE not in contender.estimator.keys.relations or contender.printed:
                raise BadContender(f"--estimators: {name!r} is not an estimator for relation replace; leave it out")
    return names


def compare_days(job: DaysJob, noise: Noise, add_bar: AddBar) -> Comparison:
    """Fold the recordings and replay them for each design and limit; show bars of the records, and of the days.

    Raises RecordingError, SettingError.
    """
    if job.policy.relation is not Relation.REPLACE:
        raise SettingError(
            "policy.privacy.relation",
            f"is {job.policy.relation.value}, but whole days are compared under replace",
            "name another --config",
        )
    days, capped = _folded(job, add_bar("reading", None))
    policy = job.policy
    replay = DaysReplay(
        days,
        policy.upper_bound,
        Grid(policy.grid),
        job.runs,
        noise,
        Prior.of_policy(policy),
        job.min_users,
        job.timetable,
    )
    each = list(product(job.designs, job.limits))
    # An estimator goes to another process by its name.
    tasks = [
        partial(_tracked, replay, job.tracker, limit)
        if name == TRACKER
        else partial(_released, replay, capped, name, epsilon_of_hat(limit, job.cap))
        for name, limit in each
    ]
    results = {name: dict.fromkeys(job.limits, _NOTHING) for name in job.designs}
    steps = len(days) * sum(1 if name == TRACKER else job.runs for name, _ in each)  # a tracker's runs share a day
    replayed = add_bar("replaying days of each design and limit", steps)
    for position, result in in_processes(tasks, replayed):
        name, limit = each[position]
        results[name][limit] = result
    truth = Truth.of(days)
    constants = constant_scores(truth, job.policy.upper_bound / _MILLI)
    unit = job.policy.released_value.unit
    return Comparison([day.date for day in days], len(truth.means), results, constants, unit)


def _tracked(replay: DaysReplay, design: TrackerDesign, limit: float) -> Result:
    return _result(replay, *replay.tracker(design.keys(limit, replay.prior.reference_width)))


def _released(replay: DaysReplay, capped: list[RecordedDay], name: str, epsilon: float) -> Result:
    own, live, end = replay.smoothed(parse_contender(name), capped, epsilon)
    plain = scores_of(own, Truth.of(replay.days))
    return replace(_result(replay, live, end), plain=plain, released=own.released)


def _result(replay: DaysReplay, live: PublishedRuns, end: PublishedRuns) -> Result:
    truth = Truth.of(replay.days)
    skill = skill_of(live, end, replay.days, replay.upper_bound / _MILLI, replay.timetable)
    return Result(scores_of(live, truth), scores_of(end, truth), skill)


def _folded(job: DaysJob, read: Progress) -> tuple[list[RecordedDay], list[RecordedDay]]:
    """Return the days as a tracker folds them, and with at most K HATs of each bus."""
    with open_days(job.paths, job.feed) as recordings:
        everything = recordings.days(replace(job.policy, max_hats_per_day=TRACKER_CAP, method=MeansKeys()), read)
        days = with_users(everything, job.min_users)
        if not days:
            raise RecordingError(
                ", ".join(path.name for path in job.paths),
                f"has no HAT with {job.min_users} users",
                "name more recordings, or a smaller --min-users",
            )
        if all(each == TRACKER for each in job.designs):
            return days, []
        # A HAT counts by all of its users, so min_users is not applied to those whom K leaves.
        return days, recordings.days(replace(job.policy, max_hats_per_day=job.cap, method=MeansKeys()), read)


def report_of(comparison: Comparison, title: str, settings: Mapping[str, Any]) -> Report:
    """Return {design: {daily limit: {"live", "end", "released"}}} and {"constant": {name: ..}}, a table and rows.

    A column without a value is null. `live` and `end` are estimates; `released` has what an estimator of the papers
    releases itself, and the `share` of the HATs with a release; it is null for a tracker. With several runs `se` has
    the standard errors of all columns; in a row they are flat. `skill` has that of live estimates, its `worst` date,
    and the errors of the baselines.
    """
    designs = {
        name: {
            f"{limit:g}": {
                "live": _scores(result.live),
                "end": _scores(result.end),
                "released": None
                if result.plain is None
                else _scores(result.plain) | {"share": rounded(result.released)},
                "skill": _skill(result.skill),
            }
            for limit, result in by_limit.items()
        }
        for name, by_limit in comparison.results.items()
    }
    constants = {name: _scores(scores) for name, scores in comparison.constants.items()}
    return Report(
        shown=[_skill_table(comparison), _table(comparison, title)],
        figures=designs | {"constant": constants},
        settings=settings,
        rows=[
            *(
                {"design": name, "daily_limit": float(limit), "when": when, **_flat(scores)}
                for name, by_limit in designs.items()
                for limit, by_time in by_limit.items()
                for when, scores in by_time.items()
                if scores is not None and when != "skill"
            ),
            *({"design": name, "when": "constant", **_flat(scores)} for name, scores in constants.items()),
        ],
    )


def _scores(scores: Scores) -> dict[str, Any]:
    found: dict[str, Any] = {name: rounded(scores[name].value) if name in scores else None for name in _COLUMNS}
    errors = {name: rounded(each.standard_error) for name, each in scores.items() if each.standard_error is not None}
    return found | ({"se": errors} if errors else {})


def _skill(skill: Skill) -> dict[str, Any]:
    errors = {name: rounded(error) for name, error in skill.baselines.items()}
    spread = {} if skill.standard_error is None else {"se": rounded(skill.standard_error)}
    return {"mean": rounded(skill.mean), "worst": rounded(skill.worst), **spread, "baselines": errors}


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    errors = {f"{name}_se": error for name, error in scores.get("se", {}).items()}
    return {name: score for name, score in scores.items() if name != "se"} | errors


def _skill_table(comparison: Comparison) -> Table:
    """Return a table: the skill of each design at each limit, and the errors of the public baselines."""
    results = [result for by_limit in comparison.results.values() for result in by_limit.values()]
    names = [name for name in PUBLIC if name in results[0].skill.baselines]
    return table(
        "skill of live estimates",
        f"{MONTH} days: what a bus can lose in a month, since days add up. skill: 1 - MSE / MSE of the best public"
        " baseline of a date and run, the mean over both; above 0 it is better than what everybody knows. The other"
        f" columns are errors in {comparison.unit}: of U/2, of each hexagon's last published value carried on"
        + (", and of the timetable with the level of the city that was published." if "timetable" in names else "."),
        ("design", "limit", f"{MONTH} days", "skill", "worst day", *(PUBLIC[name] for name in names)),
        (
            (
                name,
                f"{limit:g}",
                f"{MONTH * limit:g}",
                f"{result.skill.mean:.2f}",
                f"{result.skill.worst:.2f}",
                *(f"{result.skill.baselines[each]:.2f}" for each in names),
            )
            for name, by_limit in comparison.results.items()
            for limit, result in by_limit.items()
        ),
    )


def _table(comparison: Comparison, title: str) -> Table:
    """Return a table: a row for each design, daily limit and time; below them the constants."""

    def rows() -> Iterator[tuple[str, ...] | None]:
        for name, by_limit in comparison.results.items():
            for limit, result in by_limit.items():
                yield name, f"{limit:g}", "live", *_cells(result.live)
                yield "", "", "end", *_cells(result.end)
                if result.plain is not None:
                    yield "", "", "released", *_cells(result.plain)
            yield None
        for name, scores in comparison.constants.items():
            yield _CONSTANTS[name], "0", "", *_cells(scores)

    limit, when = Column("limit", justify="right"), Column("when")
    return table(
        title,
        _caption(comparison),
        (Column("design", overflow="fold", min_width=16), limit, when, *_COLUMNS.values()),
        rows(),
    )


def _scores_of(result: Result) -> list[Scores]:
    return [result.live, result.end] + ([] if result.plain is None else [result.plain])


def _cells(scores: Scores) -> list[str]:
    cells = {name: f"{score.value:.2f}" for name, score in scores.items()}
    if "coverage" in scores:
        cells["coverage"] = f"{scores['coverage'].value:.1%}"
    return [cells.get(name, "-") for name in _COLUMNS]


def _caption(comparison: Comparison) -> str:
    """Return the notes below the table; the last sentence is about the best constant."""
    results = [result for by_limit in comparison.results.values() for result in by_limit.values()]
    errors = [scores["mae"] for result in results for scores in _scores_of(result)]
    spreads = [each.standard_error for each in errors if each.standard_error is not None]
    columns = (
        f"limit: epsilon that a bus can lose on one day. error: mean absolute error in {comparison.unit} against the"
        f" mean of all readings, each HAT alike; by users: weighted by them; >= {MANY_USERS}: HATs of as many users."
        " covered: share of 95 % intervals that have that mean; +-: their mean half width. live: at the close of the"
        " HAT's slot; end: of its day; released: what an estimator releases itself, before smoothing."
    )
    notes = [columns]
    if spreads:
        notes.append(f"Standard errors of errors are up to {max(spreads):.2f}.")
    released = min(result.released for result in results)
    if released < 1:
        notes.append(
            f"The papers' estimators release as few as {released:.0%} of these HATs, because a bus's first HATs use up "
            "its K; the others count as the mean of what was released before."
        )
    notes.append(_about_constants(comparison))
    return " ".join(notes)


def _about_constants(comparison: Comparison) -> str:
    """Return one sentence: the error of the best constant for the whole city, and which designs are better."""
    errors = {name: comparison.constants[name]["mae"].value for name in ("half_bound", "city")}
    best = min(errors, key=errors.__getitem__)
    better = []
    for name, by_limit in comparison.results.items():
        limits = [
            limit
            for limit, result in by_limit.items()
            if min(each["mae"].value for each in _scores_of(result)) < errors[best]
        ]
        better.append(f"{name} is better at {_listed(limits)}" if limits else f"{name} is better at no limit above")
    known = ", if somebody knew it in advance," if best == "city" else ""
    return (
        f"The best constant for the whole city is {_CONSTANTS[best]}: publishing it{known} costs nothing and has an "
        f"error of {errors[best]:.2f} {comparison.unit}; {'; '.join(better)}."
    )


def _listed(limits: list[float]) -> str:
    *others, last = [f"{limit:g}" for limit in limits]
    return f"{', '.join(others)} and {last}" if others else last
