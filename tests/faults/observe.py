"""Reading what a run left, for the checker: topics, Redis, and the log folded again in one process."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeVar

import h3.api.basic_int as h3
from redis.exceptions import RedisError

from hatcast.agents.batch.ledger_days import estimates
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.registry import read_registry, read_request, request_key
from hatcast.agents.kafka.topics import topic_range
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.recovery import SealStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.redis.stored_values import without_digest
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar, closes_at, min_watermark
from hatcast.stream.fold.packing import stripped_columns
from hatcast.stream.ledger import rows
from hatcast.stream.policy.policy import ContinualKeys, ValuesKeys
from hatcast.stream.records.fields import release_id
from hatcast.stream.release.queries import query_periods_of
from tests.faults.compaction import dump_telemetry, joined
from tests.faults.courses import Courses, courses_of, is_over
from tests.faults.facts import NANO, Ledger, Log, Promise, Record, Seen, Totals
from tests.faults.generate import DATES, PARTITIONS
from tests.integration.harness import Pipeline

T = TypeVar("T")

_SECONDS: Final = 600.0  # for a command over a million records on a busy machine


def promise_of(settings: Settings, *, exact: bool) -> Promise:
    """What the checker has to know of a policy."""
    policy = settings.policy
    queries = {query.name: query.epsilon_nano for query in policy.queries}
    own = policy.method.reserved(policy.epsilon)
    return Promise(
        name=policy.name,
        epsilon=policy.epsilon_nano,
        cap=policy.max_hats_per_day,
        limit=policy.daily_limit_nano,
        grid=Fraction(policy.grid),
        exact=exact,
        total=policy.total_limit_nano,
        queries=queries if own is None else queries | {own.name: own.epsilon_nano},
        min_users=policy.min_users if policy.method.settles_days else None,
        cells=policy.method.max_cells if isinstance(policy.method, ContinualKeys) else None,
        grids={value.name: Fraction(value.grid) for value in policy.released_values[1:]},
    )


def is_settled(settings: Settings) -> bool:
    """Everything is folded, what is over is released and answered, and what no release or query will read is gone."""
    try:
        return _run(settings, lambda redis: _settled(redis, settings))
    except HatcastError:
        return False


async def _settled(redis: AnyRedis, settings: Settings) -> bool:
    policy = settings.policy
    store, ledger = PartitionStore(redis, policy.name, PARTITIONS), _ledger(redis, settings)
    offsets = await store.offsets()
    if any(
        (offset or 0) != end
        for offset, (_, end) in zip(offsets, topic_range(settings, settings.topics.telemetry), strict=True)
    ):
        return False
    least = min_watermark(await store.watermarks())
    if least is None or await _has_more_to_release(store, ledger, settings, least):
        return False
    if any([await ledger.count_unpublished(date) for date in await ledger.unsealed_dates()]):
        return False
    return await _is_answered(redis, settings, ledger, least)


async def _has_more_to_release(store: PartitionStore, ledger: LedgerStore, settings: Settings, least: int) -> bool:
    """Whether a slot is over and not released. A tracker's stays open until its date is settled."""
    policy = settings.policy
    over = [slot for slot, end in (await store.open_slots()).items() if end + policy.lateness_ms <= least]
    if not policy.method.settles_days:
        return bool(over)
    for slot in over:
        date = slot.partition("/")[0]
        names = [release_id(policy.name, slot, cell) for cell in await store.cells(slot)]
        if is_over(policy, date, least) or not all(await ledger.are_published(date, names)):
            return True
    return False


async def _is_answered(redis: AnyRedis, settings: Settings, ledger: LedgerStore, least: int) -> bool:
    """Whether all that is kept waits for a query whose days are not over, and has the answers of all the others."""
    policy, kept = settings.policy, RetainedStore(redis, settings.policy.name, PARTITIONS)
    calendar, sealed = Calendar(policy), await SealStore(redis, settings.topics.telemetry).through(policy.name)
    for slot in await kept.slots():
        asked = list(query_periods_of(policy, calendar, *slot.split("/")))
        over = [one for one in asked if closes_at(one.closing, policy) <= least]
        if len(over) == len(asked):
            return False
        cells = list(await kept.cells([slot]))
        for one in over:
            if one.closing.date <= sealed:
                continue  # all of them are published, or the day would not be sealed
            if None in await ledger.find(one.closing.date, [one.release_id(cell) for cell in cells]):
                return False
    return True


