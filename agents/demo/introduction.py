"""Introduction of the demo, for a reader who knows nothing else about hatcast."""

from collections.abc import Iterator
from typing import Final

from hatcast.agents.demo.defaults import VEHICLES
from hatcast.agents.demo.embedded import PARTITIONS
from hatcast.agents.demo.state import Began, DemoState
from hatcast.agents.demo.texts import days_text, running_name
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, MeansKeys, Policy, TrackerKeys
from hatcast.stream.records.fields import Status

_DEFERRED: Final = (
    "no query about this hexagon and hour alone: the budget went where it tells more. A day that is over is settled:"
    " the rest of the budget goes to queries about several hours, and all of the day's hours are estimated again"
)


def introduction(state: DemoState, began: Began) -> Iterator[tuple[str, str]]:
    """Yield rows of (term, meaning) for the top of the page."""
    policy = state.policy
    real = (
        "the worker with its noise and budget, as in production; a Redis server; Kafka's protocol, from a mock broker"
        f" ({PARTITIONS} partitions, topics not checked). Only on this machine; all of it is deleted at the end"
        + (", its noise too: publish nothing of it" if state.options.files else "")
    )
    what, budget = _what(policy)
    yield "map", f"{state.map_url} in a browser"
    yield "what", what
    yield "real", real
    yield _source(state, began)
    yield from _shown(policy)
    if policy.running:
        names = ", ".join(running_name(policy, each.name) for each in policy.running)
        yield (
            "running",
            f"means of several hours of a hexagon ({names}), made of what is released, so they cost nothing",
        )
    yield "budget", budget
    if began.trusting is not None and began.devices is not None:
        yield from _groups(policy, policy.keys_of(HybridKeys), began.trusting, began.devices)
    for query in policy.queries:
        yield query.name, f"a query over {days_text(query.days)}: its answers come after the last of them"


def _what(policy: Policy) -> tuple[str, str]:
    """Return two phrases: the releases, and the unit of their budget."""
    quantity = f"means of buses, {policy.quantity},"
    match policy.method:
        case TrackerKeys():
            what = f"{quantity} per hour and hexagon, from queries with noise that hides how fast any one bus went"
            return what, (
                "the most privacy that one bus's day has lost, in epsilon: a bus pays for its own part in each query;"
                f" never more than {policy.daily_limit:g} a day"
            )
        case ContinualKeys() as keys:
            what = (
                f"{quantity} in each hexagon since its horizon of {days_text(keys.horizon_days)}"
                " began, hour by hour, with noise that hides how fast any one bus went"
            )
            return what, (
                "the privacy that one bus loses in a horizon, in epsilon: all of it is booked on each day of the"
                f" horizon; {policy.epsilon:g} for each of at most {keys.max_cells} hexagons"
            )
        case (MeansKeys() | HybridKeys()) as keys:
            each = "each bus alike, " if isinstance(keys, HybridKeys) else ""
            what = f"{quantity} per hour and hexagon, {each}with noise that hides how fast any one bus went"
            return what, (
                f"the most privacy that one bus's day has lost, in epsilon: {keys.charged(policy.epsilon):g} for each"
                f" mean that it is part of (at most {policy.max_hats_per_day}); never more than {policy.daily_limit:g}"
                " a day"
            )


def _shown(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield rows about the numbers and words in the hexagons."""
    match policy.method:
        case TrackerKeys():
            yield (
                "41.3 ± 5.6",
                "km/h: the mean of all readings of the hour is within ± 5.6 in 95 of 100 cases, by all released so far",
            )
            yield (
                "predicted",
                "no query in this hour: it follows from others; dim: no readings count, so it is the road's",
            )
            yield Status.DEFERRED, _DEFERRED
            few = f"fewer than {policy.min_users} buses were there, so there is no query about the hour"
            yield Status.SUPPRESSED, few
        case ContinualKeys():
            yield (
                "21.3 ± 1.6",
                "km/h: the mean since the horizon began, with noise that is within ± 1.6 in 95 of 100 cases",
            )
            yield Status.SUPPRESSED, f"fewer than {policy.min_users} values so far, so no mean is published"
        case MeansKeys() | HybridKeys():
            yield (
                "21.3 ± 1.6",
                "km/h: the mean with its noise, which is within ± 1.6 in 95 of 100 cases; fewer buses, more noise",
            )
            yield Status.SUPPRESSED, f"fewer than {policy.min_users} buses were there, so no mean is published"


def _groups(policy: Policy, keys: HybridKeys, trusting: int, devices: int) -> Iterator[tuple[str, str]]:
    """Yield rows about the two groups of a hybrid policy."""
    share = f"{trusting / max(trusting + devices, 1):.0%}"
    trust = (
        f"{trusting:,} of {trusting + devices:,} buses, a share of {share}, trust the operator and send their readings;"
        f" {_hidden(policy, keys)}"
    )
    others = (
        f"the other {devices:,} do not: each has a device (hatcast device), which adds its own noise to its own mean,"
        f" epsilon {keys.local_epsilon:g}, and sends nothing else"
    )
    yield "trust", trust
    yield "devices", others
    yield "weights", "of the mean of those who trust + of the mean of the devices' reports, in what is released"


def _hidden(policy: Policy, keys: HybridKeys) -> str:
    """Say how the means of those who trust the operator are hidden."""
    if not keys.use.central:
        return f"{policy.estimator} uses none of them"
    if keys.use.all_local:
        return f"the operator adds the noise of a device to the mean of each, epsilon {keys.local_epsilon:g}"
    return f"the operator adds noise to their mean, epsilon {policy.epsilon:g}"


def _source(state: DemoState, began: Began) -> tuple[str, str]:
    pace = f"{began.speedup:,.0f} times the recorded pace" if began.speedup else "as fast as possible"
    if 0 < began.speedup <= 3600:
        pace = f"an hour in {3600 / began.speedup:.2g} s"
    if not state.options.files:
        buses = VEHICLES if began.trusting is None else began.trusting + (began.devices or 0)
        return "made up", f"the city and its {buses} buses; {pace}"
    times = ""
    if began.last_ms is not None:
        first, last = (f"{state.calendar.local(instant):%Y-%m-%d %H:%M}" for instant in (began.first_ms, began.last_ms))
        times = f", {first} to {last} {state.policy.timezone}"
    return "recorded", f"{state.options.name}: {began.records or 0:,} records{times}; {pace}"
