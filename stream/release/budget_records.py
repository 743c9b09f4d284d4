"""The records of `hats.budget`: a day's charges, its limit, and their composition."""

from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.placed import JSON, exact_json
from hatcast.stream.release.spending import day_epsilon

Spent = tuple[int, float]
"""What the users of a tracker have paid on a date, 1e-9: the largest and the mean. Functions of public counts."""


def budget_record(policy: Policy, date: str, summary: DaySummary, spent: Spent | None = None) -> bytes:
    """Encode the `hats.budget` record of a day. All of its fields follow from charges, which are public.

    Under `replace` charges reveal which HATs were released; under `add_remove` each listed HAT is charged.
    """
    cost = summary.epsilon_user_day
    limit = min(policy.daily_limit_nano, summary.limit or policy.daily_limit_nano)
    # Future charges of other policies are unknown here, so for a shared day only the limit bounds the cost.
    reserved = sum(query.amount for query in summary.queries.values())
    bound = limit if summary.shared else min(reserved + policy.most_hats * policy.epsilon_nano, limit)
    total, total_limit = summary.total, policy.total_limit_nano
    queries = [
        {"query": name, "epsilon": exact_json(each.epsilon), "places": each.places}
        for name, each in sorted(summary.queries.items())
    ]
    return JSON.encode(
        {
            "policy": policy.name,
            "policy_id": policy.policy_id,
            "date": date,
            "seq": summary.sequence,
            "releases": summary.releases,
            "epsilon_sum": exact_json(summary.epsilon_sum),
            "epsilon_user_day": exact_json(cost),
            "limit": exact_json(limit),
            "day_bound": exact_json(max(bound, cost)),
            "epsilon_delta": {"epsilon": day_epsilon(policy, summary), "delta": policy.delta},
            "max_hats_per_day": policy.max_hats_per_day,
        }
        | ({} if not queries else {"queries": queries})
        | ({} if spent is None else {"spent": {"largest": exact_json(spent[0]), "mean": exact_json(round(spent[1]))}})
        | ({} if policy.replaces is None else {"replaces": policy.replaces, "from": policy.from_date})
        | (
            {}
            if total_limit is None
            else {
                "total": exact_json(total.spent),
                "total_limit": exact_json(min(total_limit, total.limit or total_limit)),
            }
        )
    )