def has_open_date(settings: Settings) -> bool:
    """Whether a local date has opened in a partition and is not sealed; False where Redis does not answer."""

    async def has(redis: AnyRedis) -> bool:
        sealed = await SealStore(redis, settings.topics.telemetry).through(settings.policy.name)
        return any(date > sealed for date, _ in await PartitionStore(redis, settings.policy.name, PARTITIONS).rules())

    try:
        return _run(settings, has)
    except (HatcastError, RedisError):  # a cluster amid a restart answers that it is down
        return False


def look(pipeline: Pipeline) -> Seen:
    """Everything that the checker looks at. The workers have ended, or have nothing left to do."""
    settings = pipeline.settings
    announced: dict[str, Ledger] = {}
    spent: dict[str, list[int]] = {}
    for received in pipeline.kafka.read(settings.topics.budget, committed=False):
        record = json.loads(received.value or b"", parse_float=Decimal)
        places = {each["query"]: (each["places"], int(each["epsilon"] * NANO)) for each in record.get("queries", ())}
        told = Ledger(record["releases"], int(record["epsilon_sum"] * NANO), record["seq"], places)
        if "spent" in record:
            spent.setdefault(record["date"], []).append(int(record["spent"]["largest"] * NANO))
        known = announced.get(record["date"])
        if known is None or told.sequence >= known.sequence:
            announced[record["date"]] = told
    published, answered = pipeline.published(committed=False), pipeline.answers(committed=False)
    stored = _run(settings, lambda redis: _look(redis, settings))
    return replace(
        stored, published=published, answered=answered, announced=announced, spent=spent, limits=_limits(settings)
    )


def _limits(settings: Settings) -> dict[tuple[str, str], float]:
    """(query about a day that takes requests, date) -> the limit that the registry has for it, or else the policy's."""
    values = read_registry(settings, settings.topics.registry).values
    found = {}
    for query in settings.policy.queries:
        for date in DATES if query.on_request else ():
            decision = read_request(values, request_key(settings.policy.name, query.name, date))
            limit = query.speed_limit if decision is None or decision.speed_limit is None else decision.speed_limit
            assert limit is not None
            found[query.name, date] = limit / 1000
    return found


def estimated(pipeline: Pipeline) -> dict[str, bytes]:
    """Key -> the last value on `hats.estimates`: what compaction leaves."""
    records = pipeline.kafka.read(pipeline.settings.topics.estimates)
    return {(record.key or b"").decode(): record.value or b"" for record in records}


def estimated_again(pipeline: Pipeline) -> dict[str, bytes]:
    """The same, as one process makes it of what is on `hats.means`."""
    values = [value for values in pipeline.published().values() for value in values]
    made = [*estimates(values, pipeline.settings.policy)]
    return {json.loads(each)["estimate_id"]: each for each in made}


async def _look(redis: AnyRedis, settings: Settings) -> Seen:
    """What is in Redis."""
    name = settings.policy.name
    store, ledger = PartitionStore(redis, name, PARTITIONS), _ledger(redis, settings)
    keys = DomainKeys(settings.topics.telemetry)
    # Read first: a day that is sealed meanwhile may lose its records before they are read, and is looked at again.
    through = await SealStore(redis, settings.topics.telemetry).through(name)
    stored: dict[str, bytes] = {}
    ledgers: dict[str, Ledger] = {}
    sealed: dict[str, int] = {}
    for date in await ledger.dates():
        if date <= through:
            sealed[date] = int(await redis.hget(keys.row(rows.ledger(date)), f"commits:{name}") or 0)
        else:
            found: Any = await redis.hgetall(
                keys.row(rows.releases(date, name))
            )  # Any: bytes, but the types allow for text
            stored |= {release.decode(): record for release, record in found.items()}
        summary = await ledger.summary(date)
        places = {query: (reserved.places, reserved.epsilon) for query, reserved in summary.queries.items()}
        ledgers[date] = Ledger(summary.releases, summary.epsilon_sum, summary.sequence, places)
    hats: dict[str, Totals] = {}
    users: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for partition in range(PARTITIONS):
        for (slot, cell), found in (await store.read(partition)).open_hats().items():
            hat = f"{h3.int_to_str(cell)}/{slot}"
            for pseudonym, row in found.users.items():
                known = hats.get(hat, (0, 0, 0, 0))
                hats[hat] = (known[0] + 1, known[1] + row.count, known[2] + row.total, max(known[3], row.maximum))
                users.setdefault((slot.partition("/")[0], pseudonym.hex()), []).append((hat, partition))
    if await SealStore(redis, settings.topics.telemetry).through(name) != through:
        return await _look(redis, settings)
    outcomes = {outcome: records for outcome, records in (await store.outcomes()).items() if records}
    return Seen({}, stored, ledgers, {}, outcomes, hats, users, kept=await _kept(redis, name), sealed=sealed)


