"""Targets: everything that reads records of the output topics and of the registry."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec
from aiokafka import ConsumerRecord
from rich.console import Console

from hatcast.agents.kafka.registry import Facts, read_request, request_key
from hatcast.agents.map.events import EventPosition, Hub
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.record import RecordKind
from hatcast.agents.map.topic_reader import MapTopics, Reader
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.outputs import Record
from hatcast.agents.recovery.published_records import decode_contents
from hatcast.agents.tables.arrow import table_of_rows
from hatcast.agents.tables.columns import row_of
from hatcast.agents.tables.records import CLUSTERINGS, TABLES
from hatcast.agents.tables.terminal import read_shown, record_line
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger.sealed_days import Sealed, SealedDay, TopicStart, registry_records
from hatcast.stream.release.spending import fineness_of
from tests.displaying import DAY_MS, SETTINGS, release
from tests.fuzz.target import Finding, Target, check_message
from tests.services.data import ROOT
from tests.unit.test_registry_checks import OWN

_GOLDEN: Final = ROOT / "schemas" / "golden" / "0.1.0"
_TOPICS: Final = {
    "means": "release",
    "budget": "budget",
    "estimates": "estimate",
    "queries": "query",
    "clusters": "clusters",
    "running": "running",
}
"""Key of `[topics]` -> folder of its golden records"""
_ORDER: Final = ("means", "budget", "estimates", "queries", "clusters", "running")


def _golden(folder: str) -> list[bytes]:
    return [path.read_bytes().strip() for path in sorted(_GOLDEN.glob(f"{folder}/*.json"))]


class _Map:
    """The map's reader of one topic, with a new feed for every input."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._known: Reader | None = None

    def _reader(self, feed: Feed) -> Reader:
        """Return the reader. It is made once, in the process of the search, and never connects."""

        async def made() -> Reader:
            topics = SETTINGS.topics
            return Reader(SETTINGS, feed, MapTopics("cluster", *((getattr(topics, key), 1) for key in _ORDER)))

        if self._known is None:
            self._known = asyncio.new_event_loop().run_until_complete(made())
        self._known._feed = feed
        return self._known

    def run(self, data: bytes) -> None:
        """Apply a record between two releases, then make what viewers and the API get."""
        feed = Feed(DAY_MS, Hub(), EventPosition("12345678", [0], [0], [0], [0]), "city")
        reader = self._reader(feed)
        topics = SETTINGS.topics
        first, last = release(0), release(1)
        named = ((topics.means, first), (getattr(topics, self._key), data), (topics.means, last))
        reader._apply([_message(topic, offset, value) for offset, (topic, value) in enumerate(named)])
        feed.serve()
        feed.initial_chunk("city", None)
        for name in feed.names():
            feed.slots_view(name)
            for kind in RecordKind:
                feed.initial_chunk(name, None, kind)
        policy = feed.policy(RecordKind.RELEASES, "city")
        slots = [] if policy is None else policy.in_order()
        shown = {each.record for slot in slots for each in slot.records.values()}
        if self._key != "means" and not shown >= {first, last}:
            raise Finding("a record changed what is shown of its neighbours")


async def read_feed() -> Feed:
    """Return a feed that has read two releases."""
    feed = Feed(DAY_MS, Hub(), EventPosition("12345678", [0], [0], [0], [0]), "city")
    topics = SETTINGS.topics
    reader = Reader(SETTINGS, feed, MapTopics("cluster", *((getattr(topics, key), 1) for key in _ORDER)))
    reader._apply([_message(topics.means, offset, release(offset)) for offset in range(2)])
    return feed


def _message(topic: str, offset: int, value: bytes) -> Any:
    return ConsumerRecord(topic, 0, offset, 1_641_124_800_000, 0, None, value, None, 0, len(value), ())


def _tables(data: bytes) -> None:
    """Each table has a row of a record, which a file can hold, or none."""
    for table in (*TABLES.values(), CLUSTERINGS):
        table.values(data)
        row = row_of(table, data)
        if row is not None:
            table_of_rows(table, [row])


def _tail(console: Console, data: bytes) -> None:
    with console.capture():
        console.print(record_line(read_shown(data)))


def _recovery(data: bytes) -> None:
    """Records that cannot be read are left out; the others are what a ledger can adopt."""
    good, policy = release(0), SETTINGS.policy
    records = [Record(offset, "key", value, True) for offset, value in enumerate((good, data, good))]  # noqa: FBT003
    for holds_budgets in (False, True):
        found = decode_contents(
            "topic", records, holds_budgets=holds_budgets, policy_id=policy.policy_id, fineness=fineness_of(policy)
        )
        if not holds_budgets and [offset for offset, _ in found.releases if offset != 1] != [0, 2]:
            raise Finding("a record changed how its neighbours are recovered")
        for _, each in found.releases:
            if each.charge < 0 or each.seq < 0:
                raise Finding("a recovered charge or number is negative")


def _registry(data: bytes) -> None:
    """Each kind of record of the registry: facts, or one error."""
    for key in ("policy/city", "sealed/city", "day/city/2022-01-02", request_key("city", "q", "2022-01-02"), "other/x"):
        try:
            facts = Facts.of("registry", {key: data})
            Domain.of(facts, SETTINGS, 4)
            read_request(facts.values, request_key("city", "q", "2022-01-02"))
        except HatcastError as error:
            check_message(error)


def _registry_seeds() -> list[bytes]:
    start = TopicStart("id", {0: 7})
    sealed = Sealed(policy="city", through="2022-01-02", rules="", partitions=1, starts={"hats.means": start})
    fields = {"commits:city": "1", "releases:city": "1"}
    day = SealedDay(
        policy="city",
        date="2022-01-02",
        cost=5,
        sequence=9,
        limit="7",
        total_limit="",
        fields=fields,
        levels={"5": "1"},
    )
    request = msgspec.json.encode({"speed_limit": 60_000, "decided_at": "2022-01-02T04:35:03.120Z"})
    return [msgspec.json.encode(OWN), *registry_records(sealed, {"2022-01-02": day}).values(), request]


def targets() -> Iterator[Target]:
    """Yield the targets."""
    everything = [record for folder in _TOPICS.values() for record in _golden(folder)]
    for key, folder in _TOPICS.items():
        yield Target(f"map-{key}", _Map(key).run, partial(_golden, folder), share=0.3)
    yield Target("tables", _tables, lambda: everything)
    yield Target("tail", partial(_tail, Console(width=200)), lambda: everything)
    yield Target("recovery", _recovery, lambda: everything)
    yield Target("registry", _registry, _registry_seeds)
