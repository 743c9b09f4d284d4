"""The budget as it is published: one record a policy and day, each with a greater `seq` than the last.    [design 6]"""

from typing import Final

from agents.publisher import Message, cloud_event
from stream.accounting import DaySummary
from stream.policy import Policy
from stream.release import budget_record

BUDGET_PARTITION: Final = 0  # the topic has one


def budget_message(
    topic: str, policy: Policy, date: str, summary: DaySummary, timestamp_ms: int | None = None
) -> Message:
    """What `hats.budget` is told about a day. timestamp_ms: as Kafka shows it; None: when it is sent."""
    key = f"{policy.name}/{date}"
    return Message(
        topic=topic,
        partition=BUDGET_PARTITION,
        key=key.encode(),
        value=budget_record(policy, date, summary),
        headers=cloud_event(f"{key}/{summary.sequence}", policy.name, "budget"),
        timestamp_ms=timestamp_ms,
    )
