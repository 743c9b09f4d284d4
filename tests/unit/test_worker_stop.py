"""A worker that stops names the loops that it had to cancel."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.demo.defaults import demo_policy
from hatcast.agents.worker import worker
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
