"""Drain: close the open slots of a policy, with the partitions of its first start, and end.    [decisions/0008]

A telemetry topic that has grown sends vehicles to other partitions, so no worker of the policy starts any more. A drain
reads only the partitions of the first start. Rule 10 of the fold lets each vehicle in through one of these, so what it
counts is what the policy would have counted if the other readings had not been sent.
"""

import asyncio
from typing import Final

import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import KafkaError, UnknownTopicOrPartitionError
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topics import ensure_topics, telemetry_partitions, topic_range
from hatcast.agents.redis.identity import partition_count_error
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.release.queries import count_unanswered
from hatcast.agents.worker.source import Connections, Drain, repeat
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar

log = structlog.get_logger()

ROUND_S: Final = 1.0


def plan_drain(settings: Settings, *, accept_gap: bool) -> tuple[int, Drain]:
    """Return the number of telemetry partitions at the policy's first start, and the limits of a drain.

    Raises HatcastError if the policy was never started, a topic breaks its rules, or added partitions have records and
    `accept_gap` is False.
    """
    name, telemetry = settings.policy.name, settings.topics.telemetry
    now = telemetry_partitions(settings)  # before the registry: it waits for a broker, and names it
    partitions = asyncio.run(_started_with(settings))
    if partitions is None or now is None:
        raise HatcastError(f"policy {name!r} was never started on telemetry {telemetry!r}: there is nothing to drain")
    if now < partitions:
        raise partition_count_error(name, partitions, now)
    ensure_topics(settings, partitions)
    ranges = topic_range(settings, telemetry)
    added = range(partitions, len(ranges))
    has_used_added = any(ranges[partition][1] for partition in added)
    if has_used_added and not accept_gap:
        raise HatcastError(
            f"feeds have used partitions {added[0]} to {added[-1]} of {telemetry}, which policy {name!r} does not"
            " count: drain with --accept-gap, which publishes what is unreleased of the days until now as incomplete"
        )
    ends = {partition: ranges[partition][1] for partition in range(partitions)}
    return partitions, Drain(ends, now_ms() if has_used_added else None)


def check_not_grown(settings: Settings) -> None:
    """Raise HatcastError if the telemetry topic has other partitions than at the policy's first start.

    Before the output topics are checked, whose numbers of partitions would be called wrong instead.
    """
    now = telemetry_partitions(settings)
    started = asyncio.run(_started_with(settings))
    if now is not None and started is not None and now != started:
        raise partition_count_error(settings.policy.name, started, now)


async def _started_with(settings: Settings) -> int | None:
    try:
        record = (await Registry(settings).read()).policies.get(settings.policy.name)
    except UnknownTopicOrPartitionError:
        return None
    except KafkaError as error:
        raise HatcastError(f"the registry was not read ({type(error).__name__}): check that all brokers run") from None
    return None if record is None else record.partitions


class Drainer:
    """Ends a worker once its policy has nothing open.

    ended   set once everything is folded, closed and published
    """

    def __init__(self, drain: Drain, connections: Connections, releases: ReleaseLoop, ended: asyncio.Event) -> None:
        self.ended = ended
        self._drain = drain
        self._policy = connections.settings.policy
        self._store = connections.store
        self._ledger = connections.ledger
        self._retained = RetainedStore(connections.redis, self._policy.name, connections.partitions)
        self._releases = releases
        self._open: set[str] | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Check once a second until `stopping` or `ended` is set."""
        if await repeat("drain", "check whether the policy is drained", self.is_done, ROUND_S, stopping):
            log.info("drained", policy=self._policy.name)
            self.ended.set()

    async def is_done(self) -> bool:
        """Return True if the log is folded up to the start's ends, nothing is open, and everything is published.

        Folded before and after the look at the rest: a Redis that was emptied in between has nothing open either.
        """
        return await self._is_folded() and await self._is_all_published() and await self._is_folded()

    async def _is_folded(self) -> bool:
        offsets = await self._store.telemetry.offsets()
        is_at_end = all((offset or 0) >= self._drain.ends[partition] for partition, offset in enumerate(offsets))
        return is_at_end and None not in await self._store.watermarks()

    async def _is_all_published(self) -> bool:
        slots = await self._store.open_slots()
        if slots and slots.keys() != self._open:
            self._open = set(slots)
            closes = Calendar(self._policy).local(max(slots.values()) + self._policy.lateness_ms)
            log.info("draining", open_slots=len(slots), last_closes=closes.isoformat(timespec="seconds"))
        if slots or await self._releases.final_slots():
            return False
        if any([await self._ledger.count_unpublished(date) for date in await self._ledger.unsealed_dates()]):
            return False
        return not self._policy.queries or not await count_unanswered(
            self._store, self._retained, self._ledger, self._policy
        )
