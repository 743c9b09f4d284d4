"""Texts of the demo, for a reader who knows nothing else about hatcast."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Final

from hatcast.agents.demo.defaults import VEHICLES
from hatcast.agents.demo.embedded import PARTITIONS
from hatcast.agents.demo.messages import Began
from hatcast.agents.demo.next_steps import next_steps
from hatcast.agents.demo.state import Answered, Budget, Estimated, Published, State, Status
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.reading import Outcome

_95: Final = math.log(20)  # 95 of 100 draws of Laplace noise are within this many scales
_DEFERRED: Final = (
    "no query about this hexagon and hour alone: the budget went where it tells more. A day that is over is settled:"
    " the rest of the budget goes to queries about several hours, and all of the day's hours are estimated again"
)


OUTCOMES: Final[dict[str, str]] = {
    Outcome.ACCEPTED: "counted",
    Outcome.ZERO: "standing still",
    Outcome.DUPLICATE: "repeated",
    Outcome.OVER_CAP: "over a bus's daily limit",
    Outcome.OTHER_POLICY: "reports made for another policy",
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


_NO_MEAN: Final[dict[Status, str]] = {
    "suppressed": "suppressed",
    "budget_exhausted": "without a mean: budget spent",
    "incomplete": "incomplete",
    "deferred": "deferred",
}


_WITHOUT_MEAN: Final[dict[Status, str]] = {
    "budget_exhausted": "budget_exhausted: the day's budget is spent",
    "incomplete": "incomplete: records of the day were lost",
}


def introduction(state: State, began: Began) -> Iterator[tuple[str, str]]:
    """Yield rows of (term, meaning) for the top of the page."""
    policy = state.policy
    real = (
        "the worker with its noise and budget, as in production; a Redis server; Kafka's protocol, from a mock broker"
        f" ({PARTITIONS} partitions, topics not checked). Only on this machine; all of it is deleted at the end"
    )
    if policy.tracker is not None:
        what = "speeds of the roads per hour and hexagon, from queries with noise that hides how fast any one bus went"
        budget = (
            "the most privacy that one bus's day has lost, in epsilon: a bus pays for its own part in each query;"
            f" never more than {policy.daily_limit:g} a day"
        )
    else:
        charge = policy.epsilon if policy.hybrid is None else policy.hybrid.charged(policy.epsilon)
        each = "" if policy.hybrid is None else "each bus alike, "
        what = f"mean speeds of buses per hour and hexagon, {each}with noise that hides how fast any one bus went"
        budget = (
            f"the most privacy that one bus's day has lost, in epsilon: {charge:g} for each mean that it is"
            f" part of (at most {policy.max_hats_per_day}); never more than {policy.daily_limit:g} a day"
        )
    yield "map", f"{state.map_url} in a browser"
    yield "what", what
    yield "real", real
    yield _source(state, began)
    if policy.tracker is not None:
        yield (
            "41.3 ± 5.6",
            "km/h: the road's speed is within ± 5.6 in 95 of 100 cases, by all that was released so far",
        )
        yield "predicted", "no query in this hour: it follows from other hours and hexagons"
        yield "deferred", _DEFERRED
        yield "suppressed", f"fewer than {policy.min_users} buses were there, so there is no query about the hour"
    else:
        yield (
            "21.3 ± 1.6",
            "km/h: the mean with its noise, which is within ± 1.6 in 95 of 100 cases; fewer buses, more noise",
        )
        yield "suppressed", f"fewer than {policy.min_users} buses were there, so no mean is published"
    yield "budget", budget
    if began.trusting is not None and began.devices is not None:
        yield from _groups(policy, began.trusting, began.devices)
    for query in policy.queries:
        yield query.name, f"a query over {_days(query.days)}: its answers come after the last of them"


def _groups(policy: Policy, trusting: int, devices: int) -> Iterator[tuple[str, str]]:
    """Yield rows about the two groups of a hybrid policy."""
    local = policy.epsilon if policy.hybrid is None else policy.hybrid.local_epsilon
    share = f"{trusting / max(trusting + devices, 1):.0%}"
    trust = (
        f"{trusting:,} of {trusting + devices:,} buses, a share of {share}, trust the operator and send their readings;"
        f" the operator adds noise to their mean, epsilon {policy.epsilon:g}"
    )
    others = (
        f"the other {devices:,} do not: each has a device (hatcast device), which adds its own noise to its own mean,"
        f" epsilon {local:g}, and sends nothing else"
    )
    yield "trust", trust
    yield "devices", others
    yield "weights", "of the mean of those who trust + of the mean of the devices' reports, in what is released"


def _source(state: State, began: Began) -> tuple[str, str]:
    pace = f"{began.speedup:,.0f} times the recorded pace" if began.speedup else "as fast as possible"
    if 0 < began.speedup <= 3600:
        pace = f"an hour in {3600 / began.speedup:.2g} s"
    if not state.origin.files:
        buses = VEHICLES if began.trusting is None else began.trusting + (began.devices or 0)
        return "made up", f"the city and its {buses} buses; {pace}"
    times = ""
    if began.last_ms is not None:
        first, last = (f"{state.calendar.local(instant):%Y-%m-%d %H:%M}" for instant in (began.first_ms, began.last_ms))
        times = f", {first} to {last} {state.policy.timezone}"
    return "recorded", f"{state.origin.name}: {began.records or 0:,} records{times}; {pace}"


def clock_line(state: State) -> str:
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


def mean(release: Published, plus_minus: str = "±") -> str:
    """Return a mean as `21.3 ± 1.6`, or the reason that there is none."""
    if release.mean is None or release.noise is None:
        return "budget spent" if release.status == "budget_exhausted" else release.status
    return f"{release.mean:.1f} {plus_minus} {spread(release):.1f}"


def groups(release: Published) -> str:
    """Return both groups of a hybrid policy's release with their weights; "" of other policies."""
    users, weight = release.users, release.weight
    if users is None or weight is None:
        return ""
    return f"  {users.central:,} trust (weight {weight:.2f}), {users.local:,} devices ({1 - weight:.2f})"


