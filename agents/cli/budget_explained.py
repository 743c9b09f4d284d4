"""What a policy can cost one bus, in plain words: for readers who never heard of epsilon.

All figures follow from the policy; only the last paragraph is of the ledger.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hatcast.stream.budget.per_user import DayLoss, day_loss
from hatcast.stream.hybrid import delta_of_one
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.records import BudgetRecord
from hatcast.stream.units import NANO

_STRONG: Final = 1.0  # epsilon up to which an even guess stays below 73.2 %
_WEAK: Final = 10.0  # above it the factor excludes nothing: 22,000 and more. As acknowledge_weak_privacy has it
_SEEN: Final = 10  # HATs of a bus that shows what a bus in few of them loses


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A heading and what is under it; `sums` are lines of (what, how, epsilon)."""

    heading: str
    text: str = ""
    sums: tuple[tuple[str, str, str], ...] = ()


def explanation(policy: Policy, days: int, ledger: Sequence[dict[str, Any]] | str) -> list[Paragraph]:
    """What one bus's day, and so many of them, can lose under a policy.

    ledger   records of `hats.budget`, oldest first; or why they could not be read
    """
    loss = day_loss(policy)
    return [
        _sums(policy, loss),
        Paragraph("What that means", _meaning(policy, loss)),
        Paragraph(f"Over {days} days" if days > 1 else "As (epsilon, delta)", _over(policy, loss, days)),
        Paragraph("What is hidden, and what is not", _hidden(policy)),
        Paragraph("What has been spent", _spent(policy, days, ledger)),
    ]


def figures(policy: Policy, days: int, ledger: Sequence[dict[str, Any]] | str) -> dict[str, Any]:
    """The same for programs. `ledger` is null where it could not be read."""
    loss = day_loss(policy)
    return {
        "policy": policy.name,
        "policy_id": policy.policy_id,
        "unit": policy.unit,
        "relation": policy.relation.value,
        "hat": {"epsilon": loss.epsilon / NANO, "with_queries": loss.place / NANO} | _with_delta(delta_of_one, policy),
        "day": {
            "hats": loss.places,
            "epsilon_hats": loss.hats / NANO,
            "queries": [
                {
                    "query": query.name,
                    "kind": query.kind.value,
                    "days": query.days,
                    "epsilon": query.epsilon_nano / NANO,
                    "epsilon_user_day": loss.queries[query.name].amount / NANO,
                }
                for query in policy.queries
            ],
            "limit": loss.limit / NANO,
            "bound": loss.bound / NANO,
            "epsilon_delta": {"epsilon": loss.finer(1, policy.delta), "delta": policy.delta},
        }
        | _with_delta(lambda each: each.delta, policy),
        "days": days,
        "over_days": {
            "bound": loss.over(days, policy.total_limit_nano) / NANO,
            "epsilon_delta": {"epsilon": _finer(policy, loss, days), "delta": policy.delta},
        }
        | _with_delta(lambda each: days * each.delta, policy),
        "ledger": None
        if isinstance(ledger, str)
        else {
            "days": len(ledger[-days:]),
            "spent": sum(_record(day).epsilon_user_day for day in ledger[-days:]),
            "most": max((_record(day).epsilon_user_day for day in ledger), default=0.0),
        },
    }


def _with_delta(delta: Callable[[Policy], float], policy: Policy) -> dict[str, float]:
    """Of the epsilons beside it, where they are not pure."""
    return {} if policy.is_pure else {"delta": delta(policy)}


def factor(epsilon: float) -> str:
    """e^epsilon, as people read it."""
    if epsilon > math.log(1e6):
        return f"about 10^{epsilon / math.log(10):.0f}"
    return f"{math.exp(epsilon):.3g}" if epsilon < math.log(1000) else f"{math.exp(epsilon):,.0f}"


def certainty(epsilon: float) -> str:
    """How sure one can become, by what costs epsilon, of what was as likely as not: in per cent, rounded up."""
    share = math.ceil(1e5 / (1 + math.exp(-epsilon))) / 1000
    return f"{share:.4g} %" if share < 99 else f"{share:g} %"


def _sums(policy: Policy, loss: DayLoss) -> Paragraph:
    rows = [(f"{loss.places} HATs, each released once", f"{loss.places} x {_n(loss.epsilon)}", _n(loss.hats))]
    rows += [
        (
            f"query {query.name}, over {query.days} day{'s' if query.days > 1 else ''}",
            f"{loss.places} x {_n(query.epsilon_nano)}",
            _n(loss.queries[query.name].amount),
        )
        for query in policy.queries
    ]
    rows.append(("together", "", _n(loss.hats + loss.reserved)))
    rows.append(("allowed (daily_limit)", "", _n(loss.limit)))
    rows.append(("so one bus's day loses at most", "", _n(loss.bound)))
    text = (
        f"A HAT is one hexagon in one timeslot of one day. A bus is counted in at most {loss.places} of them a day;"
        " further ones are left out, so this is enforced and not hoped for."
    )
    if policy.queries:
        text += (
            " A query reads every HAT on each of its days, so it is charged for all of them, in full, on every one of"
            " its days, before the first release of the day."
        )
    if (chosen := policy.chosen) is not None:
        text += (
            f" The list of cells was chosen with noise: that has cost {_n(chosen.epsilon_nano)} on each day from"
            f" {chosen.first} to {chosen.last}, whatever is released of them, and comes on top there."
        )
    text += (
        f" The loss is measured in epsilon. Other policies on the same telemetry add to it; all together stay within"
        f" {_n(loss.limit)} a day."
    )
    if not policy.is_pure:
        text += (
            f" Noise is Gaussian, so each HAT's {_n(loss.epsilon)} has a delta of its own, {delta_of_one(policy):.3g}:"
            f" what a day loses holds with delta = {policy.delta:g}, and deltas of other such policies add to it."
        )
    return Paragraph(f"What one bus's day can lose under policy {policy.name}, at most", text, tuple(rows))


