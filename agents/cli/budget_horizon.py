"""Parts of `hatcast budget explain`: paragraphs, epsilon in words, and what a horizon of running sums can lose."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hatcast.stream.budget import DayLoss
from hatcast.stream.policy.continual_keys import AtEnd, part_of_delta
from hatcast.stream.policy.policy import ContinualKeys, Policy
from hatcast.stream.policy.query import RUNNING_SUMS
from hatcast.stream.records import BudgetRecord
from hatcast.stream.units import NANO

_WEAK: Final = 10.0  # above it the factor, 22,000 or more, excludes nothing


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Paragraph with a heading; `sums` are lines of (item, formula, epsilon)."""

    heading: str
    text: str = ""
    sums: tuple[tuple[str, str, str], ...] = ()


def factor(epsilon: float) -> str:
    """Return e^epsilon as readable text."""
    if epsilon > math.log(1e6):
        return f"about 10^{epsilon / math.log(10):.0f}"
    return f"{math.exp(epsilon):.3g}" if epsilon < math.log(1000) else f"{math.exp(epsilon):,.0f}"


def certainty(epsilon: float) -> str:
    """Return the largest posterior probability of a guess with prior 1/2, in per cent, rounded up."""
    share = math.ceil(1e5 / (1 + math.exp(-epsilon))) / 1000
    return f"{share:.4g} %" if share < 99 else f"{share:g} %"


def hidden_values(policy: Policy, bus: str) -> str:
    """Return the values that relation replace hides: the speed, and others of the policy by name."""
    if policy.value_name is not None:
        return f"the {policy.value_name} in each reading of {bus}"
    others = [value.name for value in policy.released_values[1:]]
    return f"how fast {bus} went" + "".join(f" and its {name}" for name in others)


def eps(nano: int) -> str:
    """Return a charge (1e-9) as text."""
    return f"{nano / NANO:g}"


def horizon_paragraphs(policy: Policy, keys: ContinualKeys, loss: DayLoss, days: int) -> list[Paragraph]:
    """Return the paragraphs on the sum, its meaning and several days."""
    return [
        _sums(policy, keys, loss),
        Paragraph("What this means", _meaning(policy, keys, loss)),
        Paragraph(f"Over {days} days" if days > 1 else "As (epsilon, delta)", _over(policy, keys, loss, days)),
    ]


def horizon_figures(policy: Policy) -> dict[str, Any]:
    """Return the figures of one horizon as JSON; empty for a policy without horizons."""
    keys = policy.method
    if not isinstance(keys, ContinualKeys):
        return {}
    cost = keys.horizon_cost(policy.epsilon)
    return {
        "horizon": {
            "days": keys.horizon_days,
            "max_slots": keys.max_slots,
            "min_separation": keys.min_separation,
            "cells": cost.places,
            "epsilon_cell": cost.epsilon_nano / NANO,
            "epsilon_user_horizon": cost.amount / NANO,
        }
        | ({} if policy.is_pure else {"delta_cell": part_of_delta(policy.delta, keys.max_cells), "delta": policy.delta})
    }


def delta_over(policy: Policy, loss: DayLoss, days: int) -> float:
    """Return the delta at which the composed epsilon of `days` days holds: of Gaussian running sums, one a horizon."""
    return policy.delta if policy.is_pure or not policy.method.has_horizons else loss.charged(days) * policy.delta


def lost_over(policy: Policy, records: Sequence[BudgetRecord]) -> float:
    """Return the most epsilon that a bus has lost on these days: a horizon's reservation, on each of them, once."""
    horizons: dict[object, float] = {}
    others = 0.0
    for record in records:
        sums = next((each for each in record.queries if each.query == RUNNING_SUMS), None)
        reserved = 0.0 if sums is None else sums.places * sums.epsilon
        others += record.epsilon_user_day - reserved
        if isinstance(policy.method, ContinualKeys) and sums is not None:
            horizon = policy.method.horizon_of(record.date)
            horizons[horizon] = max(reserved, horizons.get(horizon, 0.0))
    return round(others + sum(horizons.values()), 9)


def _dates(keys: ContinualKeys) -> str:
    return "1 day" if keys.horizon_days == 1 else f"{keys.horizon_days} days"


