"""A worker that meets errors whose texts hold a record.

    pipeline.worker(wrap=partial(stumble, text, "fold"))

The product has no switch for that: its steps are wrapped from outside.
"""

import asyncio
import gc
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.release.hats import DueHat, Hats
from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.worker import Worker
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.records.fields import Status
from hatcast.stream.release.hats import HatChunks

FATAL_SLOT: Final = "2022-01-02/14:00"
FATAL_RECORD: Final = b'{"fatal": true}'
# What a log has of these errors: their kinds, causes and places.
SAID: Final = (
    '"operation": "write a checkpoint", "service": "Redis", "cause": "no connection (closed by the server)"',
    '"operation": "read the stored offsets", "service": "Redis", "cause": "it rejected a command (ERR)"',
    '"operation": "commit releases", "service": "Redis", "cause": "a script failed at its line 12: ',
    '"operation": "publish releases", "service": "Kafka", "cause": "KafkaError"',
    "Task exception was never retrieved [",
    "Exception in callback [",
    "a thread ended: ValueError at ",
    "ignored: ValueError at ",
    "Failed fetch messages from 1: ValueError at ",
    "Unexpected error in fetcher routine [",
    "a message of aiokafka.consumer.fetcher, line ",
    '"event": "an error of ours"',
    '"event": "another error of ours"',
)

log = structlog.get_logger()


def stumble(text: str, fatal: str) -> None:
    """Errors wherever a worker can meet them; it bears all but the last.

    text    of all errors
    fatal   `fold`: at a record FATAL_RECORD, in Faust's agent. `draw`: at FATAL_SLOT, in a thread of the release loop
    """
    # The commands that fail are those of redis-py's pipelines, whose errors show the command.
    _fail_first(PartitionStore, "checkpoint", RedisConnectionError(text))
    _fail_first(PartitionStore, "offsets", ResponseError(f"Command # 1 (HGET {text}) of pipeline caused error: ERR"))
    _fail_first(LedgerStore, "commit", ResponseError(f"ERR {text} script: f00, on @user_script:12."))
    _fail_first(TransactionalProducers, "publish", KafkaError(text))
    _fail_in_the_background(text)
    if fatal == "fold":
        _fail_at_a_record(text)
    else:
        _fail_at_a_slot(text)


def _fail_first(owner: type, name: str, error: Exception) -> None:
    """The first call of a step raises an error; the others do as ever."""
    wrapped: Callable[..., Awaitable[Any]] = getattr(owner, name)
    left = [error]

    async def failing(*arguments: Any, **keywords: Any) -> Any:
        if left:
            raise left.pop()
        return await wrapped(*arguments, **keywords)

    setattr(owner, name, failing)


def _fail_in_the_background(text: str) -> None:
    """Once the worker has joined: a task, a callback, a thread, a destructor, and what libraries and we log."""
    joined = Worker._join

    async def join(self: Worker, *arguments: Any) -> None:
        await joined(self, *arguments)

        async def forgotten() -> None:
            raise ValueError(text)

        task = asyncio.create_task(forgotten())
        await asyncio.wait([task])
        del task
        gc.collect()  # asyncio reports it when it is collected
        asyncio.get_running_loop().call_soon(_raise, text)
        thread = threading.Thread(target=_raise, args=(text,))
        thread.start()
        await asyncio.to_thread(thread.join)
        _Broken(text)
        library = logging.getLogger("aiokafka.consumer.fetcher")
        try:
            _raise(text)
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
    def __init__(self, text: str) -> None:
        self._text = text

    def __del__(self) -> None:
        raise ValueError(self._text)


def _raise(text: str) -> None:
    raise ValueError(text)


def _fail_at_a_record(text: str) -> None:
    fold = Ingest.fold

    async def failing(self: Ingest, batch: RecordBatch) -> None:
        if FATAL_RECORD in batch.values:
            raise ValueError(text)
        await fold(self, batch)

    Ingest.fold = failing  # type: ignore[method-assign]


def _fail_at_a_slot(text: str) -> None:
    draw = Hats._draw

    def failing(
        self: Hats, batch: Sequence[DueHat], loaded: Sequence[HatChunks], closed: Status | None
    ) -> Mapping[DueHat, AnyProposal]:
        if any(due.hat.slot == FATAL_SLOT for due in batch):
            raise KeyError(text)
        return draw(self, batch, loaded, closed)

    Hats._draw = failing  # type: ignore[method-assign]
