"""`hatcast status`: show the stored state."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from hatcast.agents.cli.options import address_of, config_option, json_option
from hatcast.agents.cli.status_why import NEXT, explain, lines, read_hour, slot_asked
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.config.tables import Address
from hatcast.agents.kafka.aio import KafkaError, UnknownTopicOrPartitionError
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topics import topic_range
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.identity import partition_count_error, started_partitions
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.queries import count_unanswered
from hatcast.agents.tables.terminal import print_fitted, table
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar, later, min_watermark
from hatcast.stream.fold.users import horizon_of
from hatcast.stream.ledger.progress import Mark, Progress
from hatcast.stream.policy.policy import ContinualKeys, Policy, Relation
from hatcast.stream.release.tracker import closed_by
from hatcast.stream.time_zones import TIME_ZONE_DATA
from hatcast.stream.units import NANO


@click.command(epilog="Example:  hatcast status --why 09:00")
@config_option
@json_option
@click.option(
    "--why",
    "hour",
    metavar="HOUR",
    help="Show what an hour waits for: 2022-01-02T09:00, 09:00 or next, which closes next.",
)
@click.option(
    "--listen",
    callback=address_of("--listen"),
    metavar="ADDRESS",
    help="Serve a page that draws the pipeline, at an address such as 127.0.0.1:8090 that the public cannot reach.",
)
def command(config: Path, as_json: bool, hour: str | None, listen: Address | None) -> None:
    """Show offsets, watermarks, outcomes, open and unpublished HATs of the stored state. For operators: not private."""
    settings = load_settings(config)
    if listen is not None:
        from hatcast.agents.cli.status_page import serve

        asyncio.run(serve(listen, hour or NEXT, lambda asked: whole_status(settings, asked)))
        return
    status = whole_status(settings, hour)
    if as_json:
        click.echo(msgspec.json.encode(status))
    elif hour is not None:
        click.echo("\n".join(lines(status["why"])))
    else:
        _show(status, settings)


def whole_status(settings: Settings, hour: str | None) -> dict[str, Any]:
    """Return the status as `hatcast status --json` prints it; `hour`: the value of `--why`."""
    return asyncio.run(read_status(settings, hour)) | {"registry": asyncio.run(read_registered(settings))}


@dataclass(frozen=True, slots=True)
class _Topic:
    """Stored state of a topic's partitions; watermarks in ms UTC."""

    watermarks: list[int | None]
    offsets: list[int | None]
    outcomes: dict[str, int]

    def report(self, ranges: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Return the state as JSON. `ranges`: (first, end) offsets of each partition of the topic."""
        # A topic may have grown since the first start: what is in its new partitions is not folded.
        rows = zip_longest(self.offsets, [end for _, end in ranges], self.watermarks)
        return {
            "partitions": [
                {"partition": partition, "offset": offset, "end": end, "clock": watermark}
                for partition, (offset, end, watermark) in enumerate(rows)
            ],
            "outcomes": {outcome: records for outcome, records in self.outcomes.items() if records},
        }


async def _read_topic(store: PartitionStore) -> _Topic:
    return _Topic(await store.watermarks(), await store.offsets(), await store.outcomes())


async def read_status(settings: Settings, hour: str | None = None) -> dict[str, Any]:
    """Return the stored state of the policy in `settings`, and the end offsets of its topics; `hour`: of `--why`."""
    policy, calendar = settings.policy, Calendar(settings.policy)
    redis = await connect_redis_async(settings)
    try:
        partitions = await started_partitions(redis, DomainKeys(settings.topics.telemetry), policy.name)
        store = HatStore.of(redis, policy, partitions)
        ledger = LedgerStore(redis, settings.topics.telemetry, policy)
        watermarks = await store.watermarks()
        topics = {"": await _read_topic(store.telemetry)}
        if store.reports is not None:
            topics["reports"] = await _read_topic(store.reports)
        slots = await store.open_slots()
        cells = {slot: await store.cells(slot) for slot in slots}
        total = await ledger.total()
        unpublished = {date: n for date in await ledger.unsealed_dates() if (n := await ledger.count_unpublished(date))}
        progress = await ledger.progress.read()
        next_policy = await ledger.next_policy()
        retained = RetainedStore(redis, policy.name, partitions)
        tracker = {"tracker": await read_tracker(store, ledger, policy)} if policy.method.settles_days else {}
        keys = policy.method
        horizons = {"horizons": await read_horizons(ledger, keys)} if isinstance(keys, ContinualKeys) else {}
        queries = {}
        if policy.queries:
            count = await count_unanswered(store, retained, ledger, policy)
            queries = {"kept_slots": sorted(await retained.slots()), "unanswered": count}
        slot = None if hour is None else slot_asked(calendar, policy, hour, watermarks, now_ms())
        stored = None if slot is None else await read_hour(store, ledger, policy, slot)
    finally:
        await redis.aclose()
    watermark = min_watermark(watermarks)
    names = {"": settings.topics.telemetry, "reports": settings.topics.reports}
    reports = {key: topic.report(topic_range(settings, names[key])) for key, topic in topics.items()}
    rows = {names[key]: report["partitions"] for key, report in reports.items()}
    why = {} if slot is None or stored is None else {"why": explain(settings, calendar, slot, stored, rows, now_ms())}
    return (
        _slots(policy, calendar, progress, store.partitions)
        | queries
        | tracker
        | horizons
        | {
            "policy": policy.name,
            "policy_id": policy.policy_id,
            **reports.pop(""),
            **reports,
            "started_with": store.partitions,
            "time_zone_data": TIME_ZONE_DATA,
            # Every slot that ends at or before this time is final.
            "closed_through": None if watermark is None else calendar.local(watermark - policy.lateness_ms).isoformat(),
            "open_hats": sum(map(len, cells.values())),
            "open_slots": sorted(slots),
            "unpublished": unpublished,
            "replaced_by": None if next_policy is None else {"policy": next_policy.name, "from": next_policy.from_date},
        }
        | why
        | ({} if policy.total_limit is None else {"total": total.spent / NANO, "total_limit": policy.total_limit})
    )


async def read_horizons(ledger: LedgerStore, keys: ContinualKeys) -> list[dict[str, Any]]:
    """Return the horizons of which running sums are stored, oldest first.

    closed   status of all further HATs of the horizon; None: its sums go on
    """
    return [
        {
            "first_date": name,
            "last_date": horizon_of(keys, name).dates[-1],
            "cells": await ledger.horizons.cells(name),
            "closed": (await ledger.horizons.read(name, [])).closed,
        }
        for name in await ledger.horizons.known()
    ]


async def read_registered(settings: Settings) -> dict[str, Any]:
    """Return the registry topic and its records, by policy name. Raises HatcastError."""
    registry = Registry(settings)
    try:
        policies = (await registry.read()).policies
    except UnknownTopicOrPartitionError:  # started by a version without registries
        policies = {}
    except KafkaError as error:
        raise HatcastError(
            f"lost the connection to {broker_name(settings)} ({type(error).__name__}): check that it runs"
        ) from None
    return {"topic": registry.topic, "policies": dict(policies)}


def _slots(policy: Policy, calendar: Calendar, progress: Progress, partitions: int) -> dict[str, str | None]:
    """Return the progress by slots, which replaces that by open HATs under `add_remove`."""
    if policy.relation is not Relation.ADD_REMOVE:
        return {}
    first, through = progress.first_ms, progress.through(Mark.PUBLISHED, range(partitions))
    return {
        "first_slot": None if first is None else calendar.local(first).isoformat(),
        # Every slot from the first on that ends at or before this time is published.
        "released_through": calendar.local(through).isoformat() if through else None,
    }


def _show(status: dict[str, Any], settings: Settings) -> None:
    console = Console()
    calendar = Calendar(settings.policy)
    _show_topic(console, calendar, settings.topics.telemetry, status)
    if "reports" in status:
        _show_topic(console, calendar, settings.topics.reports, status["reports"])
    console.print(f"closed through  {status['closed_through'] or 'nothing yet: a partition has no watermark'}")
    if "first_slot" in status:
        console.print(f"first slot      {status['first_slot'] or 'unknown: no worker has stored it'}")
        console.print(f"released through {status['released_through'] or 'nothing yet'}")
    console.print(f"time zone data  {status['time_zone_data']}", highlight=False)
    console.print(f"open HATs       {status['open_hats']} in {len(status['open_slots'])} slots")
    console.print(f"unpublished     {sum(status['unpublished'].values())} releases")
    if "unanswered" in status:
        console.print(
            f"unanswered      {status['unanswered']} queries; {len(status['kept_slots'])} slots retained for them"
        )
    if "tracker" in status:
        _show_tracker(console, status["tracker"])
    for horizon in status.get("horizons", []):
        closed = "" if horizon["closed"] is None else f"; no more sums of it: {horizon['closed']}"
        dates = f"{horizon['first_date']} to {horizon['last_date']}"
        console.print(f"horizon         {dates}: running sums of {horizon['cells']} cells{closed}", highlight=False)
    if len(status["partitions"]) != status["started_with"]:
        error = partition_count_error(status["policy"], status["started_with"], len(status["partitions"]))
        console.print(f"partitions      {error}", soft_wrap=True, highlight=False)
    if (next_policy := status["replaced_by"]) is not None:
        console.print(f"replaced        by {next_policy['policy']} from {next_policy['from']} on")
    for name, record in status["registry"]["policies"].items():
        console.print(
            f"registered      {name}: {record.policy_id}, {record.partitions} partitions by {record.partitioner},"
            f" {record.timezone}, topic id {record.telemetry_id or 'unknown'}"
        )
    if "total_limit" in status:
        console.print(
            f"spent           {status['total']:g} of {status['total_limit']:g} for all days of a vehicle together"
        )


def _show_tracker(console: Console, tracker: Mapping[str, Any]) -> None:
    console.print(f"tracker         settled through {tracker['settled'] or 'no date yet'}")
    if tracker["date"] is not None:
        ended = "it has ended and is being settled" if tracker["ended"] else "it has not ended"
        closed = "" if tracker["closed"] is None else f"; no more queries: {tracker['closed']}"
        console.print(f"                at work on {tracker['date']}: {ended}{closed}", highlight=False)


def _show_topic(console: Console, calendar: Calendar, name: str, topic: Mapping[str, Any]) -> None:
    def row_of(partition: Mapping[str, Any]) -> tuple[str, ...]:
        offset, end, clock = partition["offset"], partition["end"], partition["clock"]
        behind = "" if offset is None else str(end - offset)
        watermark = "" if clock is None else calendar.local(clock).isoformat(sep=" ", timespec="seconds")
        return str(partition["partition"]), str(offset or 0), str(end), behind, watermark

    headings = ("partition", "offset", "end", "behind", "watermark")
    print_fitted(console, table(f"Partitions of {name}", "", headings, map(row_of, topic["partitions"]), left=0))
    outcomes = ((outcome, f"{records:,}") for outcome, records in topic["outcomes"].items())
    print_fitted(console, table(f"Records of {name} by outcome", "", ("outcome", "records"), outcomes))


async def read_tracker(store: HatStore, ledger: LedgerStore, policy: Policy) -> dict[str, Any]:
    """Return a tracker's stored state, for operators.

    settled   local date through which days are settled; None: none is
    date      local date at work, the first one with contributions that is not settled; None: there is none
    ended     whether no partition accepts readings of that date any more
    closed    status of the HATs for which no more queries are made on that date; None: queries are made
    """
    calendar, settled = Calendar(policy), await ledger.tracker.settled()
    dates = {slot.partition("/")[0] for slot in await store.open_slots()}
    date = min((each for each in dates if each > settled), default=None)
    if date is None:
        return {"settled": settled or None, "date": None, "ended": None, "closed": None}
    watermark = min_watermark(await store.watermarks())
    ends_ms = calendar.previous_day_end(later(date, 1)) + policy.lateness_ms
    complete_from = await store.complete_from()
    lost = complete_from is not None and calendar.day_start(date) < complete_from
    return {
        "settled": settled or None,
        "date": date,
        "ended": watermark is not None and watermark >= ends_ms,
        "closed": closed_by(await ledger.summary(date), lost=lost),
    }
