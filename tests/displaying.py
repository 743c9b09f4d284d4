"""Records for the map, and a map that serves them."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.config.tables import Address
from hatcast.agents.map.events import EventPosition, Hub
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.record import HatRecord, read_budget, read_estimate, read_release, read_running
from hatcast.agents.map.rendering import AwaitedReleases
from hatcast.agents.map.server import Access, application
from hatcast.agents.map.surroundings import Surroundings
from hatcast.agents.monitoring.server import Listener
from tests.integration.tables import DEFAULTS, merged

CELLS = ("87608b0d2ffffff", "87608b0d6ffffff", "87608b091ffffff", "87608b094ffffff")
DAY_MS = 86_400_000
SETTINGS = parse_settings(merged(DEFAULTS, {"policy": {"name": "city"}}), Path(), {})
FIRST = datetime.fromisoformat("2022-01-02T09:00:00+05:30")


def release(hour: int, cell: str = CELLS[0], mean: str | None = "21.870", policy: str = "city", **more: Any) -> bytes:
    """A release of an hour after 2022-01-02 09:00, as bytes; `mean` as its text; None: suppressed."""
    start = FIRST + timedelta(hours=hour)
    date, slot = start.date().isoformat(), f"{start:%H:%M}"
    head = {
        "release_id": f"{policy}/{date}T{slot}/{cell}",
        "policy_id": "b2:" + "0" * 32,
        "status": "suppressed" if mean is None else "released",
        "seq": hour + 1,
        "cell": cell,
        "date": date,
        "slot": slot,
        "start": start.isoformat(),
        "end": (start + timedelta(hours=1)).isoformat(),
    }
    head |= {name: more.pop(name) for name in head.keys() & more.keys()}
    tail = {"estimator": "levy", "epsilon": 1.0, "relation": "replace", "released_at": "2022-01-02T04:35:03.120Z"}
    value = ""
    if mean is not None:
        low, high = Decimal(mean) - Decimal("1.500"), Decimal(mean) + Decimal("1.500")
        noise = f'"noise":{{"kind":"laplace","scale":0.50}},"interval95":[{low},{high}],"covers":"noise"'
        value = f',"mean":{mean},"raw":{mean},"unit":"km/h",{noise}'
    return f"{json.dumps(head)[:-1]}{value},{json.dumps(tail | more)[1:]}".encode()


def estimate(hour: int, cell: str = CELLS[0], stage: str = "live", road: float = 24.5, **more: Any) -> bytes:
    """An estimate of an hour after 2022-01-02 09:00, as bytes, with all its fields; `more` replaces them."""
    start = FIRST + timedelta(hours=hour)
    date, slot = start.date().isoformat(), f"{start:%H:%M}"
    policy = more.pop("policy", "city")
    half = more.pop("half", 6.0)
    head: dict[str, Any] = {
        "estimate_id": f"{policy}/{date}T{slot}/{cell}",
        "policy_id": "b2:" + "0" * 32,
        "stage": stage,
        "cell": cell,
        "date": date,
        "slot": slot,
        "start": start.isoformat(),
        "end": (start + timedelta(hours=1)).isoformat(),
        "unit": "km/h",
        "road": _normal(road, half),
    }
    if stage != "predicted":
        head |= {"mean": _normal(road + 1, half + 1), "residual_z": 0.4}
    return json.dumps(head | more).encode()


def running(hour: int, cell: str = CELLS[0], name: str = "today", mean: float | None = 25.5, **more: Any) -> bytes:
    """A running mean up to the end of an hour after 2022-01-02 09:00, as bytes; None: no hour has a mean."""
    start = FIRST + timedelta(hours=hour)
    date, slot = start.date().isoformat(), f"{start:%H:%M}"
    policy, half = more.pop("policy", "city"), more.pop("half", 2.0)
    record: dict[str, Any] = {
        "running_id": f"{policy}/{name}/{date}T{slot}/{cell}",
        "policy": policy,
        "policy_id": "b2:" + "0" * 32,
        "stage": "live",
        "name": name,
        "window": name if name in ("24h", "7d") else "today",
        "of": "estimates",
        "cell": cell,
        "date": date,
        "slot": slot,
        "start": f"{date}T00:00:00+05:30",
        "end": (start + timedelta(hours=1)).isoformat(),
        "slots": start.hour + 1,
        "unit": "km/h",
    }
    made = {} if mean is None else {"weights": "slots", "mean": _normal(mean, half)}
    return json.dumps(record | made | more).encode()


def continual(hour: int, cell: str = CELLS[0], mean: str | None = "27.500", policy: str = "week", **more: Any) -> bytes:
    """A release of a continual policy as of an hour after 2022-01-02 09:00, as bytes; None: suppressed.

    The horizon is the week of that Sunday, or the next one.
    """
    day = (FIRST + timedelta(hours=hour)).date()
    first = day - timedelta(days=day.weekday())
    part: dict[str, Any] = {"horizon": first.isoformat(), "last_date": (first + timedelta(days=6)).isoformat()}
    part |= {"index": hour, "slots": 168, "kind": "toeplitz", "max_cells": 20, "delta": 1e-8, "count": 40 + hour}
    if mean is not None:
        part["sum"] = {"value": 1100.0, "sd": 30.612, "interval95": [1040.0, 1160.0]}
    head = {"estimator": "continual", "start": f"{first}T00:00:00+05:30", "running": part}
    return release(hour, cell, mean, policy, **head, **more)


def answered(slot: str = "09:00", cell: str = CELLS[0], query: str = "month-speed", **more: Any) -> bytes:
    """An answer to a query over 31 days, as bytes; `more` replaces and adds fields."""
    policy, first, last = (
        more.pop(*each) for each in (("policy", "city"), ("first_date", "2021-12-03"), ("last_date", "2022-01-02"))
    )
    record = {
        "release_id": f"{policy}/{last}T{slot}/{cell}/{query}",
        "policy_id": "b2:" + "0" * 32,
        "status": "released",
        "seq": 52,
        "query": query,
        "kind": "mean_speed",
        "cell": cell,
        "date": last,
        "slot": slot,
        "start": f"{first}T{slot}:00+05:30",
        "end": f"{last}T{int(slot[:2]) + 1:02}{slot[2:]}:00+05:30",
        "first_date": first,
        "last_date": last,
        "days": 31,
        "days_used": 31,
        "user_days": 527,
        "mean": 21.836,
        "raw": 21.836,
        "unit": "km/h",
        "noise": {"kind": "laplace", "scale": 1.005},
        "interval95": [18.824, 24.848],
        "covers": "noise",
        "epsilon": 0.138888889,
        "epsilon_user_day": 12.361111121,
        "most_hats": 89,
        "relation": "replace",
        "released_at": "2022-01-02T04:35:03.120Z",
    }
    return json.dumps(record | more).encode()


def clustered(clustering: str = "c" * 32, status: str = "released", **more: Any) -> bytes:
    """A result of a clustering of 2022-01-02 09:00 and 10:00, or a round, as bytes; `more` replaces and adds fields."""
    record: dict[str, Any] = {
        "status": status,
        "clusters_id": f"{clustering}/{'result' if status == 'released' else 1}",
        "clustering": clustering,
        "policy": "city",
        "policy_id": "b2:" + "0" * 32,
        "date": "2022-01-02",
        "slots": ["09:00", "10:00"],
        "epsilon": 4.0,
        "iterations": 3,
        "seed": 1,
    }
    if status == "round":
        return json.dumps(record | {"round": 1, "closes": 1641104640000, "centres": [[20.0, 20.0]]} | more).encode()
    centres = ([18.5, 19.25], [38.125, 36.0])
    clusters = [
        {
            "centre": centre,
            "users": 212.4 - 50 * at,
            "noise_deviation": [0.8, 0.8],
            "central_weight": [0.75, 0.75],
            "last_moved": 3,
        }
        for at, centre in enumerate(centres)
    ]
    result = {"relation": "replace", "privacy_unit": "user_day", "blend": "pwh", "unit": "km/h", "clusters": clusters}
    users = {"users": {"central": 300, "local": 75}, "ledger": f"clustering-{clustering[:12]}"}
    return json.dumps(record | result | users | more).encode()


def filed(record: bytes, partition: int, offset: int) -> HatRecord:
    """A release, an estimate or a running mean, as the map indexes it."""
    reads = {b'"estimate_id"': read_estimate, b'"running_id"': read_running}
    read = next((each for name, each in reads.items() if name in record), read_release)(record, partition, offset)
    assert read is not None
    return read


def _normal(value: float, half: float) -> dict[str, Any]:
    low, high = max(0.0, value - half), value + half
    return {"value": round(value, 2), "sd": round(half / 1.96, 2), "interval95": [round(low, 2), round(high, 2)]}


def budget(date: str = "2022-01-02", seq: int = 1, policy: str = "city", **more: Any) -> bytes:
    """A budget record, as bytes. `more` replaces and adds fields."""
    record = {"policy": policy, "policy_id": "b2:" + "0" * 32, "date": date, "seq": seq, "releases": seq}
    spent = {"epsilon_sum": 3.0, "epsilon_user_day": 1.5, "limit": 105.0, "day_bound": 89.0}
    return json.dumps(record | spent | {"epsilon_delta": {"epsilon": 1.4, "delta": 1e-6}} | more).encode()


def feed(
    records: Iterable[bytes] = (),
    policy: str = "city",
    partitions: int = 2,
    *,
    ready: bool = True,
    estimates: bool = True,
    running: bool = True,
) -> Feed:
    """A map that has read these records, and is `ready` or still reads; with or without two topics."""
    zeros = [0] * partitions
    position = EventPosition("1f0c3a52", zeros[:], [0], zeros * estimates, zeros * running)
    made = Feed(DAY_MS, Hub(), position, policy)
    publish(made, records)
    if ready:
        made.serve()
    return made


def publish(made: Feed, records: Iterable[bytes]) -> None:
    """More records on the topics, in one batch, spread over the partitions."""
    with made.batch() as changes:
        for record in records:
            if b'"epsilon_sum"' in record:
                changes.budget(read_budget(record, made.position.budget[0]), 0)
                continue
            if b'"clusters_id"' in record:
                changes.listed(made.clusterings, record)
                continue
            if b'"first_date"' in record:
                changes.listed(made.answers, record)
                continue
            partition = sum(json.loads(record)["cell"].encode()) % len(made.position.means)
            if b'"estimate_id"' in record:
                changes.add(read_estimate(record, partition, made.position.estimates[partition]))
            elif b'"running_id"' in record:
                changes.add(read_running(record, partition, made.position.running[partition]))
            elif (read := read_release(record, partition, made.position.means[partition])) is not None:
                changes.add(read)


@asynccontextmanager
async def served(
    made: Feed, surroundings: Surroundings | None = None, access: Access | None = None, *, most: int = 100
) -> AsyncIterator[tuple[str, ClientSession]]:
    """The map's address, and a client."""
    app = application(made, "A <city>", AwaitedReleases(SETTINGS), surroundings, access)
    listener = Listener(app, most, (access or Access()).headers, cancel_handlers=True)
    try:
        address = await listener.start(Address("127.0.0.1", 0))
        async with ClientSession(auto_decompress=False) as client:
            yield f"http://{address}", client
    finally:
        await listener.stop()


def values_of(text: bytes) -> Mapping[str, Any]:
    """JSON whose numbers stay their text: what the page shows."""
    found: Mapping[str, Any] = json.loads(text, parse_float=str, parse_int=str)
    return found
