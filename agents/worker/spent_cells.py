"""Charge the cost of a private list of cells before anything is released, and announce it.    [decisions/0015]

Selecting the list has read its days whether or not they have releases, so each day is charged when the policy is first
used. `hats.budget` then has a record of each day, from which a Redis that lost the charges is restored.
"""

import asyncio
from collections.abc import Sequence

import structlog
from aiokafka import AIOKafkaProducer

from hatcast.agents.config.settings import Settings
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.policy_state import SpentStore
from hatcast.agents.release.budget_records import announce_days

log = structlog.get_logger()


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
            await announce_days(self._settings, self._ledger, self._producer, dates)
            announced = await self._store.confirm()
