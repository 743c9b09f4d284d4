"""Book what a private list of cells has cost before anything is released, and announce it.    [decisions/0015]

The list has read its days whether or not anything is released of them, so each of them is booked when the policy is
first used. `hats.budget` then has a record of each day, from which a Redis that lost the charges is restored.
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

_SENDS: Final = 100  # at once


class SpentCells:
    """The cost of one policy's private list of cells; without such a list nothing is done."""

    def __init__(self, settings: Settings, store: SpentStore, ledger: LedgerStore, producer: AIOKafkaProducer) -> None:
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._producer = producer
        self._alone = asyncio.Lock()  # each partition that is loaded asks

    async def settle(self) -> None:
        """Book the cost on all days where it is missing, and announce all days unless that is done.

        Errors of redis-py and aiokafka pass through: then call it again.
        """
        if self._store.dates:
            async with self._alone:
                await self._settle(self._store.dates)

    async def _settle(self, dates: Sequence[str]) -> None:
        booked = await self._store.book()
        if booked:
            log.info("booked the cost of the private list of cells", days=len(booked))
        elif await self._store.is_announced():
            return
        announced = False
        while not announced:
            for at in range(0, len(dates), _SENDS):
                await self._announce(dates[at : at + _SENDS])
            announced = await self._store.confirm()

    async def _announce(self, dates: Sequence[str]) -> None:
        """Send the budget records of these days, and again if a day changes meanwhile: its newest record comes last."""
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
