"""Speeds from positions on real Kafka and Redis: a bridge and a replay fold and release what `hatcast batch` does."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from google.transit.gtfs_realtime_pb2 import FeedMessage

from tests.integration.bridging import arrived, bridge, stopped
from tests.integration.harness import Pipeline
from tests.integration.test_bridge_gtfs_rt import Agency, asking, said

BUSES, POLLS, STEP_S = 12, 5, 30
EXACT: Final = {"epsilon": 4e7, "acknowledge_weak_privacy": True, "daily_limit": 1e9, "max_hats_per_day": 4}
NOON_S: Final = 1_641_124_800  # 2022-01-02T12:00Z


def positions(start_s: int) -> Iterator[bytes]:
    """Polls of buses at 10 to 32 km/h, without speeds but for one bus; one is sent again, one late, and one jumps."""
    for step in range(POLLS):
        message = FeedMessage()
        message.header.gtfs_realtime_version = "2.0"
        message.header.timestamp = start_s + step * STEP_S + 20
        for number in range(BUSES):
            entity = message.entity.add(id=f"{step}-{number}")
            entity.vehicle.vehicle.id = f"bus-{number}"
            moved = step - (number == 3 and step == 2) - 2 * (number == 4 and step == 3)
            entity.vehicle.timestamp = start_s + moved * STEP_S + number
            place = entity.vehicle.position
            place.latitude, place.longitude = 21.2 + moved * STEP_S * (10 + 2 * number) / 3600 / 111.2, 72.8
            if number == 5 and step == 2:
                place.longitude += 0.2
            if number == 6:
                place.speed = 7.5
        yield message.SerializeToString()


def files(start_s: int, folder: Path) -> list[Path]:
    paths = [folder / f"{number}.pb" for number in range(POLLS)]
    for path, body in zip(paths, positions(start_s), strict=True):
        path.write_bytes(body)
    return paths


pytestmark = pytest.mark.pipeline({"policy": {"privacy": {**EXACT, "min_users": 3}}})


def derived_by_batch(pipeline: Pipeline, paths: list[Path]) -> dict[str, Any]:
    options = ("--format", "gtfs-rt", "--derive-speed", "--contributions", "--json")
    done = pipeline.run("batch", *paths, *options)
    found: dict[str, Any] = done.json
    return found


@pytest.mark.timeout(240)
def test_a_bridge_derives_the_speeds_that_batch_derives_from_the_same_polls(pipeline: Pipeline, tmp_path: Path) -> None:
    start_s = int(time.time()) - POLLS * STEP_S
    batch = derived_by_batch(pipeline, files(start_s, tmp_path))
    accepted = batch["outcomes"]["accepted"]
    assert accepted > (POLLS - 2) * BUSES
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)

    async def run() -> None:
        answers = [said(body, f'"{number}"') for number, body in enumerate(positions(start_s))]
        async with (
            Agency(*answers).open() as agency,
            bridge(pipeline, "gtfs-rt", lambda: asking(agency), polled=True, derive="missing") as task,
        ):
            await arrived(pipeline, task, lambda found: found.total() >= accepted)
            summary = await stopped(task)
        assert summary.records == accepted
        assert summary.without_speed + summary.repeated == POLLS * BUSES - accepted
        assert summary.undecodable == 0

    asyncio.run(run())
    pipeline.wait(lambda: pipeline.folded() == accepted, "readings in the state", worker)
    assert pipeline.contributions()["hats"] == batch["hats"] == pipeline.oracle()["hats"]


def without_commit(value: bytes) -> bytes:
    """Without what depends on the order and the time of the commit."""
    return re.sub(rb',"released_at":"[^"]*"', b"", re.sub(rb'"seq":\d+,', b"", value))


@pytest.mark.timeout(240)
def test_a_replay_with_derived_speeds_is_released_as_batch_releases_it(pipeline: Pipeline, tmp_path: Path) -> None:
    paths = files(NOON_S, tmp_path)
    batch = derived_by_batch(pipeline, paths)
    worker = pipeline.worker()
    pipeline.replay(paths, "gtfs-rt", "--derive-speed", "--speedup", 0)
    pipeline.wait(pipeline.is_settled, "releases of everything", worker)
    assert pipeline.outcomes() == batch["outcomes"]
    options = ("--format", "gtfs-rt", "--derive-speed", "--ledger", tmp_path / "ledger.db", "--json")
    released = pipeline.run("batch", *paths, *options)
    lines = released.out.encode().splitlines()
    live = {name: without_commit(values[-1]) for name, values in pipeline.published().items()}
    assert live == {json.loads(line)["release_id"]: without_commit(line) for line in lines}
    assert any(json.loads(line)["status"] == "released" for line in lines)


@pytest.mark.timeout(120)
def test_a_bridge_with_another_time_zone_than_the_registered_policy_ends_in_one_line(pipeline: Pipeline) -> None:
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    elsewhere = pipeline.changed({"policy": {"timezone": "Asia/Kolkata"}})
    feed = ("feed", "gtfs-rt", "http://127.0.0.1:9/positions.pb", "--for", "1")
    refused = pipeline.hatcast(*feed, "--derive-speed", config=elsewhere)
    assert refused.code == 1
    assert "policy.timezone is 'Asia/Kolkata'" in refused.err
    assert "use 'UTC'" in refused.err
    assert "policy.timezone" not in pipeline.hatcast(*feed, config=elsewhere).err
