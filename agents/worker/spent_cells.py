"""Charge the cost of a private list of cells before anything is released, and announce it.    [decisions/0015]

Selecting the list has read its days whether or not they have releases, so each day is charged when the policy is first
used. `hats.budget` then has a record of each day, from which a Redis that lost the charges is restored.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import Message
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.spent_cells import SpentStore
from hatcast.agents.release.budget_records import budget_message
from hatcast.stream.accounting.ledger import DaySummary

log = structlog.get_logger()

_SENDS: Final = 100  # concurrent


class SpentCells:
    """Cost of one policy's private list of cells. Does nothing without such a list."""

    def __init__(self, settings: Settings, store: SpentStore, ledger: LedgerStore, producer: AIOKafkaProducer) -> None:
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._producer = producer
        self._lock = asyncio.Lock()  # loading partitions call concurrently

    async def charge(self) -> None:
        """Charge all days that are not charged yet, and announce all days unless that is done.

        Errors of redis-py and aiokafka pass through; call it again after one.
        """
        if self._store.dates:
            async with self._lock:
                await self._charge(self._store.dates)

    async def _charge(self, dates: Sequence[str]) -> None:
        charged = await self._store.book()
        if charged:
            log.info("charged the cost of the private list of cells", days=len(charged))
        elif await self._store.is_announced():
            return
        announced = False
        while not announced:
            for start in range(0, len(dates), _SENDS):
                await self._announce(dates[start : start + _SENDS])
            announced = await self._store.confirm()

    async def _announce(self, dates: Sequence[str]) -> None:
        """Send the budget records of these days; resend those that changed meanwhile: the newest must be last."""
        waiting = list(dates)
        while waiting:
            days = {date: await self._ledger.summary(date) for date in waiting}
            # In a thread: composing charges for the first time imports dp-accounting.
            messages = await asyncio.to_thread(self._messages, days)
            sent = [
                await self._producer.send(m.topic, m.value, key=m.key, partition=m.partition, headers=m.headers)
                for m in messages
            ]
            await asyncio.gather(*sent)
            waiting = [
                date for date, day in days.items() if (await self._ledger.summary(date)).sequence != day.sequence
            ]

    def _messages(self, days: Mapping[str, DaySummary]) -> list[Message]:
        topics, policy = self._settings.topics, self._settings.policy
        return [budget_message(topics, policy, date, day) for date, day in days.items()]
