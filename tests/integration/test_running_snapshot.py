"""Inputs of running means in a real Redis: whoever continues from them sends the same bytes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from redis.asyncio import Redis

from hatcast.agents.config.settings import Settings, settings_of_policy
from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.release.estimates import EstimateProgress, ReadRelease
from hatcast.stream.policy.running_keys import Running, RunningOf, Window
from hatcast.stream.tracker.observations import ReleasedSlot, SlotKey, slots_of
from tests.contracts.goldens import SPEED
from tests.running_releases import releases
from tests.services import RedisServer

RUNNING = (
    Running("today", Window.TODAY, RunningOf.RELEASES, 1),
    Running("day", Window.DAY, RunningOf.ESTIMATES, 3),
)
DOMAIN = "running-snapshot"


def settings_with(*running: Running) -> Settings:
    return settings_of_policy(replace(SPEED, running=running))


def take(progress: EstimateProgress, slot: ReleasedSlot) -> list[bytes]:
    """The running means that are sent of a slot."""
    progress.reader.positions.setdefault(0, 10_000)
    progress.waiting[slot.key] = [ReadRelease(0, at, record) for at, record in enumerate(slot.records)]
    return [message.value for message in progress.take(slot.key, 8) if message.topic == "hats.running"]


async def restored(store: SnapshotStore, settings: Settings) -> EstimateProgress:
    stored = await store.read(settings.policy.policy_id)
    return EstimateProgress(settings, stored, await store.read_dates(stored))


def days() -> Iterator[tuple[str, list[ReleasedSlot]]]:
    slots = slots_of(releases(SPEED, "2022-01-01", 6, seed=9))
    return ((date, [*of_date]) for date, of_date in groupby(slots, lambda slot: slot.key.date))


async def continued(url: str) -> None:
    async with Redis.from_url(url) as redis:
        store, settings = SnapshotStore(redis, DOMAIN, SPEED.name), settings_with(*RUNNING)
        progress, kept = await restored(store, settings), set[str]()
        sent: dict[SlotKey, list[bytes]] = {}
        for date, slots in days():
            again: EstimateProgress | None = None
            for slot in slots:
                sent[slot.key] = take(progress, slot)
                if again is None:
                    await store.write(*progress.snapshot())
                    again = await restored(store, settings)
                    assert again.stored_date == ""
                    names: Any = await redis.hkeys(DomainKeys(DOMAIN).running(SPEED.name))
                    kept = {name.decode() for name in names}
                    assert len(kept) <= 3
                    assert all(each < date for each in kept)
                assert take(again, slot) == sent[slot.key]

        # A mean over more dates than are stored, and a date that is lost: all is read again, and only what is new sent.
        longer = settings_with(*RUNNING, Running("week", Window.WEEK, RunningOf.RELEASES, 9))
        for lost, of in (("", longer), (max(kept), settings)):
            if lost:
                await redis.hdel(DomainKeys(DOMAIN).running(SPEED.name), lost)
            again, last = await restored(store, of), max(key.date for key in sent)
            assert again.reader.positions == {}
            for _, slots in days():
                for slot in slots:
                    made = take(again, slot)
                    expected = sent[slot.key] if slot.key.date == last else []
                    assert [value for value in made if b'"name":"week"' not in value] == expected


async def test_whoever_continues_from_the_stored_dates_sends_the_same_bytes(redis_server: RedisServer) -> None:
    redis_server.delete(f"{{{DOMAIN}}}:*")
    await continued(redis_server.url)
