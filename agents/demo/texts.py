"""Texts of the demo for its state and its records."""

import math
import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from itertools import count
from pathlib import Path
from typing import Final

from hatcast.agents.demo.state import DemoOptions, DemoState
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.records import BudgetRecord, EstimateRecord, NormalRecord, QueryRecord, ReleaseRecord, RunningRecord
from hatcast.stream.records.fields import Status


def next_steps(options: DemoOptions, policy: Policy) -> Iterator[str]:
    """Yield the next commands, each on its own line below a line with its purpose."""
    program = own_program()
    yield "next"
    if options.files:
        # A policy that takes reports needs them in a file: the command has a policy of readings alone instead.
        config = None if policy.takes_reports else options.config
        yield "  the noise of this run is thrown away, and a run with new noise says more of each bus. To keep it, in a"
        yield "  ledger that draws and charges a mean once, and to have its map as a file:"
        yield from (f"    {command}" for command in _batch(program, options, config, policy.timezone))
    if policy.takes_reports:
        yield "  a device of your own:"
        yield f"    {program} device --help"
    if not options.files:
        yield "  recordings of your own:"
        yield f"    {program} demo --help"
    yield "  a pipeline with your own Kafka and Redis:"
    yield f"    {program} init"


def own_program() -> str:
    """Return the command that runs this program again: `hatcast`, or its path if PATH has another one or none."""
    own = Path(sys.argv[0])
    if own.suffix == ".py":  # python -m hatcast
        return f"{shlex.quote(sys.executable)} -m hatcast"
    found = shutil.which(own.name)
    if found is not None and Path(found).resolve() == own.resolve():
        return own.name
    return shlex.quote(os.path.abspath(own))  # noqa: PTH100 - resolve() would follow links out of an environment


def _batch(program: str, options: DemoOptions, config: Path | None, timezone: str) -> tuple[str, str]:
    """Return the command that releases the recordings privately into a new ledger file, and that of its map.

    config   None: it also writes a configuration
    """
    names = (f"demo{number}" if number > 1 else "demo" for number in count(1))
    kinds = ("toml", "ledger", "html")
    name = next(each for each in names if not any(Path(f"{each}.{kind}").exists() for kind in kinds))
    files = " ".join(shlex.quote(str(file)) for file in options.files)
    chosen = "" if options.format is None else shlex.join(options.format.words)
    prepare = ""
    if config is None:
        config = Path(f"{name}.toml")
        prepare = f"{program} init --yes --timezone {timezone} --hours 0,24 --config {config} && "
    given = f"--config {shlex.quote(str(config))}"
    return (
        f"{prepare}{program} batch {files} {chosen} {given} --ledger {name}.ledger",
        f"{program} map {name}.ledger {given} -o {name}.html",
    )


_95: Final = math.log(20)  # 95 of 100 draws of Laplace noise are within this many scales
OUTCOMES: Final[dict[str, str]] = {
    Outcome.ACCEPTED: "counted",
    Outcome.ZERO: "standing still",
    Outcome.DUPLICATE: "repeated",
    Outcome.OVER_CAP: "over a bus's daily limit",
    Outcome.OVER_PARTICIPATION: "over a bus's part of the horizon",
    Outcome.OTHER_POLICY: "reports made for another policy",
    Outcome.BAD_SIGNATURE: "reports without a valid signature",
    Outcome.LATE: "too late",
    Outcome.OUTSIDE_DATES: "of another policy's day",
    Outcome.OUTSIDE_HOURS: "outside hours",
    Outcome.OUTSIDE_CELLS: "outside the listed cells",
    Outcome.BAD_VALUE: "impossible speed",
    Outcome.BAD_PLACE: "impossible place",
    Outcome.BAD_TIME: "impossible time",
    Outcome.UNDECODABLE: "unreadable",
    Outcome.WRONG_PARTITION: "wrong partition",
    Outcome.ARRIVED_IN_FUTURE: "from the future",
}

_NO_MEAN: Final[dict[str, str]] = {
    Status.SUPPRESSED: "suppressed",
    Status.BUDGET_EXHAUSTED: "without a mean: budget spent",
    Status.INCOMPLETE: "incomplete",
    Status.DEFERRED: "deferred (estimated)",
}

_MONTH: Final = 31  # days
_WINDOWS: Final[dict[str, str]] = {
    "today": "today so far",
    "24h": "the last 24 hours",
    "7d": "the last 7 days",
    "same_hour": "this hour of days like this one",
}


def clock_line(state: DemoState) -> str:
    """Return the time in the city and the slot that is released next."""
    next_slot = state.next_slot
    if next_slot is None or state.watermark_ms is None:
        return "waiting for the first readings"
    now = f"{state.calendar.local(state.watermark_ms):%a %d %b %Y %H:%M}"
    if state.finished:
        return f"{now}: everything is released"
    if state.feed_ended:
        return f"{now}: everything is sent, the last slots are being released"
    at = f"{state.calendar.local(next_slot.end_ms + state.policy.lateness_ms):%H:%M}"
    return f"{now}; {next_slot.name} is released at {at}"


def outcome_line(outcomes: Mapping[str, int]) -> str:
    """Return the number of records by outcome, most frequent first."""
    by_count = sorted(outcomes.items(), key=lambda item: -item[1])
    parts = [f"{records:,} {OUTCOMES.get(name, name)}" for name, records in by_count]
    return f"{sum(outcomes.values()):,}: {', '.join(parts)}" if parts else "none yet"


