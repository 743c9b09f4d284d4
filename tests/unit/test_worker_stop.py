"""A worker that stops names the loops that it had to cancel, and its steps fit in its time."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hatcast.agents import clock
from hatcast.agents.config.settings import parse_settings
from hatcast.agents.demo.defaults import demo_policy
from hatcast.agents.kafka import dead_letters, groups, producers
from hatcast.agents.kafka.batches import batch, group, thread
from hatcast.agents.worker import worker
from hatcast.agents.worker.stopping import STOP_SECONDS
from hatcast.agents.worker.topic_fold import Loop
from hatcast.agents.worker.worker import Worker


async def endless(_: asyncio.Event) -> None:
    await asyncio.Event().wait()


async def obedient(stopping: asyncio.Event) -> None:
    await stopping.wait()


def test_loops_that_do_not_finish_are_cancelled_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_FINISH_S", 0.05)
    settings = parse_settings({"policy": demo_policy(None)}, Path(), {})

    async def stopped(*loops: Loop) -> list[list[str]]:
        stopping = Worker(settings, 1, topic_ids=False)
        for loop in loops:
            stopping._run(loop)
        with capture_logs() as logs:
            await stopping._stop()
        return [each["loops"] for each in logs if each["event"] == "loops did not finish, and are cancelled"]

    assert asyncio.run(stopped(obedient)) == []
    assert asyncio.run(stopped(obedient, endless)) == [["endless"]]


def test_the_steps_of_a_stop_fit_in_its_time_while_redis_is_away_and_while_kafka_is() -> None:
    loops = worker._FINISH_S + clock._CANCEL_TRIES  # a second each
    producer = producers._STOP_S + 2 * producers._ABANDON_S
    group_left = group._LEAVE_S + thread.STOP_SECONDS + groups._REMOVAL_S
    assert loops + batch.REVOKE_SECONDS <= STOP_SECONDS
    assert loops + group_left + dead_letters._FLUSH_S + 2 * producer <= STOP_SECONDS
