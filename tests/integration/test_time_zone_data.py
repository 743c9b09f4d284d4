"""Workers whose time zone data differ: a local date is folded and released under one set of rules."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from hatcast.agents.kafka.registry import Registry
from hatcast.agents.redis.hat_store import HatStore, OpenDates
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.time_zones import TIME_ZONE_DATA
from hatcast.stream.units import DAY_MS
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.health import LISTEN, scraped
from tests.integration.readings import EXACT, HOUR_MS, NOON_MS, assert_exact_means, open_stores, store_closed, traffic
from tests.integration.readings import ticks as heartbeats
from tests.integration.test_release import OVER_MS, finish, releasing
from tests.integration.test_succession import beside
from tests.other_tzdata import ZONE, install_other_tzdata, use_other_tables
from tests.services import RedisServer
from tests.services.data import ROOT

DATE: Final = "2022-01-02"
NEXT_DATE: Final = "2022-01-03"
LAST_HOUR_MS: Final = 1_641_147_000_000  # 23:40 of DATE; 00:10 of NEXT_DATE by the other data
KOLKATA: Final = f"{DATE} in {ZONE} was opened as {DATE}T00:00:00+05:30 to 2022-01-03T00:00:00+05:30"
pytestmark = pytest.mark.pipeline({"policy": {"timezone": ZONE, "privacy": EXACT}}, topics=True)


def test_a_worker_with_other_time_zone_data_is_refused_and_every_mean_is_true(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    hours = traffic(hours=4)
    telemetry = pipeline.settings.topics.telemetry
    first = pipeline.worker()
    pipeline.wait_for_partitions(first)
    pipeline.kafka.produce(telemetry, [each.record() for each in hours if each.time_ms < NOON_MS + HOUR_MS])
    pipeline.wait(lambda: pipeline.is_caught_up() and pipeline.folded() > 0, "folded hour", first)
    path = os.pathsep.join([str(install_other_tzdata(tmp_path / "other")), str(ROOT)])
    other = pipeline.start("worker", env={"PYTHONPATH": path})
    assert other.wait() == 1
    (said,) = [line for line in other.logged().splitlines() if line.startswith("hatcast: ")]
    assert f"{KOLKATA} by {TIME_ZONE_DATA}; here it is {DATE}T00:00:00+06:00" in said
    assert "by tzdata 1999z: install the version of the Python package tzdata that opened it" in said
    pipeline.kafka.produce(telemetry, [each.record() for each in hours if each.time_ms >= NOON_MS + HOUR_MS])
    pipeline.kafka.produce(telemetry, heartbeats(OVER_MS + 4 * HOUR_MS))
    pipeline.wait(pipeline.is_settled, "all means", first)
    assert_exact_means(pipeline, hours)
    assert f'"time_zone_data": "{TIME_ZONE_DATA}"' in first.logged()
    assert pipeline.status()["time_zone_data"] == TIME_ZONE_DATA


async def test_doctor_compares_the_machines_data_with_the_dates_that_are_open(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    def line(done: WorkerProcess) -> tuple[str, str, str]:
        done.wait()
        found = {check["name"]: check for check in json.loads(done.logged())["checks"]}["time zone data"]
        return found["state"], found["found"], found["mend"]

    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
    path = os.pathsep.join([str(install_other_tzdata(tmp_path / "other")), str(ROOT)])
    own, other = (pipeline.start("doctor", "--json", env=env) for env in ({}, {"PYTHONPATH": path}))
    assert line(own) == ("ok", f"{TIME_ZONE_DATA}, agrees with all open dates", "")
    state, found, fix = line(other)
    assert (state, found) == ("problem", "tzdata 1999z: workers do not start")
    assert f"{KOLKATA} by {TIME_ZONE_DATA}; here it is {DATE}T00:00:00+06:00" in fix


def test_a_worker_that_is_stopped_says_what_its_last_checkpoint_contradicts(pipeline: Pipeline) -> None:
    async def open_elsewhere() -> None:
        async with open_stores(pipeline) as stores:
            await stores.partitions.claim(DATE, "no date by tzdata 1999z")

    def unstored() -> float:
        [line] = [line for line in scraped(worker).splitlines() if line.startswith("hatcast_unstored_records")]
        return float(line.split()[1])

    config = pipeline.changed({"worker": {**LISTEN["worker"], "checkpoint_interval": "60s"}})
    worker = pipeline.worker(config=config)
    pipeline.wait_for_partitions(worker)
    asyncio.run(open_elsewhere())
    readings = [each.record() for each in traffic()]
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, readings)
    pipeline.wait(lambda: unstored() >= len(readings), "folded readings", worker)
    assert worker.terminate() == 1
    (said,) = [line for line in worker.logged().splitlines() if line.startswith("hatcast: ")]
    assert f"{DATE} in {ZONE} was opened as no date by tzdata 1999z; here it is" in said
    assert pipeline.folded() == 0


async def test_nothing_is_released_of_a_date_that_was_folded_under_other_rules(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        use_other_tables(monkeypatch)
        async with releasing(pipeline, stores) as releaser:
            with pytest.raises(HatcastError, match=r"was opened as .*\+05:30 .* here it is .*\+06:00"):
                await releaser.round(asyncio.Event())
    assert pipeline.published(committed=False) == {}


async def test_a_worker_that_folds_what_redis_forgot_under_other_rules_ends_before_it_releases(
    pipeline: Pipeline, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        await finish(pipeline, stores)
        pipeline.forget()
        use_other_tables(monkeypatch)
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        async with releasing(pipeline, stores) as releaser:
            with pytest.raises(HatcastError, match=rf"^{DATE} in {ZONE} was opened as .*\+05:30; here it is"):
                await releaser.round(asyncio.Event())
    assert len(pipeline.published(committed=False)) == 6


def test_a_worker_that_folds_a_midnight_again_under_other_rules_than_the_sealed_date_had_ends_before_it_releases(
    pipeline: Pipeline, redis_server: RedisServer, tmp_path: Path
) -> None:
    first = pipeline.worker()
    pipeline.wait_for_partitions(first)
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, [each.record() for each in traffic()])
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, heartbeats(NOON_MS + 48 * HOUR_MS))
    pipeline.wait(lambda: "days sealed" in first.logged(), "seal", first)
    assert first.terminate() == 0
    through = json.loads(dict(sealed_records(pipeline))[f"sealed/{pipeline.name}"])["through"]
    pipeline.forget()
    path = os.pathsep.join([str(install_other_tzdata(tmp_path / "other")), str(ROOT)])
    other = pipeline.start("worker", env={"PYTHONPATH": path})
    assert other.wait() == 1
    (said,) = [line for line in other.logged().splitlines() if line.startswith("hatcast: ")]
    assert f"{through} in {ZONE} was opened as {through}T00:00:00+05:30" in said
    assert f"here it is {through}T00:00:00+06:00" in said
    own = pipeline.worker()
    pipeline.wait(lambda: "ledger recovered" in own.logged(), "recovered ledger", own)


def sealed_records(pipeline: Pipeline) -> list[tuple[str, bytes]]:
    """The registry's records of sealed days."""
    facts = asyncio.run(Registry(pipeline.settings).read())
    return [(key, value) for key, value in facts.values.items() if key.startswith("sealed/")]