def spread(release: Published) -> float:
    """Return half the width of the 95 % noise interval, in km/h."""
    if release.noise is not None and release.noise.scale is not None:
        return _95 * release.noise.scale
    return _wider_side(release.mean, release.interval95)


def _wider_side(value: float | None, interval: tuple[float, float] | None) -> float:
    """Return the longer side of an interval around a value: the other one may be clipped."""
    return 0.0 if value is None or interval is None else max(value - interval[0], interval[1] - value)


def half_width(estimate: Estimated) -> float:
    """Return half the width of the 95 % interval, in km/h."""
    return _wider_side(estimate.road.value, estimate.road.interval95)


def road(estimate: Estimated, plus_minus: str = "±") -> str:
    """Return the speed of a road as `41.3 ± 5.6`."""
    return f"{estimate.road.value:.1f} {plus_minus} {half_width(estimate):.1f}"


def estimate_line(estimate: Estimated) -> str:
    """Return an estimate as one line of ASCII."""
    start = f"{estimate.date} {estimate.slot}  {estimate.cell}  "
    predicted = "  predicted" if estimate.stage == "predicted" else ""
    return f"{start}{road(estimate, '+-'):>12} km/h{predicted}"


def day(text: str) -> str:
    """Return an ISO date as `22 Oct`."""
    return f"{date.fromisoformat(text):%d %b}"


def line(release: Published, policy: Policy) -> str:
    """Return a release as one line of ASCII."""
    start = f"{release.date} {release.slot}  {release.cell}  "
    if release.mean is not None:
        return f"{start}{mean(release, '+-'):>12} km/h{groups(release)}"
    if release.status == "suppressed":
        return f"{start}suppressed: fewer than {policy.min_users} buses"
    return f"{start}{_WITHOUT_MEAN.get(release.status, release.status)}"


def answer(answered: Answered, plus_minus: str = "±") -> str:
    """Return an answer as `21.3 ± 1.6 km/h`, or the reason that there is none."""
    if answered.mean is None:
        reason = "budget spent" if answered.status == "budget_exhausted" else answered.status
        return f"{reason}: {answered.reason.replace('_', ' ')}" if answered.reason else reason
    half = _wider_side(answered.mean, answered.interval95)
    return f"{answered.mean:.1f} {plus_minus} {half:.1f} {answered.unit}"


def answer_line(answered: Answered) -> str:
    """Return an answer as one line of ASCII."""
    return f"{period(answered)} {answered.slot}  {answered.cell}  {answered.query}: {answer(answered, '+-')}"


def period(answered: Answered) -> str:
    """Return the dates of an answer: one date, or the first and the last."""
    first, last = answered.first_date, answered.last_date
    return first if first == last else f"{first} to {last}"


def queries_line(state: State) -> str:
    """Return the number of answers to each query."""
    counts = Counter(each.query for each in state.answers.values())
    return ", ".join(f"{query.name}: {_number(counts[query.name], 'answer')}" for query in state.policy.queries)


def unanswered(state: State) -> Iterator[str]:
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
            why = f"its period of {_days(query.days)} from {dates[0]} to {dates[-1]} is not over in these readings"
        yield f"query {query.name} has no answer: {why}"


def _days(days: int) -> str:
    return "one day" if days == 1 else f"{days} days"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def settled_line(date: str) -> str:
    """Return a line about a day that a tracker has settled."""
    return f"{date} is settled: all of its hours are estimated again, with the queries of the day's end"


def budget_line(budget: Budget) -> str:
    """Return a day's budget as one line."""
    return f"budget of {budget.date}: {budget.largest:.6g} of {budget.limit:g} spent"


def status_counts(counts: Mapping[Status, int]) -> str:
    """Return the HATs by status, such as `58 means, 1 suppressed`."""
    means = counts.get("released", 0)
    rest = [f"{counts[status]:,} {text}" for status, text in _NO_MEAN.items() if counts.get(status)]
    return ", ".join([_number(means, "mean"), *rest])


def summary(state: State, seconds: float) -> Iterator[str]:
    """Yield the summary: the results and the next commands."""
    yield f"{status_counts(state.counts)} in {len(state.hours)} slots, in {seconds:.0f} s"
    if state.policy.queries:
        yield f"queries {queries_line(state)}"
        yield from unanswered(state)
    if state.settled_dates and state.policy.tracker is not None:
        yield f"settled {', '.join(sorted(state.settled_dates))}"
    yield f"readings {outcome_line(state.outcomes)}"
    if state.policy.takes_reports:
        yield f"reports of devices {outcome_line(state.report_outcomes)}"
    if state.not_sent:
        yield f"{state.not_sent:,} more records arrived in the future or before 1970 and were not sent"
    yield from (budget_line(budget) for _, budget in sorted(state.budgets.items())[-3:])
    yield from next_steps(state.origin, state.policy)
