"""docs/operations.md: its table of three sizes is computed here from the measured numbers on the same page."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from hatcast.agents.map.history import MAX_RECORDS

PAGE: Final = Path(__file__).parents[2] / "docs" / "operations.md"
INTERVAL_S: Final = 10
RETENTION_S: Final = 72 * 3600
UNSEALED_DAYS: Final = 2  # yesterday, until its last hour is closed, and today
USED: Final = 0.5  # of a core and of a node's memory: the other half is for catching up, a fork, another's partitions
NODE_GB: Final = 32
COPIES: Final = 3
KEPT_HOURS: Final = 72  # display.keep
LINKS_GBIT: Final = (1, 10)
USERS_OF_A_RELEASE: Final = 300  # those of release_cpu_ms
UNITS: Final = {"Mi": 2**20, "Gi": 2**30}


def test_the_table_of_sizes_follows_from_the_measured_numbers() -> None:
    measured, sizes = _measured(), _table("| size |")
    columns = list(zip(*sizes.values(), strict=True))
    assert len(columns) == 3
    for number, column in enumerate(columns):
        given = dict(zip(sizes, column, strict=True))
        for name, value in _computed(measured, given):
            assert sizes[name][number] == value, f"{name}: the measured numbers give {value}"


def test_every_row_of_the_table_of_sizes_is_given_or_computed() -> None:
    given = {"vehicles", "hexagons with vehicles", "partitions of telemetry"}
    sizes = _table("| size |")
    first = {name: values[0] for name, values in sizes.items()}
    assert sizes.keys() == given | {name for name, _ in _computed(_measured(), first)}


def test_the_values_of_the_chart_have_room_for_the_sizes() -> None:
    sizes, values = _table("| size |"), {name.strip("`"): cells for name, cells in _table("| value |").items()}
    chart = yaml.safe_load((PAGE.parents[1] / "ops" / "helm" / "hatcast" / "values.yaml").read_text())
    for name, (city, *_) in values.items():
        found = chart
        for key in name.split("."):
            found = found[key]
        assert city == (str(found).lower() if isinstance(found, bool) else str(found)), (
            f"{name}: the city's is not the default"
        )
    assert values["worker.replicas"] == sizes["workers"]
    stopped = [_number(text) * 1e9 for text in sizes["memory of a worker while one is stopped (GB)"]]
    for needed, request, limit in zip(
        stopped, values["worker.resources.requests.memory"], values["worker.resources.limits.memory"], strict=True
    ):
        assert _bytes(request) >= needed
        assert _bytes(limit) >= 1.5 * needed
    for enabled, text, limit in zip(
        values["display.enabled"],
        sizes["memory of the map, 72 h at most (GB)"],
        values["display.resources.limits.memory"],
        strict=True,
    ):
        assert enabled == "false" or _bytes(limit) >= 2 * _number(text) * 1e9, "estimates are as many as releases"


def _computed(measured: dict[str, float], given: dict[str, str]) -> Iterator[tuple[str, str]]:
    vehicles, hexagons = _number(given["vehicles"]), _number(given["hexagons with vehicles"])
    rate = vehicles / INTERVAL_S
    yield "readings/s", _text(rate)
    cores = rate * measured["reading_cpu_us"] / 1e6
    yield "cores for readings", _text(cores)
    workers = max(2, math.ceil(cores / USED))
    yield "workers", _text(workers)
    entries = vehicles * measured["hats_of_vehicle"]
    yield "users in HATs at the end of an hour", _text(entries)
    worker_mb = measured["empty_worker_mb"] + entries * measured["worker_bytes"] / workers / 1e6
    yield "memory of a worker (GB)", _text(worker_mb / 1000)
    stopped_mb = measured["empty_worker_mb"] + entries * measured["worker_bytes"] / (workers - 1) / 1e6
    yield "memory of a worker while one is stopped (GB)", _text(stopped_mb / 1000)
    load_s = entries * measured["load_us"] / workers / 1e6
    yield "CPU to load it after a rebalance (s)", _text(load_s)
    opened = entries * measured["redis_bytes"] / 1e9
    for link in LINKS_GBIT:
        yield f"reading all of it from Redis, {link} Gbit/s (s)", _text(opened * 8 / link)
    yield "Redis, open hour (GB)", _text(opened)
    ledger = hexagons * 24 * UNSEALED_DAYS * measured["release_bytes"] / 1e9
    yield "Redis, ledger on one node (GB)", _text(ledger)
    yield f"Redis nodes of {NODE_GB} GB", _text(math.ceil((opened + ledger) / (USED * NODE_GB)))
    yield "releases at an hour's close", _text(hexagons)
    users = entries / hexagons
    yield "users of each", _text(users)
    release_ms = measured["release_cpu_ms"] + (users - USERS_OF_A_RELEASE) * measured["release_user_us"] / 1000
    yield "CPU of a worker for them (s)", _text(hexagons * release_ms / 1000 / workers)
    yield "CPU of Redis for them (s)", _text(hexagons * measured["release_redis_ms"] / 1000)
    hours = min(KEPT_HOURS, max(1, MAX_RECORDS // hexagons))
    yield "hours that the map keeps", _text(hours)
    map_mb = measured["empty_map_mb"] + hours * hexagons * measured["map_bytes"] / 1e6
    yield "memory of the map, 72 h at most (GB)", _text(map_mb / 1000)
    disk = rate * RETENTION_S * measured["kafka_bytes"] / 1e9
    yield "Kafka disk, one copy of 72 hours (GB)", _text(disk)
    yield "Kafka disk, three copies (GB)", _text(COPIES * disk)
    yield "network of a copy (MB/s)", _text(rate * measured["kafka_bytes"] / 1e6)


def _measured() -> dict[str, float]:
    return {name.strip("`"): _number(values[0]) for name, values in _table("| measured |").items()}


def _table(head: str) -> dict[str, list[str]]:
    """Return first cell -> other cells of the table whose first line begins with `head`."""
    (table,) = re.findall(rf"^{re.escape(head)}.*\n\|[-:| ]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _bytes(text: str) -> float:
    return float(text[:-2]) * UNITS[text[-2:]]


def _text(value: float) -> str:
    """Two significant digits, and all digits of a whole number below 100."""
    if value >= 100:
        return f"{round(value, 1 - math.floor(math.log10(value))):,.0f}"
    return f"{value:.2g}"
