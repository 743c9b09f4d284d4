"""Compare the topics with what hatcast's guarantees need while a worker runs: part `topics` of `/readyz`.

A start compares them too, and rejects what breaks a promise. A running worker goes on: what it can do about a changed
setting is to say so before records are lost by it.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from hatcast.agents.clock import monotonic_s, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.kafka.topic_rules import output_topics
from hatcast.agents.kafka.topics import broken_topics
from hatcast.agents.monitoring.server import READY
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

LOOK_S: Final = 5.0  # between looks at whether all topics exist: one metadata request, 0.5 ms of CPU
COMPARE_S: Final = 180.0  # between comparisons of their settings, each with a connection of its own
_FIX: Final = "see HatcastTopicsWrong in docs/runbook.md"


class TopicWatch:
    """Watches the topics of one worker."""

    def __init__(self, settings: Settings, partitions: int, ids: TopicIds) -> None:
        """Args: `partitions`, of telemetry at the first start."""
        self._settings = settings
        self._partitions = partitions
        self._ids = ids
        self._names = [settings.topics.telemetry, *(each.name for each in output_topics(settings, partitions))]
        self._first: Mapping[str, str | None] | None = None  # the ids at the first look
        self._compared_s: float | None = None
        self._wrong: dict[str, str] = {}  # what is wrong with existence or ids, then with settings: text -> fix
        self._settings_wrong: dict[str, str] = {}

    def state(self) -> str:
        """Return `READY`, or the topics and settings that are wrong, with their values."""
        wrong = [*self._wrong, *self._settings_wrong]
        return READY if not wrong else wrong[0] + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")

    async def run(self, stopping: asyncio.Event) -> None:
        """Look at once, and then regularly until `stopping` is set.

        While Kafka does not answer, the last result stays; the part `group` of readiness reports that.
        """
        await self._look_and_tell()
        while await pause(LOOK_S, stopping):
            await self._look_and_tell()

    async def _look_and_tell(self) -> None:
        known = {**self._wrong, **self._settings_wrong}
        try:
            await self._look()
        except (KafkaError, HatcastError):
            return
        now = {**self._wrong, **self._settings_wrong}
        for text in now.keys() - known.keys():
            log.warning("topic breaks a promise", problem=text, fix=now[text])
        if known and not now:
            log.info("topics are as expected again")

    async def _look(self) -> None:
        try:
            ids = await self._ids.read(self._names)
        except UnknownTopicOrPartitionError as error:
            self._wrong = {f"missing: topic {error.args[0]}": _FIX}
            return
        first = self._first = self._first or ids
        self._wrong = {
            f"topic {name} was deleted and created again": _FIX for name in self._names if first[name] != ids[name]
        }
        if self._compared_s is None or monotonic_s() - self._compared_s >= COMPARE_S:
            self._compared_s = monotonic_s()
            found = await asyncio.to_thread(broken_topics, self._settings, self._partitions)
            self._settings_wrong = {each.difference: each.fix for each in found}
