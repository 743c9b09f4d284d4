"""Text of `hatcast budget explain`: the most that a policy can cost one bus, for readers who do not know epsilon.

All figures follow from the policy, except in the last paragraph, which describes the ledger.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hatcast.agents.cli.budget_horizon import (
    Paragraph,
    certainty,
    delta_over,
    eps,
    factor,
    hidden_values,
    horizon_figures,
    horizon_paragraphs,
    lost_over,
)
from hatcast.stream.budget import DayLoss, day_loss
from hatcast.stream.hybrid import delta_per_hat
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, Policy, Relation, TrackerKeys
from hatcast.stream.records import BudgetRecord
from hatcast.stream.units import NANO

_STRONG: Final = 1.0  # epsilon up to which a guess of 50 % becomes at most 73.2 %
_WEAK: Final = 10.0  # above it the factor, 22,000 or more, excludes nothing: the limit of acknowledge_weak_privacy
_EXAMPLE_HATS: Final = 10  # of the example of a bus in few HATs


def explanation(policy: Policy, days: int, ledger: Sequence[dict[str, Any]] | str) -> list[Paragraph]:
    """Return the paragraphs on what one day, and `days` days, of a bus can lose under a policy.

    ledger   records of `hats.budget`, oldest first, or the reason that they could not be read
    """
    loss = day_loss(policy)
    first = (
        horizon_paragraphs(policy, policy.method, loss, days)
        if isinstance(policy.method, ContinualKeys)
        else [
            _sums(policy, loss),
            Paragraph("What this means", _meaning(policy, loss)),
            Paragraph(f"Over {days} days" if days > 1 else "As (epsilon, delta)", _over(policy, loss, days)),
        ]
    )
    return [
        *first,
        Paragraph("What is hidden, and what is not", _hidden(policy) + _in_both_groups(policy, loss)),
        Paragraph("What has been spent", _spent(policy, days, ledger)),
    ]


def figures(policy: Policy, days: int, ledger: Sequence[dict[str, Any]] | str) -> dict[str, Any]:
    """Return the figures of `explanation` as JSON. `ledger` is null if it could not be read."""
    loss, limit = day_loss(policy), policy.composed_limit
    return {
        "policy": policy.name,
        "policy_id": policy.policy_id,
        "unit": policy.unit,
        "relation": policy.relation.value,
        **_hat(policy, loss),
        **horizon_figures(policy),
        "day": {
            **({"hats": loss.most_hats} if _has_hats(policy) else {}),
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
            **({} if limit is None else {"limit_epsilon_delta": {"epsilon": limit.epsilon, "delta": limit.delta}}),
            "bound": loss.bound / NANO,
            "epsilon_delta": {"epsilon": loss.epsilon_at_delta(1, policy.delta), "delta": policy.delta},
        }
        | _with_delta(lambda each: each.delta, policy),
        "days": days,
        "over_days": {
            "bound": loss.over_days(days, policy.total_limit_nano) / NANO,
            "epsilon_delta": {"epsilon": _composed(policy, loss, days), "delta": delta_over(policy, loss, days)},
        }
        | _with_delta(lambda each: loss.charged(days) * each.delta, policy),
        "ledger": None
        if isinstance(ledger, str)
        else {
            "days": len(ledger[-days:]),
            "spent": lost_over(policy, [_record(day) for day in ledger[-days:]]),
            "most": max((_record(day).epsilon_user_day for day in ledger), default=0.0),
        },
    }


def _hat(policy: Policy, loss: DayLoss) -> dict[str, Any]:
    """Return the cost of a HAT. A tracker's releases have none of their own: then only that of the queries, if any.

    A running sum has one for the whole horizon, none for a HAT.
    """
    if policy.method.has_horizons:
        return {}
    costs = {"epsilon": loss.epsilon / NANO} if loss.epsilon else {}
    if _has_hats(policy):
        costs["with_queries"] = loss.per_hat / NANO
    return {"hat": costs | _with_delta(delta_per_hat, policy)} if costs else {}


def _has_hats(policy: Policy) -> bool:
    """Return whether HATs have a cost of their own."""
    return policy.epsilon_nano > 0 or bool(policy.queries)


def _with_delta(delta: Callable[[Policy], float], policy: Policy) -> dict[str, float]:
    """Return the delta of a policy with (epsilon, delta) guarantees, nothing for pure epsilon."""
    return {} if policy.is_pure else {"delta": delta(policy)}


def _sums(policy: Policy, loss: DayLoss) -> Paragraph:
    keys = policy.method
    if isinstance(keys, TrackerKeys):
        rows = [("all queries of the tracker", "", eps(keys.daily_limit))]
    else:
        rows = [
            (f"{loss.most_hats} HATs, each released once", f"{loss.most_hats} x {eps(loss.epsilon)}", eps(loss.hats))
        ]
    rows += [
        (
            f"query {query.name}, over {query.days} day{'s' if query.days > 1 else ''}",
            f"{loss.most_hats} x {eps(query.epsilon_nano)}",
            eps(loss.queries[query.name].amount),
        )
        for query in policy.queries
    ]
    rows.append(("together", "", eps(loss.hats + loss.reserved)))
    composed = policy.composed_limit
    how = "" if composed is None else f"{composed.releases} x {eps(loss.epsilon)}"
    rows.append(("allowed (daily_limit)", how, eps(loss.limit)))
    rows.append(("so one bus's day loses at most", "", eps(loss.bound)))
    text = "A HAT is one hexagon in one timeslot of one day."
    if isinstance(keys, TrackerKeys):
        text += (
            " A bus pays for its own part in each query of the tracker. Once it has paid"
            f" {eps(keys.daily_limit)} on one day, no query uses its readings, so this limit always holds."
        )
    else:
        text += (
            f" A bus is counted in at most {loss.most_hats} of them a day; further ones are left out, so this limit"
            " always holds."
        )
    if policy.queries:
        text += (
            " A query reads every HAT on each of its days, so each of these days is charged for all HATs, in full,"
            " before its first release."
        )
    if (selection := policy.selection_cost) is not None:
        text += (
            f" The list of cells was selected with noise: this has cost {eps(selection.epsilon_nano)} on each day from"
            f" {selection.first} to {selection.last}, in addition to the releases of these days."
        )
    text += " The loss is measured in epsilon."
    if composed is None:
        text += (
            " Other policies on the same telemetry add to it; all policies together stay within"
            f" {eps(loss.limit)} a day."
        )
    else:
        text += (
            f" The limit is given as (epsilon, delta) = ({composed.epsilon:g}, {composed.delta:g}): {composed.releases}"
            f" HATs come to at most that, so {eps(loss.limit)} is allowed as a plain sum. No other policy may share the"
            " telemetry."
        )
    if not policy.is_pure:
        text += (
            f" The noise is Gaussian, so each HAT's {eps(loss.epsilon)} has its own delta, {delta_per_hat(policy):.3g}:"
            f" the loss of a day holds with delta = {policy.delta:g}, and the deltas of other such policies add to it."
        )
    return Paragraph(f"The most that one bus's day can lose under policy {policy.name}", text, tuple(rows))


def _meaning(policy: Policy, loss: DayLoss) -> str:
    hat, day = loss.per_hat / NANO, loss.bound / NANO
    differ = (
        "whether one bus was there on one day"
        if policy.relation is Relation.ADD_REMOVE
        else f"{hidden_values(policy, 'one bus')} on one day"
    )
    sources = "its release and the queries that read it" if policy.queries else "its release"
    exception = "" if policy.is_pure else f", but for a probability of {policy.delta:g} for the whole day (delta)"
    text = (
        f"Compare two cities that differ only in {differ}. Every published result is at most e^epsilon times as likely"
        f" in one as in the other{exception}."
    )
    if loss.epsilon:
        text += (
            f" For one HAT, {sources}, that is e^{eps(loss.per_hat)}, a factor of"
            f" {factor(hat)}: an observer for whom a guess about the bus in that HAT was 50 % likely can become at most"
            f" {certainty(hat)} sure of it."
        )
    text += f" For the whole day it is e^{eps(loss.bound)}, a factor of {factor(day)}"
    if day <= _STRONG:
        return f"{text}: at most {certainty(day)} sure of anything about the bus's day. That is strong protection."
    if day <= _WEAK:
        return (
            f"{text}: at most {certainty(day)} sure of anything about the bus's day. That still excludes something,"
            " but it is not strong protection."
        )
    text += ". A factor of that size excludes nothing: for the day as a whole this bound gives no protection by itself."
    if hat > _WEAK or not loss.epsilon:
        return f"{text} The bound for a single HAT is no better: this policy hides hardly anything."
    few = min(_EXAMPLE_HATS, loss.most_hats)
    return (
        f"{text} The protection comes from the bound for a single HAT, and a bus in fewer HATs loses less: one in {few}"
        f" loses {eps(min(few * loss.per_hat, loss.bound))}. A fact that shows in a single HAT is protected by"
        " that bound; one that shows in many HATs at once, such as that a bus went fast all day, may not be hidden at"
        " all."
    )


def _over(policy: Policy, loss: DayLoss, days: int) -> str:
    day = _composed_day(policy, loss)
    if days == 1:
        return day or f"A day loses at most {eps(loss.bound)}."
    most, total = loss.over_days(days, policy.total_limit_nano), policy.total_limit_nano
    if total is None:
        text = (
            "The guarantee is for one day: each day of a bus is protected separately, and losses add up."
            f" Over {days} days the same bus can lose {days} x {eps(loss.bound)} = {eps(most)}, and more on every"
            " further day."
        )
        if not policy.is_pure:
            text += f" The deltas add up too: {days} x {policy.delta:g}."
    else:
        text = (
            f"The guarantee is for all time: all days of a bus together lose at most {eps(total)} (total_limit), then"
            f" nothing more is released. {days} days can lose {eps(most)}."
        )
    composed = _composed(policy, loss, days)
    if not _gains(policy, composed, most):
        return " ".join(filter(None, (text, day)))
    delta = "" if day else f", but for a probability of about delta = {policy.delta:g}"
    return " ".join(filter(None, (text, day, f"Over {days} days that is {composed:.4g}{delta}.")))


def _composed_day(policy: Policy, loss: DayLoss) -> str:
    """Return the sentence about a day's composed loss; an empty text if composition gains nothing."""
    composed = loss.epsilon_at_delta(1, policy.delta)
    if not _gains(policy, composed, loss.bound):
        return ""
    text = (
        f"Composed as (epsilon, delta), a day loses at most {composed:.4g}, but for a probability of about delta ="
        f" {policy.delta:g} that it loses more."
    )
    if loss.split is None:
        return text
    return (
        f"{text} That counts on noise of {2**loss.split.fineness} grid steps or more, which "
        + (
            "all noise of this policy is"
            if policy.composed_limit is not None
            else "only a crowd in one HAT makes narrower"
        )
        + "; hats.budget has the figure of the noise that was drawn."
    )


