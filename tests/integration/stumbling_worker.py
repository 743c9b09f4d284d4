"""A worker that meets errors whose texts hold a record, and mutants that let such texts, or true sums, into its log.

    pipeline.worker(wrap=partial(stumble, "fold", "product"))

The product has no switch for that: its steps are wrapped from outside.
"""

import asyncio
import gc
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

import hatcast.agents.errors.unexpected
import hatcast.agents.monitoring.failures
import hatcast.agents.worker.worker
from hatcast.agents.errors.causes import REDIS, Cause
from hatcast.agents.errors.unexpected import ErrorTextFilter
from hatcast.agents.kafka.batches import RecordBatch
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.partition_state import PartitionStore
from hatcast.agents.redis.proposals import Proposal
from hatcast.agents.release.hats import DueRelease, HatPath
from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.worker import Worker
from hatcast.stream.readings.pseudonyms import KEY_BYTES, Pseudonyms
from hatcast.stream.release.hats import HatChunks, users_of
from tests.integration.readings import HOUR_MS, NOON_MS, Sample

KEY: Final = bytes(range(KEY_BYTES))
DATE: Final = "2022-01-02"
BUSES: Final = 12
FATAL_SLOT: Final = f"{DATE}/14:00"
FATAL_RECORD: Final = b'{"fatal": true}'
SAMPLES: Final = [
    # Above 65.535 km/h, so that no port of a log line has the same digits as a reading in milli-units.
    Sample(f"PLATE0A7X{bus:02}", NOON_MS + hour * HOUR_MS + bus * 1_000, hour, (70_123 + 1_037 * bus + hour) / 1000)
    for hour in range(3)
    for bus in range(BUSES)
]
TEXT: Final = (
    f"cannot take {SAMPLES[0].value.decode()} of user {Pseudonyms(KEY).of(SAMPLES[0].vehicle, DATE).hex()}"
    f" in a sum of {sum(round(each.speed * 1000) for each in SAMPLES[:BUSES])}"
)

log = structlog.get_logger()


def stumble(fatal: str, mutant: str) -> None:
    """Errors wherever a worker can meet them; it bears all but the last.

    fatal   `fold`: at a record FATAL_RECORD, in Faust's agent. `draw`: at FATAL_SLOT, in a thread of the release loop
    """
    # The commands that fail are those of redis-py's pipelines, whose errors show the command.
    _fail_first(PartitionStore, "checkpoint", RedisConnectionError(TEXT))
    _fail_first(PartitionStore, "offsets", ResponseError(f"Command # 1 (HGET {TEXT}) of pipeline caused error: ERR"))
    _fail_first(LedgerStore, "commit", ResponseError(f"ERR {TEXT} script: f00, on @user_script:12."))
    _fail_first(TransactionalProducers, "publish", KafkaError(TEXT))
    _fail_in_the_background()
    if fatal == "fold":
        _fail_at_a_record()
    else:
        _fail_at_a_slot()
    MUTANTS[mutant]()


def _fail_first(owner: type, name: str, error: Exception) -> None:
    """The first call of a step raises an error; the others do as ever."""
    wrapped: Callable[..., Awaitable[Any]] = getattr(owner, name)
    left = [error]

    async def failing(*arguments: Any, **keywords: Any) -> Any:
        if left:
            raise left.pop()
        return await wrapped(*arguments, **keywords)

    setattr(owner, name, failing)


def _fail_in_the_background() -> None:
    """Once the worker has joined: a task, a callback, a thread, a destructor, and what libraries and we log."""
    joined = Worker._join

    async def join(self: Worker, *arguments: Any) -> None:
        await joined(self, *arguments)

        async def forgotten() -> None:
            raise ValueError(TEXT)

        task = asyncio.create_task(forgotten())
        await asyncio.wait([task])
        del task
        gc.collect()  # asyncio reports it when it is collected
        asyncio.get_running_loop().call_soon(_raise)
        thread = threading.Thread(target=_raise)
        thread.start()
        await asyncio.to_thread(thread.join)
        _Broken()
        library = logging.getLogger("aiokafka.consumer.fetcher")
        try:
            _raise()
        except ValueError as error:
            library.error("Failed fetch messages from %s: %s", 1, error)
            library.exception("Unexpected error in fetcher routine")
            library.warning(f"exception performing seek when flow not active {error}")
            library.error("Could not read %d", error)
            log.exception("an error of ours")
            log.warning("another error of ours", error=error)
        log.info("stumbled")

    Worker._join = join  # type: ignore[method-assign,assignment]  # the worker is wrapped from outside


class _Broken:
    def __del__(self) -> None:
        raise ValueError(TEXT)


def _raise() -> None:
    raise ValueError(TEXT)


def _fail_at_a_record() -> None:
    fold = Ingest.fold

    async def failing(self: Ingest, batch: RecordBatch) -> None:
        if FATAL_RECORD in batch.values:
            raise ValueError(TEXT)
        await fold(self, batch)

    Ingest.fold = failing  # type: ignore[method-assign]


def _fail_at_a_slot() -> None:
    draw = HatPath._draw

    def failing(self: HatPath, batch: Sequence[DueRelease], loaded: Sequence[HatChunks]) -> list[Proposal]:
        if any(due.hat.slot == FATAL_SLOT for due in batch):
            raise KeyError(TEXT)
        return draw(self, batch, loaded)

    HatPath._draw = failing  # type: ignore[method-assign]


# Mutants.


def product() -> None:
    """Nothing is changed."""


def true_sums_logged() -> None:
    """A debug line of the release loop shows the sums that it was to hide."""
    draw = HatPath._draw

    def telling(self: HatPath, batch: Sequence[DueRelease], loaded: Sequence[HatChunks]) -> list[Proposal]:
        log.debug("drawn", sums=[int(users_of(each.readings).sums.sum()) for each in loaded])
        return draw(self, batch, loaded)

    HatPath._draw = telling  # type: ignore[method-assign]


def cause_from_text() -> None:
    """What failed is told by the error's text."""
    hatcast.agents.monitoring.failures.cause_of = lambda error: Cause(REDIS, str(error))  # type: ignore[attr-defined]  # it is imported there


def texts_of_tracebacks() -> None:
    """Tracebacks end with the error's text, as Python's do."""
    hatcast.agents.errors.unexpected.shows_texts = lambda: True


def texts_of_libraries() -> None:
    """What libraries log is written as it is."""
    ErrorTextFilter.filter = lambda *_: True  # type: ignore[method-assign]


def text_in_the_last_line() -> None:
    """A worker that fails says why."""
    hatcast.agents.worker.worker.brief = str  # type: ignore[attr-defined,assignment]  # it is imported there


MUTANTS: Final = MappingProxyType(
    {
        each.__name__: each
        for each in (
            product,
            true_sums_logged,
            cause_from_text,
            texts_of_tracebacks,
            texts_of_libraries,
            text_in_the_last_line,
        )
    }
)
