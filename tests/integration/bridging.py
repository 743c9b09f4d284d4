"""Live bridges in a test's own loop, and what they have sent."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from hatcast.agents.clock import cancel_all
from hatcast.agents.sources.connection import LiveSource
from hatcast.agents.sources.live import LiveOptions, LiveSummary, run_live
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.readings.vehicles import by_murmur2
from tests.integration.harness import Pipeline
from tests.services import Received
from tests.services.kafka_server import PARTITIONS

SECONDS: Final = 60.0
BASE_MS: Final = 1_795_000_000_000
Sent = tuple[str, int | str]
"""(vehicle, time) of a reading."""


def body(number: int) -> bytes:
    """A canonical record, another one for each number."""
    vehicle, time = sent(number)
    return json.dumps({"vehicle": vehicle, "time": time, "lat": 21.2, "lon": 72.8, "speed": 20.5}).encode()


def sent(number: int) -> Sent:
    """What Kafka has to have of it."""
    return f"bus-{number % 7}", BASE_MS + number * 1_000


def readings(received: list[Received]) -> Counter[Sent]:
    """How often each reading is there. Each has to stand where its vehicle belongs."""
    found: Counter[Sent] = Counter()
    for record in received:
        if record.key is not None:
            value = json.loads(record.value or b"")
            assert record.key.decode() == value["vehicle"]
            assert record.partition == by_murmur2(record.key, PARTITIONS)
            found[value["vehicle"], value["time"]] += 1
    return found


@asynccontextmanager
async def bridge(
    pipeline: Pipeline, form: str, connect: Callable[[], LiveSource], **options: Any
) -> AsyncIterator["asyncio.Task[LiveSummary]"]:
    """A running bridge; if it still runs at the end of the block it is broken off, as by kill -9."""
    choice = FormatChoice(form, options.pop("columns", None), options.pop("derive", None))
    task = asyncio.create_task(run_live(pipeline.settings, LiveOptions(choice, **options), connect))
    try:
        yield task
    finally:
        await cancel_all([task])
        with suppress(asyncio.CancelledError):
            await task


async def stopped(task: "asyncio.Task[LiveSummary]") -> LiveSummary:
    """Ask a bridge that runs to end, as a supervisor does; what it did."""
    os.kill(os.getpid(), signal.SIGTERM)
    return await asyncio.wait_for(task, SECONDS)


async def arrived(
    pipeline: Pipeline, task: "asyncio.Task[LiveSummary]", enough: Callable[[Counter[Sent]], bool]
) -> Counter[Sent]:
    """The readings on the topic, once there are enough."""
    async with asyncio.timeout(SECONDS):
        while True:
            found: Counter[Sent] = Counter()
            if pipeline.name in await asyncio.to_thread(pipeline.kafka.topics):
                found = readings(await asyncio.to_thread(pipeline.kafka.read, pipeline.name))
            if enough(found):
                return found
            if task.done():
                await task
            await asyncio.sleep(0.05)


async def until(true: Callable[[], bool], task: "asyncio.Task[LiveSummary] | None" = None) -> None:
    """Wait until something is so; what ends the bridge meanwhile is raised."""
    async with asyncio.timeout(SECONDS):
        while not true():
            if task is not None and task.done():
                await task
            await asyncio.sleep(0.02)
