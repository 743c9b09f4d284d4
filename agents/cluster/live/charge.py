"""Charge the trusted users of a clustering before anything is drawn: in Redis and on hats.budget, or in a file."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.clock import monotonic_s
from hatcast.agents.cluster.live.state import ClusteringPlan
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import AIOKafkaProducer, KafkaError, idempotent_producer
from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.registry_checks import check_limits
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.recordings.pinned import Read
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import connect_redis_async, redis_error
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.policy_state import ClusteringStore
from hatcast.agents.release.messages import announce_days
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger.rejections import DaySealed, Exhausted, Replaced, Unrecovered
from hatcast.stream.readings.formats import Format, FormatChoice
from hatcast.stream.units import nano_ceil

_PATIENCE_S: Final = 60.0  # for a recovery in progress to end
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class RecordedUsers:
    """Trusted users of a clustering: in recordings, which a ledger file charges."""

    files: Sequence[Path]
    feed: Format  # format of the files
    choice: FormatChoice  # the options that chose it
    ledger: Path


def charge_in_file(users: RecordedUsers, settings: Settings, plan: ClusteringPlan) -> None:
    """Charge the date in a ledger file, once. Raises HatcastError if it is full or the file is not usable.

    So it does if the ledger's readings, or these contents, were read in another way.
    """
    policy, chosen = settings.policy, plan.chosen
    for file in users.files:
        if not file.is_file():
            raise HatcastError(f"{file} is no file, and a clustering that goes on reads it again: write it to a file")
    with (
        open_ledger(users.ledger, policy, settings.user_key) as ledger,
        open_recording(users.files, users.feed) as recording,
    ):
        read = Read.of(users.choice, recording.contents(), settings)
        ledger.readings.check(read)
        if ledger.until is not None and chosen.date >= ledger.until:
            raise _replaced(chosen.date)
        if not ledger.reserve_clustering(plan.query, chosen.date, nano_ceil(chosen.epsilon)):
            raise _exhausted(plan)
        ledger.pin_readings(read)


def charge_in_redis(settings: Settings, plan: ClusteringPlan) -> None:
    """Charge the date in the ledger of the workers, and announce it on hats.budget. Raises HatcastError."""
    asyncio.run(_charge(settings, plan))


async def _charge(settings: Settings, plan: ClusteringPlan) -> None:
    redis = await connect_redis_async(settings)
    check_limits(await Registry(settings).read(), settings.policy.name, settings.policy.canonical)
    producer = idempotent_producer(aiokafka_options(settings))
    try:
        await producer.start()
        await _reserve(settings, plan, redis, producer)
    except RedisError as error:
        raise redis_error(settings, error) from None
    except KafkaError as error:
        raise HatcastError(
            f"Kafka did not take the budget record ({type(error).__name__}): start again with the same --state"
        ) from None
    finally:
        await producer.stop()
        await redis.aclose()


async def _reserve(settings: Settings, plan: ClusteringPlan, redis: AnyRedis, producer: AIOKafkaProducer) -> None:
    """Reserve, announce, and confirm under the same recovery.

    A recovery that began before the announcement does not read it, and may drop the reservation. It changes the token,
    so the confirmation does not hold and all of it is repeated.
    """
    policy, chosen, domain = settings.policy, plan.chosen, settings.topics.telemetry
    store, ledger = ClusteringStore(redis, domain, policy), LedgerStore(redis, domain, policy)
    if await store.policy_id() != policy.policy_id:
        raise HatcastError(
            f"no worker has started policy {policy.name!r} with these settings: start one, so that its ledger is there"
        )
    deadline_s = monotonic_s() + _PATIENCE_S
    cost = nano_ceil(chosen.epsilon)
    while True:
        try:
            first = await store.reserve(plan.query, chosen.date, cost)
            await announce_days(settings, ledger, producer, [chosen.date])
            second = await store.reserve(plan.query, chosen.date, cost)
        except Exhausted:
            raise _exhausted(plan) from None
        except DaySealed:
            raise HatcastError(
                f"{chosen.date} is sealed, so nothing can be charged to it any more: begin a clustering before its day"
                " is over"
            ) from None
        except Replaced:
            raise _replaced(chosen.date) from None
        except Unrecovered:
            if monotonic_s() > deadline_s:
                raise HatcastError(
                    "the ledger in Redis is not recovered yet: start a worker, which recovers it, and try again"
                ) from None
            await asyncio.sleep(_PAUSE_S)
            continue
        if not second.new and second.token == first.token:
            return


def _exhausted(plan: ClusteringPlan) -> HatcastError:
    return HatcastError(
        f"{plan.chosen.date} has no room for epsilon {plan.chosen.epsilon:g} beside its releases, which `hatcast budget"
        " show` lists: use a smaller --epsilon and another --state"
    )


def _replaced(date: str) -> HatcastError:
    return HatcastError(f"{date} belongs to the next policy: name its configuration with --config")