def _gains(policy: Policy, composed: float, plain: int) -> bool:
    """Return whether composition shows less than the plain sum (1e-9). A Gaussian policy always has its delta."""
    return not policy.is_pure or f"{composed:.4g}" != f"{plain / NANO:.4g}"


def _hidden(policy: Policy) -> str:
    if policy.relation is Relation.ADD_REMOVE:
        went = "how fast it went" if policy.value_name is None else f"the {policy.value_name} in each of them"
        text = (
            "Hidden is whether a bus was there at all that day, where and when, how many readings it sent and"
            f" {went}. Public are the policy and its list of cells. How one bus can shift the time at which a"
            " release is sent is not covered (docs/privacy.md)."
        )
    else:
        also = ["that it was there", "in which hexagons and hours", "how many readings it sent"]
        if policy.drop_zero:
            also.append("that a reading was exactly 0")
        if policy.reject_above is not None:
            also.append(f"that one was broken or above {policy.reject_above / 1000:g} {policy.released_value.unit}")
        if len(policy.released_values) > 1 or policy.released_value.missing:
            also.append("which of its readings lack a value")
        text = (
            f"Hidden is {hidden_values(policy, 'a bus')}. Not hidden is {', '.join(also[:-1])}, and {also[-1]}:"
            " relation replace treats all of that as public. To hide it too, use add_remove."
        )
    text += " A bus means one id: a bus with several ids counts as several buses, and each of them can lose this much"
    if policy.method.has_horizons:
        return f"{text}; a bus has a new pseudonym in each horizon."
    return f"{text}." if policy.unit == "user" else f"{text}; a bus that drives past midnight counts as two days."