async def test_of_two_workers_that_open_a_date_at_once_under_different_rules_the_second_stores_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(pipeline) as stores:
        policy, store = pipeline.settings.policy, HatStore(stores.partitions)
        first = OpenDates(store, stores.ledger, Calendar(policy))
        own = Calendar(policy).rules_of(DATE)
        assert await first.open({DATE: own}) == {DATE: own}
        use_other_tables(monkeypatch)
        second = OpenDates(store, stores.ledger, Calendar(policy))
        with pytest.raises(HatcastError, match="was opened as"):
            await second.open({DATE: Calendar(policy).rules_of(DATE)})
        await second.check()  # the date has not opened
        assert await first.open({DATE: own}) == {DATE: own}
        key = DomainKeys.opening(policy.name, DATE)
        assert 0 < await stores.redis.pttl(key) <= 600_000
        await stores.redis.delete(key)  # as if it had expired
        assert await second.open({DATE: Calendar(policy).rules_of(DATE)})


async def test_two_policies_do_not_release_one_reading_on_two_dates(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, hour = beside(pipeline, "other"), [replace(each, time_ms=LAST_HOUR_MS) for each in traffic(hours=1)]

    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, hour, OVER_MS + DAY_MS)
        await finish(pipeline, stores)
        await finish(pipeline, stores)  # a worker that starts adopts what was published: nobody reads it again
    use_other_tables(monkeypatch)
    async with open_stores(other) as stores:
        policy = other.settings.policy
        dates = OpenDates(HatStore(stores.partitions), stores.ledger, Calendar(policy))
        with pytest.raises(HatcastError, match=KOLKATA.replace("+", r"\+")):
            await dates.open({NEXT_DATE: Calendar(policy).rules_of(NEXT_DATE)})
        await store_closed(stores, policy, hour, OVER_MS + DAY_MS)
        with pytest.raises(HatcastError, match=KOLKATA.replace("+", r"\+")):
            await finish(other, stores)
    assert {each.partition("/")[2][:13] for each in pipeline.published(committed=False)} == {f"{DATE}T23"}


async def test_a_date_that_is_sealed_may_have_other_rules(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        await finish(pipeline, stores)
        use_other_tables(monkeypatch)
        dates = OpenDates(HatStore(stores.partitions), stores.ledger, Calendar(pipeline.settings.policy))
        with pytest.raises(HatcastError, match="was opened as"):
            await dates.check()
        domain = DomainKeys(pipeline.settings.topics.telemetry)
        await stores.redis.hset(domain.row(rows.SEALED), pipeline.settings.policy.name, DATE)
        await dates.check()
        await dates.pin(NEXT_DATE)
        assert await dates.open({DATE: "no date by tzdata 1999z"}) == {}
