"""Messages of stored releases and answers, and of the budget records that are sent with them.

A release's message follows from its record alone, so that it is the same whoever sends it, and however often. Budget
records are one for each policy and day, each with a greater `seq` than the last.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.config.tables import TopicsTable
from hatcast.agents.kafka.aio import AIOKafkaProducer
from hatcast.agents.kafka.cloud_events import cloud_event, release_event
from hatcast.agents.kafka.producers import OutputMessage, send_all
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.reading import instant_ms
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.records.projections import HEAD
from hatcast.stream.release.budget_records import Spent, budget_record

BUDGET_PARTITION: Final = 0  # the topic has one
_SENDS: Final = 100  # concurrent


def release_message(settings: Settings, release_id: str, record: bytes, partitions: int) -> OutputMessage:
    """Return the message of a stored release or answer. Raises msgspec.DecodeError.

    partitions   of the output topics
    """
    topics, head = settings.topics, HEAD.decode(record)
    hidden = settings.policy.relation is Relation.ADD_REMOVE  # then no time but the record's may be published
    return OutputMessage(
        topic=topics.queries if head.is_answer else topics.means,
        partition=by_murmur2(head.cell.encode(), partitions),
        key=release_id.encode(),
        value=record,
        headers=release_event(release_id, topics.telemetry, head),
        timestamp_ms=instant_ms(datetime.fromisoformat(head.released_at)) if hidden else None,
    )


def budget_message(
    topics: TopicsTable,
    policy: Policy,
    date: str,
    summary: DaySummary,
    timestamp_ms: int | None = None,
    spent: Spent | None = None,
) -> OutputMessage:
    """Return the budget record of a day.

    timestamp_ms   its Kafka timestamp; None: when it is sent
    spent          by the users of a tracker; None: not known
    """
    key = f"{policy.name}/{date}"
    return OutputMessage(
        topic=topics.budget,
        partition=BUDGET_PARTITION,
        key=key.encode(),
        value=budget_record(policy, date, summary, spent),
        headers=cloud_event("budget", f"{key}/{summary.sequence}", topics.telemetry),
        timestamp_ms=timestamp_ms,
    )


async def budget_messages(
    settings: Settings,
    ledger: LedgerStore,
    dates: Iterable[str],
    timestamp_ms: int | None,
    spent: Callable[[str], Spent | None],
) -> list[OutputMessage]:
    """Return the budget records of local dates, as the ledger is now. The arguments are those of `budget_message`."""
    messages = []
    for date in dates:
        summary, of_users = await ledger.summary(date), spent(date)
        # In a thread: composing a new number of charges takes up to a second of computing.
        args = settings.topics, settings.policy, date, summary, timestamp_ms, of_users
        messages.append(await asyncio.to_thread(budget_message, *args))
    return messages


async def announce_days(
    settings: Settings, ledger: LedgerStore, producer: AIOKafkaProducer, dates: Sequence[str]
) -> None:
    """Send the budget records of local dates; resend those that changed meanwhile: the newest must be last.

    Errors of redis-py and aiokafka pass through; call it again after one.
    """
    for start in range(0, len(dates), _SENDS):
        waiting = list(dates[start : start + _SENDS])
        while waiting:
            days = {date: await ledger.summary(date) for date in waiting}
            # In a thread: thousands of charges take a tenth of a second to compose.
            of_day = partial(budget_message, settings.topics, settings.policy)
            messages = await asyncio.to_thread(list, map(of_day, days.keys(), days.values()))
            await send_all(producer, messages)
            waiting = [date for date, day in days.items() if (await ledger.summary(date)).sequence != day.sequence]