def _meaning(policy: Policy, loss: DayLoss) -> str:
    one, day = loss.place / NANO, loss.bound / NANO
    differ = (
        "whether one bus was there on one day"
        if policy.relation is Relation.ADD_REMOVE
        else "how fast one bus went on one day"
    )
    said = "its release and the queries that read it" if policy.queries else "its release"
    but = "" if policy.is_pure else f", but for a chance of {policy.delta:g} in the whole day (delta)"
    text = (
        f"Think of two cities that differ only in {differ}. Whatever is published, it is at most e^epsilon times as"
        f" likely in one as in the other{but}. For one HAT, {said}, that is e^{_n(loss.place)}, a factor of"
        f" {factor(one)}: somebody who thought a guess about the bus in that HAT as likely as not can become at most"
        f" {certainty(one)} sure of it."
    )
    text += f" For the whole day it is e^{_n(loss.bound)}, a factor of {factor(day)}"
    if day <= _STRONG:
        return f"{text}: at most {certainty(day)} sure of anything about the bus's day. That is strong protection."
    if day <= _WEAK:
        return (
            f"{text}: at most {certainty(day)} sure of anything about the bus's day. That still excludes something,"
            " but it is no strong protection."
        )
    text += (
        ". A factor of that size excludes nothing: for the day as a whole this bound is no protection by itself. What"
    )
    if one > _WEAK:
        return f"{text} is proved of a single HAT is no better: this policy hides hardly anything."
    few = min(_SEEN, loss.places)
    return (
        f"{text} protects is the bound for a single HAT, and that a bus in fewer of them loses less: one in {few}"
        f" loses {_n(min(few * loss.place, loss.bound))}. What shows in a single HAT is hidden as well as that; what"
        " shows in many at once, such as that a bus went fast all day, may not be hidden at all."
    )


def _over(policy: Policy, loss: DayLoss, days: int) -> str:
    day = (
        f"Added up more finely, as (epsilon, delta), a day loses at most {loss.finer(1, policy.delta):.4g}, but for a"
        f" chance of about delta = {policy.delta:g} that it is more."
    )
    if days == 1:
        return day
    most, total = loss.over(days, policy.total_limit_nano), policy.total_limit_nano
    if total is None:
        text = (
            "The promise is for one day: each day of a bus is protected by itself, and losses add up. Over"
            f" {days} days the same bus can lose {days} x {_n(loss.bound)} = {_n(most)}, and so on for ever."
        )
        if not policy.is_pure:
            text += f" So do their deltas: {days} x {policy.delta:g}."
    else:
        text = (
            f"The promise is for all time: all days of a bus together lose at most {_n(total)} (total_limit), then"
            f" nothing more is released. {days} days can lose {_n(most)}."
        )
    return f"{text} {day} Over {days} days that is {_finer(policy, loss, days):.4g}."


def _hidden(policy: Policy) -> str:
    if policy.relation is Relation.ADD_REMOVE:
        text = (
            "Hidden is whether a bus was there at all that day, where and when, how many readings it sent and how fast"
            " it went. Public are the policy and its list of cells. What one bus can change in the moment of sending is"
            " not covered (docs/privacy.md)."
        )
    else:
        also = ["that it was there", "in which hexagons and hours", "how many readings it sent"]
        if policy.drop_zero:
            also.append("that a reading was exactly 0")
        if policy.reject_above is not None:
            also.append(f"that one was broken or above {policy.reject_above / 1000:g} km/h")
        text = (
            f"Hidden is how fast a bus went. Not hidden is {', '.join(also[:-1])}, and {also[-1]}: relation replace"
            " takes all that for public. To hide it too there is add_remove."
        )
    text += " A bus is what has one id: one that has several is several buses here, and each can lose this much"
    return f"{text}." if policy.unit == "user" else f"{text}; one that drives past midnight is two days."


def _spent(policy: Policy, days: int, ledger: Sequence[dict[str, Any]] | str) -> str:
    if isinstance(ledger, str):
        return f"All figures above follow from the policy. What has been spent is not known here: {ledger}."
    if not ledger:
        return "All figures above follow from the policy. The ledger says that nothing has been released yet."
    newest = [_record(day) for day in ledger[-days:]]
    dearest = max(newest, key=lambda record: record.epsilon_user_day)
    number = f"{len(newest)} day{'s' if len(newest) > 1 else ''}"
    text = (
        "All figures above follow from the policy; these are the ledger's, for all policies of the telemetry topic."
        f" Of its newest {number}, {newest[0].date} to {newest[-1].date}, a bus"
        f" that was there on all of them has lost at most {sum(record.epsilon_user_day for record in newest):g}; on the"
        f" dearest, {dearest.date}, {dearest.epsilon_user_day:g}, or {dearest.epsilon_delta.epsilon:.4g} as (epsilon,"
        f" delta)."
    )
    last = newest[-1]
    if last.total is not None and last.total_limit is not None:
        text += f" All days together: {last.total:g} of {last.total_limit:g}."
    return text


def _finer(policy: Policy, loss: DayLoss, days: int) -> float:
    finer = loss.finer(days, policy.delta)
    return min(finer, loss.over(days, policy.total_limit_nano) / NANO) if policy.is_pure else finer


def _record(day: dict[str, Any]) -> BudgetRecord:
    return msgspec.convert(day, BudgetRecord)


def _n(nano: int) -> str:
    return f"{nano / NANO:g}"
