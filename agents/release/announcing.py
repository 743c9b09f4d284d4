"""Send the budget records of days outside of transactions: those with charges, but without a release."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaProducer

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import Message
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.release.budget_records import budget_message
from hatcast.stream.ledger.summary import DaySummary

_SENDS: Final = 100  # concurrent


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
            messages = await asyncio.to_thread(_messages, settings, days)
            sent = [
                await producer.send(m.topic, m.value, key=m.key, partition=m.partition, headers=m.headers)
                for m in messages
            ]
            await asyncio.gather(*sent)
            waiting = [date for date, day in days.items() if (await ledger.summary(date)).sequence != day.sequence]


def _messages(settings: Settings, days: Mapping[str, DaySummary]) -> list[Message]:
    return [budget_message(settings.topics, settings.policy, date, day) for date, day in days.items()]
