"""Send the releases of a local date again: an output topic was lost.    [docs/runbook.md, A lost output topic]

The producers that own the release partitions send the stored bytes once the ledger is recovered: then no other process
has fenced them, and Redis lacks nothing that the topics still have. No noise is drawn and nothing is charged.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from redis.exceptions import RedisError

from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import cause_of
from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.client import aiokafka_options, broker_name
from hatcast.agents.kafka.groups import count_members
from hatcast.agents.kafka.producers import ProducerGone, TransactionalProducers
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.redis.connection import connect_redis_async, redis_error
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.release.resending import Resender
from hatcast.agents.worker.parts import make_recovery
from hatcast.agents.worker.registration import Registration
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger.rejections import Unrecovered

_PAUSE_S: Final = 1.0  # before the ledger is looked at again, while it cannot be recovered


async def republish(settings: Settings, partitions: int, date: str) -> tuple[int, str]:
    """Send the published releases of a date again; return their number, and the date through which all are sealed.

    Raises HatcastError: workers run, the date is sealed, nothing of it was published, or Kafka or Redis fails.
    """
    try:
        async with AsyncExitStack() as resources:
            return await _republish(settings, partitions, date, resources)
    except KafkaError as error:
        raise HatcastError(
            f"{broker_name(settings)} was lost ({cause_of(error).text}), so not all was sent: republish again"
        ) from None
    except RedisError as error:
        raise redis_error(settings, error) from None


async def _republish(settings: Settings, partitions: int, date: str, resources: AsyncExitStack) -> tuple[int, str]:
    client: dict[str, Any] = aiokafka_options(settings)
    policy, domain, owned = settings.policy, settings.topics.telemetry, frozenset(range(partitions))
    group = f"hatcast-{policy.name}"
    redis = await connect_redis_async(settings)
    resources.push_async_callback(redis.aclose)
    ids = TopicIds(settings)
    await Registration(settings, redis, partitions, await ids.read_at_start(settings.sources)).check()
    ledger = LedgerStore(redis, domain, policy)
    producers = TransactionalProducers(domain, policy.name, client)
    resources.push_async_callback(producers.stop)
    recovery = make_recovery(settings, partitions, redis, ids, producers)
    resender = Resender(settings, ledger, recovery, producers, partitions)
    while True:
        if running := await count_members(group, client):
            raise HatcastError(
                f"workers run and own the producers of the releases ({running} in group {group}): stop all of them,"
                " republish, and start them again"
            )
        await producers.start_missing(owned)  # as a worker's round: a recovery fences our producers too
        if await recovery.ensure(owned):
            sealed = await ledger.sealed_through()
            if date <= sealed:
                raise HatcastError(
                    f"{date} is sealed: its releases are gone with the topic, as are all through {sealed}, since Redis"
                    " has only their summaries."
                    f" {_stored([each for each in await ledger.unsealed_dates() if each > sealed])}"
                )
            # Redis went back, or a recovery, another policy's too, has fenced our producers: all are sent again.
            with suppress(ProducerGone, Unrecovered):
                if sent := await resender.republish(date, owned):
                    return sent, sealed
                raise HatcastError(f"nothing of {date} was published. {_stored(await ledger.unsealed_dates())}")
        await asyncio.sleep(_PAUSE_S)


def _stored(dates: list[str]) -> str:
    return f"Stored are the releases of {', '.join(dates)}" if dates else "No releases are stored"