def _sums(policy: Policy, keys: ContinualKeys, loss: DayLoss) -> Paragraph:
    cost = keys.horizon_cost(policy.epsilon)
    rows = (
        (f"running sums of {cost.places} hexagons", f"{cost.places} x {eps(cost.epsilon_nano)}", eps(cost.amount)),
        ("allowed (daily_limit)", "", eps(loss.limit)),
        (f"so one bus's horizon of {_dates(keys)} loses at most", "", eps(loss.bound)),
    )
    apart = "" if keys.min_separation == 1 else f", {keys.min_separation} or more apart"
    slots = "1 timeslot" if keys.max_slots == 1 else f"{keys.max_slots} timeslots"
    text = (
        f"Each hexagon has one running sum over the {_dates(keys)} of a horizon, and all that it publishes in this time"
        f" costs {eps(cost.epsilon_nano)}. In a horizon a bus is counted in at most {keys.max_cells} hexagons, in each"
        f" of them in at most {slots}{apart}; further readings are left out, so this limit always holds. The whole"
        " cost is booked on each day of the horizon, before its first record: a day's ledger has what all days"
        " together cost."
        f" Other policies on the same telemetry add to it; all policies together stay within {eps(loss.limit)} a day."
    )
    if not policy.is_pure:
        text += (
            f" The noise is Gaussian, so each hexagon's {eps(cost.epsilon_nano)} has its own delta,"
            f" {policy.delta / keys.max_cells:.3g}: the loss of a horizon holds with delta = {policy.delta:g}, and the"
            " deltas of other such policies add to it."
        )
    return Paragraph(f"The most that one bus's horizon can lose under policy {policy.name}", text, rows)


def _meaning(policy: Policy, keys: ContinualKeys, loss: DayLoss) -> str:
    exception = "" if policy.is_pure else f", but for a probability of {policy.delta:g} (delta)"
    cell, whole = keys.horizon_cost(policy.epsilon).epsilon_nano, loss.bound
    strength = f": at most {certainty(whole / NANO)} sure of anything about the bus in it."
    if whole > _WEAK * NANO:
        strength = (
            ", which excludes nothing: the protection comes from the bound for one hexagon, and what shows in many"
            " hexagons at once may not be hidden at all."
        )
    return (
        f"Compare two cities that differ only in {hidden_values(policy, 'one bus')} in one horizon of {_dates(keys)}."
        " All published results together are at most e^epsilon times as likely in one as in the other"
        f"{exception}. For all that is published of one hexagon that is e^{eps(cell)}, a factor of"
        f" {factor(cell / NANO)}: an observer for whom a guess about the bus in that hexagon was 50 % likely can become"
        f" at most {certainty(cell / NANO)} sure of it. For the whole horizon it is e^{eps(whole)}, a factor of"
        f" {factor(whole / NANO)}{strength} A bus in fewer hexagons loses less, {eps(cell)} for each."
    )


def _over(policy: Policy, keys: ContinualKeys, loss: DayLoss, days: int) -> str:
    composed = (
        "With Gaussian noise each hexagon has its own part of delta, so nothing is left to compose:"
        f" a horizon loses {eps(loss.bound)} as (epsilon, delta) too."
        if not policy.is_pure
        else f"Composed as (epsilon, delta), a horizon loses at most {loss.epsilon_at_delta(1, policy.delta):.4g}, but"
        f" for a probability of about delta = {policy.delta:g} that it loses more."
    )
    if days == 1:
        return composed
    times = keys.horizons_in(days)
    if keys.at_end is AtEnd.STOP:
        return (
            "The guarantee is for all that this policy ever releases: after its horizon it releases nothing"
            f' (at_end = "stop"). {composed}'
        )
    text = (
        "The guarantee is for one horizon; at its end the next one begins with a new charge, and losses add up."
        f" {days} days touch at most {times} horizons, so over them the same bus can lose {times} x {eps(loss.bound)}"
        f" = {eps(loss.over_days(days, None))}, and more in every further horizon."
    )
    if not policy.is_pure:
        return f"{text} The deltas add up too: {times} x {policy.delta:g}. {composed}"
    return f"{text} {composed} Over {days} days that is {loss.epsilon_at_delta(days, policy.delta):.4g}."