def _in_both_groups(policy: Policy, loss: DayLoss) -> str:
    """Return the sentence on a bus that is central and local; an empty text if no mean has both groups."""
    if not (isinstance(policy.method, HybridKeys) and policy.method.use.central and policy.method.use.local):
        return ""
    return (
        " That a bus sends either readings or reports is assumed and cannot be checked: one that sends both counts as"
        f" two buses, and its day can lose 2 x {eps(loss.bound)} = {eps(2 * loss.bound)}."
    )


def _spent(policy: Policy, days: int, ledger: Sequence[dict[str, Any]] | str) -> str:
    if isinstance(ledger, str):
        unknown = f"The spent budget is not known here: {ledger}. Of a file: --ledger FILE."
        return f"All figures above follow from the policy. {unknown}"
    if not ledger:
        return "All figures above follow from the policy. According to the ledger, nothing has been released yet."
    newest = [_record(day) for day in ledger[-days:]]
    costliest = max(newest, key=lambda record: record.epsilon_user_day)
    number = f"{len(newest)} day{'s' if len(newest) > 1 else ''}"
    text = (
        "All figures above follow from the policy; the following are from the ledger, for all policies of the telemetry"
        f" topic. Over its newest {number}, {newest[0].date} to {newest[-1].date}, a bus"
        f" that was there on all of them has lost at most {lost_over(policy, newest):g}; on the"
        f" costliest day, {costliest.date}, {costliest.epsilon_user_day:g}, or"
        f" {costliest.epsilon_delta.epsilon:.4g} as (epsilon, delta) with delta {costliest.epsilon_delta.delta:g}."
    )
    last = newest[-1]
    if last.total is not None and last.total_limit is not None:
        text += f" All days together: {last.total:g} of {last.total_limit:g}."
    return text


def _composed(policy: Policy, loss: DayLoss, days: int) -> float:
    composed = loss.epsilon_at_delta(days, policy.delta)
    return min(composed, loss.over_days(days, policy.total_limit_nano) / NANO) if policy.is_pure else composed


def _record(day: dict[str, Any]) -> BudgetRecord:
    return msgspec.convert(day, BudgetRecord)
