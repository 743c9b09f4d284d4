"""A tracker policy against real Kafka and Redis: each query is drawn once, and a day is settled once."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import msgspec
import pytest

import hatcast.agents.release.batching
from hatcast.agents.cli.status import read_tracker
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.monitoring.declarations import TRACKER_MISMATCHES, Process
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.release.tracker import TrackedHats
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.rejections import Behind
from hatcast.stream.records.fields import PULSE, SETTLEMENT, query_kind
from hatcast.stream.tracker.state import TrackerState
from hatcast.stream.tracker.timetable import Timetable
from tests.exposed import figures
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, PLACES, Sample, Stores, open_stores, store_closed, traffic
from tests.integration.tables import merged
from tests.integration.test_release import (
    DATE,
    CrashError,
    CrashingProducers,
    before,
    crash_after,
    end_after,
    releasing,
    stored_records,
)
from tests.services import KafkaServer, RedisServer
from tests.timetables import write_speeds

LATENESS_MS = 300_000
TWO_HOURS_MS = NOON_MS + 2 * HOUR_MS + LATENESS_MS
NEXT_DAY_MS = NOON_MS + 13 * HOUR_MS  # past the close of the day of NOON_MS
TABLE: dict[str, Any] = {
    "policy": {
        "privacy": {"epsilon": None, "max_hats_per_day": None, "daily_limit": 5.0, "min_users": 3},
        "estimator": {"name": "tracker"},
        "tracker": {"share": 0.9, "price": 3.0},  # pulses leave something for single HATs
    }
}
TIMED = merged(TABLE, {"policy": {"tracker": {"timetable": "gtfs.zip"}}})
CELLS = [h3.latlng_to_cell(*place, 7) for place in PLACES]
FIRST, SECOND = {CELLS[0]: 18.0, CELLS[2]: 45.0}, dict.fromkeys(CELLS, 30.0)
"""scheduled speeds of two timetables, km/h"""
STEPS = {
    "drawn": "draw_slot",
    "settlement drawn": "draw_settlement",
    "stored": "store_state",
    "deleted": "delete_date",
}
pytestmark = pytest.mark.pipeline(TABLE, topics=True)


def samples() -> list[Sample]:
    return traffic(hours=3, vehicles=14, places=4)


async def fold(pipeline: Pipeline, stores: Stores, end_ms: int = NEXT_DAY_MS) -> None:
    """All samples, with every clock at `end_ms`."""
    await store_closed(stores, pipeline.settings.policy, samples(), end_ms)


async def finish(pipeline: Pipeline, stores: Stores) -> None:
    async with releasing(pipeline, stores) as releaser:
        await releaser.round(asyncio.Event())
        assert not await releaser.final_slots()
        assert await stores.partitions.open_slots() == {}


Designs = dict[str, tuple[object, ...]]


def designs(records: dict[bytes, bytes]) -> Designs:
    """What follows from counts: all but released numbers, times and order."""
    found: Designs = {}
    for record in map(json.loads, records.values()):
        query = {key: value for key, value in record.get("query", {}).items() if key != "sum"}
        found[record["release_id"].partition("/")[2]] = (
            record["status"],
            record.get("counts"),
            query,
            record["epsilon"],
            record.get("scheduled"),
        )
    return found


async def complete(pipeline: Pipeline) -> dict[bytes, bytes]:
    """The records of a run without a crash."""
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        await finish(pipeline, stores)
        return await stored_records(pipeline, stores)


@pytest.fixture(scope="module")
def expected(kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Designs:
    return expected_of(TABLE, kafka, redis_server, tmp_path_factory.mktemp("whole"))


def expected_of(table: dict[str, Any], kafka: KafkaServer, redis_server: RedisServer, folder: Path) -> Designs:
    with open_pipeline(kafka, redis_server, folder, "tracker", table) as opened:
        ensure_topics(opened.settings)
        write_speeds(opened.folder / "gtfs.zip", FIRST)
        return designs(asyncio.run(complete(opened)))


async def test_a_tracker_queries_hats_and_settles_the_day(pipeline: Pipeline) -> None:
    kept = await complete(pipeline)
    assert_published_once(pipeline, kept)
    records = [json.loads(record) for record in kept.values()]
    hats = [each for each in records if not query_kind(each["release_id"])]
    assert len(hats) == 12
    assert {query_kind(each["release_id"]) for each in records} == {"", PULSE, SETTLEMENT}
    assert any("query" in each for each in hats)


def assert_published_once(pipeline: Pipeline, kept: dict[bytes, bytes]) -> None:
    published = pipeline.published(committed=False)
    assert {release_id: set(values) for release_id, values in published.items()} == {
        release_id.decode(): {record} for release_id, record in kept.items()
    }
    (budget,) = pipeline.budget_records().values()
    assert (budget["releases"], budget["epsilon_user_day"], budget["day_bound"]) == (0, 5.0, 5.0)
    assert budget["queries"] == [{"query": "tracker", "epsilon": 5.0, "places": 1}]
    assert 0 < budget["spent"]["mean"] <= budget["spent"]["largest"] <= 5.0
    numbers = sorted(json.loads(record)["query"]["number"] for record in kept.values() if b'"query"' in record)
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    "step",
    ["loaded", "drawn", "committed", "sent", "acked", "marked", "settlement drawn", "stored", "deleted"],
)
async def test_after_a_crash_at_any_step_the_queries_are_those_of_a_run_without_one(
    step: str, pipeline: Pipeline, expected: Designs
) -> None:
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        await crash(pipeline, stores, step)
        after_crash = await stored_records(pipeline, stores)
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
    assert after_crash.items() <= kept.items(), "a record that was committed has changed"
    assert_published_once(pipeline, kept)
    assert designs(kept) == expected


async def crash(pipeline: Pipeline, stores: Stores, step: str) -> None:
    producers = CrashingProducers if step == "sent" else TransactionalProducers
    with pytest.raises(CrashError):
        async with releasing(pipeline, stores, producers=producers) as releaser:
            assert isinstance(releaser._source, TrackedHats)
            if step in STEPS:
                end_after(releaser._source, STEPS[step])
            else:
                crash_after(releaser.hats_path, step)
            await releaser.round(asyncio.Event())


async def test_the_next_date_begins_with_the_state_that_another_worker_has_stored(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        async with releasing(pipeline, stores) as releaser:
            source = releaser._source
            assert isinstance(source, TrackedHats)

            async def be_second(date: str, state: bytes) -> None:
                ours = TrackerState.decoded(state, pipeline.settings.policy.policy_id)
                assert ours is not None
                theirs = msgspec.structs.replace(ours, hours=ours.hours + 1000).encoded()
                await stores.ledger.tracker.store(date, theirs, releaser._recovery.guard.token)

            before(source, "store_state", be_second)  # type: ignore[arg-type]  # a method of any object
            with pytest.raises(Behind):
                await releaser.round(asyncio.Event())
            await releaser.round(asyncio.Event())
            stored = TrackerState.decoded(await stores.ledger.tracker.read(), pipeline.settings.policy.policy_id)
            assert stored is not None
            assert source.tracker is not None
            assert source.tracker._tracker.schedule.hours >= stored.hours > 1000


async def test_a_draw_that_lost_its_commit_is_not_learnt_from(pipeline: Pipeline, expected: Designs) -> None:
    commits = iter([True])

    async def lose_the_first(*_: object) -> None:
        if next(commits, False):
            raise CrashError

    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        async with releasing(pipeline, stores) as releaser:
            before(releaser.hats_path, "commit", lose_the_first)
            with pytest.raises(CrashError):
                await releaser.round(asyncio.Event())
            await releaser.round(asyncio.Event())  # by the same worker
        kept = await stored_records(pipeline, stores)
    assert_published_once(pipeline, kept)
    assert designs(kept) == expected


@pytest.fixture(scope="module")
def expected_by_timetable(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Designs:
    return expected_of(TIMED, kafka, redis_server, tmp_path_factory.mktemp("timed"))


@pytest.mark.pipeline(TIMED, topics=True)
@pytest.mark.parametrize("step", ["stored", "drawn", "committed"])
async def test_a_date_is_drawn_with_its_timetable_by_an_owner_with_another_file_too(
    step: str, pipeline: Pipeline, expected_by_timetable: Designs
) -> None:
    """The first state that is stored is that before the first draw."""
    write_speeds(pipeline.folder / "gtfs.zip", FIRST)
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        await crash(pipeline, stores, step)
        assert len(await stored_records(pipeline, stores)) < len(expected_by_timetable)
        write_speeds(pipeline.folder / "gtfs.zip", SECOND)
        await finish(pipeline, stores)
        kept, stored = await stored_records(pipeline, stores), await stores.ledger.tracker.read()
    assert_published_once(pipeline, kept)
    assert designs(kept) == expected_by_timetable
    assert {of[-1] for of in expected_by_timetable.values()} == {None, 18.0, 45.0}
    state = TrackerState.decoded(stored, pipeline.settings.policy.policy_id)
    assert state is not None
    assert state.date == DATE
    assert state.timetable == Timetable.of(dict.fromkeys(CELLS, 300))


async def test_a_redis_that_lost_everything_leads_to_no_second_draw(pipeline: Pipeline, expected: Designs) -> None:
    """In the middle of the day: published records come back, and the contributions by reading telemetry again."""
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores, TWO_HOURS_MS)
        async with releasing(pipeline, stores) as releaser:
            assert await releaser.round(asyncio.Event())
        before = await stored_records(pipeline, stores)
    pipeline.forget()
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
    assert any(b'"query"' in record for record in before.values())
    assert before.items() <= kept.items()
    assert_published_once(pipeline, kept)
    assert designs(kept) == expected


async def test_status_shows_the_settled_date_and_the_date_at_work(pipeline: Pipeline) -> None:
    def shown() -> tuple[object, str]:
        status, text = pipeline.hatcast("status", "--json"), pipeline.hatcast("status")
        assert (status.code, status.err, text.code, text.err) == (0, "", 0, "")
        return status.json["tracker"], " ".join(text.out.split())

    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores, TWO_HOURS_MS)
        async with releasing(pipeline, stores) as releaser:
            assert await releaser.round(asyncio.Event())
    tracker, text = shown()
    assert tracker == {"settled": None, "date": DATE, "ended": False, "closed": None}
    assert f"tracker settled through no date yet at work on {DATE}: it has not ended" in text
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, [], NEXT_DAY_MS)
    tracker, text = shown()
    assert tracker == {"settled": None, "date": DATE, "ended": True, "closed": None}
    assert "it has ended and is being settled" in text
    async with open_stores(pipeline) as stores:
        await finish(pipeline, stores)
    tracker, text = shown()
    assert tracker == {"settled": DATE, "date": None, "ended": None, "closed": None}
    assert f"tracker settled through {DATE}" in text


async def test_a_day_that_lacks_records_is_shown_as_closed(pipeline: Pipeline) -> None:
    policy = pipeline.settings.policy
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores, TWO_HOURS_MS)
        await stores.redis.hset(PartitionKeys(policy.name, 0).state, "complete_from", str(NEXT_DAY_MS))
        assert (await read_tracker(HatStore(stores.partitions), stores.ledger, policy))["closed"] == "incomplete"


async def test_stored_queries_that_do_not_follow_from_the_counts_are_counted_and_end_the_queries_of_the_date(
    pipeline: Pipeline,
) -> None:
    METERS.expose(Process.WORKER)
    name = TRACKER_MISMATCHES.name
    before = figures(METERS.render()[0].decode(), name).get((), 0)
    policy = pipeline.settings.policy
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores, TWO_HOURS_MS)
        async with releasing(pipeline, stores) as releaser:
            assert await releaser.round(asyncio.Event())
        # As if Redis had lost contributions, and telemetry did not reach back to all of them.
        await store_closed(stores, policy, [each for each in samples() if each.vehicle < "GJ05BX0007"], NEXT_DAY_MS)
        async with releasing(pipeline, stores) as releaser:
            await releaser.round(asyncio.Event())
        kept = await stored_records(pipeline, stores)
    assert figures(METERS.render()[0].decode(), name)[()] > before
    assert "deferred" in {json.loads(record)["status"] for record in kept.values()}


async def test_beside_a_policy_that_has_charged_the_day_there_is_no_room(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await stores.redis.hset(f"{{{pipeline.name}}}:ledger:{DATE}", mapping={"cost:other": 1})
        await fold(pipeline, stores)
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
    assert {json.loads(record)["status"] for record in kept.values()} == {"budget_exhausted"}
    (budget,) = pipeline.budget_records().values()
    assert budget["queries"] == [{"query": "tracker", "epsilon": 5.0, "places": 0}]
    assert budget["epsilon_user_day"] == 1e-9


async def test_workers_that_take_the_tracker_over_from_each_other_make_the_same_queries(
    pipeline: Pipeline, expected: Designs
) -> None:
    """One keeps its tracker in memory while the other commits: it has to see that, and to begin anew."""
    every, seen = samples(), list[ReleaseLoop]()
    async with open_stores(pipeline) as stores, open_stores(pipeline) as others:
        for hour in range(3):
            of_hour = [each for each in every if (each.time_ms - NOON_MS) // HOUR_MS == hour]
            await store_closed(stores, pipeline.settings.policy, of_hour, NOON_MS + (hour + 1) * HOUR_MS + LATENESS_MS)
            turn = stores if hour % 2 == 0 else others
            async with releasing(pipeline, turn) as releaser:
                seen.append(releaser)
                if hour == 2:  # it was never away
                    tracked, first = releaser._source, seen[0]._source
                    assert isinstance(tracked, TrackedHats)
                    assert isinstance(first, TrackedHats)
                    tracked.tracker, tracked.closed = first.tracker, first.closed
                    releaser.hats_path._known = seen[0].hats_path._known
                assert await releaser.round(asyncio.Event())
        await store_closed(stores, pipeline.settings.policy, [], NEXT_DAY_MS)
        await finish(pipeline, stores)
        kept = await stored_records(pipeline, stores)
    assert_published_once(pipeline, kept)
    assert designs(kept) == expected


async def test_after_a_record_that_replaced_a_draw_nothing_is_committed_that_was_drawn_from_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are committed in groups before they are sent: the check is not left to the send."""
    monkeypatch.setattr(hatcast.agents.release.batching, "MAX_BATCH", 1)

    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores, NOON_MS + HOUR_MS + LATENESS_MS)
        async with releasing(pipeline, stores) as releaser:
            commits = 0

            async def replace(proposals: Sequence[Proposal]) -> None:
                nonlocal commits
                commits += 1
                (ours,) = proposals
                if commits == 2:  # of the second group, which has two batches
                    key = DomainKeys(pipeline.name).row(rows.releases(ours.date, pipeline.settings.policy.name))
                    await stores.redis.hset(key, ours.release_id, b"99".join(ours.record))

            before(releaser.hats_path, "commit", replace)
            with pytest.raises(Behind):
                await releaser.round(asyncio.Event())
        assert (commits, len(await stored_records(pipeline, stores))) == (2, 2)
    assert len(pipeline.published(committed=False)) == 1


async def test_a_settled_day_is_sealed_and_stays_so_after_the_loss_of_redis(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        async with releasing(pipeline, stores, seals=True) as releaser:
            await releaser.round(asyncio.Event())
        assert await stores.ledger.sealed_through() == DATE
        assert await stored_records(pipeline, stores) == {}
        before = pipeline.published()
    pipeline.forget()
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores)
        async with releasing(pipeline, stores, seals=True) as releaser:
            await releaser.round(asyncio.Event())
        assert await stores.partitions.open_slots() == {}
    assert pipeline.published() == before