async def _kept(redis: AnyRedis, name: str) -> dict[str, Totals]:
    """What the keys themselves hold, whatever their index says."""
    found: dict[str, Totals] = {}
    for partition in range(PARTITIONS):
        prefix = f"{{{name}:{partition}}}:k:"
        keys = {key async for key in redis.scan_iter(match=f"{prefix}*", count=10_000)}  # of two nodes while one moves
        for key in keys:
            slot = key.decode().removeprefix(prefix)
            cells: Any = await redis.hgetall(key)  # Any: as above
            for cell, kept in cells.items():
                hat = f"{cell.decode()}/{slot}"
                for counts, sums, maxima in stripped_columns(without_digest(key.decode(), cell.decode(), kept)):
                    users, readings, total, most = found.get(hat, (0, 0, 0, 0))
                    users, readings, total = users + len(counts), readings + int(counts.sum()), total + int(sums.sum())
                    found[hat] = (users, readings, total, max(most, int(maxima.max())))
    return found


def fold_again(pipeline: Pipeline, end_ms: int, dumped: Path | None = None) -> Log:
    """`hatcast dump telemetry` through `hatcast batch --format kafka`. Every partition's clock ends at `end_ms`.

    dumped   what it was before it was compacted
    """
    dump = dump_telemetry(pipeline, "telemetry.jsonl", _SECONDS)
    if dumped is not None:
        dump = joined(dumped, dump)
    options = ("--format", "kafka", "--contributions", "--json")
    folding = pipeline.begin("batch", dump, *options)
    policy = pipeline.settings.policy
    answers = _answered_again(pipeline, dump) if policy.queries else {}
    releases = _released_with(pipeline, dump) if isinstance(policy.method, ValuesKeys | ContinualKeys) else {}
    tracked = _courses(pipeline, dump, end_ms) if policy.method.settles_days else Courses({}, frozenset())
    folded = folding(_SECONDS)
    assert folded.code == 0, folded.err
    dump.unlink()
    calendar = Calendar(policy)

    def is_final(hat: str) -> bool:
        slot = calendar.slot_named(*hat.split("/")[1:])
        assert slot is not None
        return closes_at(slot, policy) <= end_ms

    def is_waiting(hat: str) -> bool:
        asked = query_periods_of(policy, calendar, *hat.split("/")[1:])
        return any(closes_at(one.closing, policy) > end_ms for one in asked)

    hats: dict[str, Totals] = {hat: tuple(totals) for hat, totals in folded.json["hats"].items()}
    final = frozenset(filter(is_final, hats))
    waiting = frozenset(filter(is_waiting, final))
    return Log(
        folded.json["outcomes"], hats, final, answers, waiting, tracked.courses, tracked.settled, releases=releases
    )


def _courses(pipeline: Pipeline, dump: Path, end_ms: int) -> Courses:
    return courses_of(dump, pipeline.published(committed=False), pipeline.settings, end_ms)


def _answered_again(pipeline: Pipeline, dump: Path) -> dict[str, Record]:
    """The same dump, released once for each limit of its queries: the answers to queries over days."""
    limits = _limits(pipeline.settings)
    return {
        name: record
        for limit in sorted(set(limits.values())) or [0.0]
        for name, record in _released_with(pipeline, dump, limit).items()
        if "query" in record and limits.get((record["query"], record["first_date"]), limit) == limit
    }


def _released_with(pipeline: Pipeline, dump: Path, limit: float = 0.0) -> dict[str, Record]:
    """Into a ledger file of its own; the limit is that of queries that take requests, which `batch` has none of."""
    ledger = pipeline.folder / "again.ledger"
    options = ("--format", "kafka", "--ledger", ledger, "--json")
    asked = [
        {**query, "on_request": False, "speed_limit": limit} if query.get("on_request") else query
        for query in pipeline.table["policy"].get("query", ())
    ]
    config = pipeline.changed({"policy": {"query": asked}} if asked else {}, "again.toml")
    released = pipeline.run("batch", dump, *options, config=config, timeout=_SECONDS)
    for path in pipeline.folder.glob(f"{ledger.name}*"):
        path.unlink()
    records = [json.loads(line, parse_float=Fraction) for line in released.out.splitlines()]
    return {record["release_id"]: record for record in records}


def _ledger(redis: AnyRedis, settings: Settings) -> LedgerStore:
    return LedgerStore(redis, settings.topics.telemetry, settings.policy)


def _run(settings: Settings, work: Callable[[AnyRedis], Awaitable[T]]) -> T:
    async def connected() -> T:
        redis = await connect_redis_async(settings)
        try:
            return await work(redis)
        finally:
            await redis.aclose()

    return asyncio.run(connected())
