"""Budget records: one for each policy and day, each with a greater `seq` than the last."""

from typing import Final

from hatcast.agents.config.topics_table import TopicsTable
from hatcast.agents.kafka.cloud_events import cloud_event
from hatcast.agents.kafka.producers import Message
from hatcast.stream.accounting.ledger import DaySummary
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.hats import Spent, budget_record

BUDGET_PARTITION: Final = 0  # the topic has one


def budget_message(
    topics: TopicsTable,
    policy: Policy,
    date: str,
    summary: DaySummary,
    timestamp_ms: int | None = None,
    spent: Spent | None = None,
) -> Message:
    """Return the budget record of a day.

    timestamp_ms   its Kafka timestamp; None: when it is sent
    spent          by the users of a tracker; None: not known
    """
    key = f"{policy.name}/{date}"
    return Message(
        topic=topics.budget,
        partition=BUDGET_PARTITION,
        key=key.encode(),
        value=budget_record(policy, date, summary, spent),
        headers=cloud_event("budget", f"{key}/{summary.sequence}", topics.telemetry),
        timestamp_ms=timestamp_ms,
    )