def mean(release: ReleaseRecord) -> str:
    """Return a mean as `21.3 ± 1.6`, or the reason that there is none."""
    if release.mean is None or release.noise is None:
        return "budget spent" if Status(release.status) is Status.BUDGET_EXHAUSTED else release.status
    return f"{release.mean:.1f} ± {spread(release):.1f}"


def spread(release: ReleaseRecord) -> float:
    """Return half the width of the 95 % noise interval, in km/h."""
    if release.noise is not None and release.noise.scale is not None:
        return _95 * release.noise.scale
    return _wider_side(release.mean, release.interval95)


def _wider_side(value: float | None, interval: tuple[float, float] | None) -> float:
    """Return the longer side of an interval around a value: the other one may be clipped."""
    return 0.0 if value is None or interval is None else max(value - interval[0], interval[1] - value)


def headline(record: EstimateRecord) -> NormalRecord:
    """Return the mean of all readings; of an hour without readings that count, the road."""
    return record.road if record.mean is None else record.mean


def half_width(record: EstimateRecord) -> float:
    """Return half the width of the 95 % interval, in km/h."""
    return _wider_side(headline(record).value, headline(record).interval95)


def estimate(record: EstimateRecord) -> str:
    """Return the mean of an estimate as `41.3 ± 5.6`."""
    return f"{headline(record).value:.1f} ± {half_width(record):.1f}"


def running_name(policy: Policy, name: str) -> str:
    """Return the words of a running mean, such as `today so far`."""
    keys = next((each for each in policy.running if each.name == name), None)
    return name if keys is None else _WINDOWS.get(keys.window, name)


def running(record: RunningRecord | None) -> str:
    """Return a running mean as `31.2 ± 1.6`; "" without a number."""
    if record is None or record.mean is None:
        return ""
    half = _wider_side(record.mean.value, record.mean.interval95)
    return f"{record.mean.value:.1f} ± {half:.1f}"


def day(text: str) -> str:
    """Return an ISO date as `22 Oct`."""
    return f"{date.fromisoformat(text):%d %b}"


def answer(answered: QueryRecord) -> str:
    """Return an answer as `21.3 ± 1.6 km/h`, or the reason that there is none."""
    if answered.mean is None:
        reason = "budget spent" if Status(answered.status) is Status.BUDGET_EXHAUSTED else answered.status
        return f"{reason}: {answered.reason.replace('_', ' ')}" if answered.reason else reason
    half = _wider_side(answered.mean, answered.interval95)
    return f"{answered.mean:.1f} ± {half:.1f} {answered.unit}"


def period(answered: QueryRecord) -> str:
    """Return the dates of an answer: one date, or the first and the last."""
    first, last = answered.first_date, answered.last_date
    return first if first == last else f"{first} to {last}"


def queries_line(state: DemoState) -> str:
    """Return the number of answers to each query."""
    counts = Counter(each.query for each in state.answers.values())
    return ", ".join(f"{query.name}: {_number(counts[query.name], 'answer')}" for query in state.policy.queries)


def unanswered(state: DemoState) -> Iterator[str]:
    """Yield a line for each query without an answer."""
    answered = {each.query for each in state.answers.values()}
    for query in state.policy.queries:
        if query.name in answered or state.watermark_ms is None:
            continue
        today = state.calendar.local(state.watermark_ms - state.policy.lateness_ms).date().isoformat()
        of_today = query.period_of(today)
        if of_today is None:
            why = f"its first period begins on {query.first}"
        else:
            dates = of_today.dates
            why = f"its period of {days_text(query.days)} from {dates[0]} to {dates[-1]} is not over in these readings"
        yield f"query {query.name} has no answer: {why}"


def days_text(days: int) -> str:
    """Return `one day`, `2 days`."""
    return "one day" if days == 1 else f"{days} days"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def settled_line(date: str) -> str:
    """Return a line about a day that a tracker has settled."""
    return f"{date} is settled: all of its hours are estimated again, with the queries of the day's end"


def budget_line(budget: BudgetRecord) -> str:
    """Return a day's budget as one line."""
    return f"budget of {budget.date}: {budget.largest:.6g} of {budget.limit:g} spent"


def status_counts(counts: Mapping[str, int]) -> str:
    """Return the HATs by status, as `58 means, 1 suppressed`; of a tracker, whose means are estimates, no `0 means`."""
    means = counts.get(Status.RELEASED, 0)
    rest = [f"{counts[status]:,} {text}" for status, text in _NO_MEAN.items() if counts.get(status)]
    return ", ".join(rest if counts.get(Status.DEFERRED) and not means else [_number(means, "mean"), *rest])


def summary(state: DemoState, seconds: float) -> Iterator[str]:
    """Yield the summary: the results and the next commands."""
    yield f"{status_counts(state.counts)} in {_number(len(state.hours), 'slot')}, in {seconds:.0f} s"
    if state.policy.queries:
        yield f"queries {queries_line(state)}"
        yield from unanswered(state)
    if state.settled_dates and state.policy.method.settles_days:
        yield f"settled {', '.join(sorted(state.settled_dates))}"
    yield f"readings {outcome_line(state.outcomes)}"
    if state.policy.takes_reports:
        yield f"reports of devices {outcome_line(state.report_outcomes)}"
    if state.not_sent:
        yield f"{state.not_sent:,} more records arrived in the future or before 1970 and were not sent"
    yield from (budget_line(budget) for _, budget in sorted(state.budgets.items())[-3:])
    if isinstance(state.policy.method, TrackerKeys):
        limit = state.policy.daily_limit
        yield f"days add up: at most {limit:g} a day is at most {_MONTH * limit:g} in {_MONTH} days"
    yield from next_steps(state.options, state.policy)
