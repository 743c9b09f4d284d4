"""The tables `[topics]` and `[display]` of hatcast.toml, with topic names, addresses to listen on and web origins."""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.toml_tables import Duration, duration_ms, such_as

ANY_ORIGIN: Final = "*"
_HOST: Final = re.compile(r"[a-z0-9.-]+|[0-9a-f:.]+")  # a name or an address: no wildcard, nothing that ends a header
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Address to listen on. Port 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, key: str) -> Address:
    """Parse `host:port`. Raises SettingError, which names the key."""
    with suppress(ValueError):  # the port is not a number
        parts = urlsplit(f"//{text}")
        if parts.netloc == text and parts.username is None and parts.hostname and parts.port is not None:
            return Address(parts.hostname, parts.port)
    raise SettingError(key, f"{text!r} is not an address", 'write "127.0.0.1:9464"; port 0 takes any free port')


def parse_origins(texts: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Parse origins such as `https://city.example`, as browsers write them; `*` alone is any origin.

    Raises SettingError, which names the key.
    """
    for text in texts:
        if text != ANY_ORIGIN and text != _origin(text):
            raise SettingError(
                key,
                f"{text!r} is not an origin",
                'write scheme and host, and the port if it is not the usual one, such as "https://city.example"',
            )
    if ANY_ORIGIN in texts and len(texts) > 1:
        raise SettingError(key, '"*" is any origin already', 'write ["*"] alone, or leave it out')
    return texts


def _origin(text: str) -> str | None:
    """Return the origin of an address of a web page, as browsers write it; None if it has none."""
    with suppress(ValueError):  # the port is not a number
        parts = urlsplit(text)
        if parts.scheme in _PORTS and parts.hostname and _HOST.fullmatch(parts.hostname):
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
            return f"{parts.scheme}://{host}{port}"
    return None


REGISTRY_SUFFIX: Final = ".hatcast"
_NAMED: Final = (  # topics, by their keys
    *("telemetry", "means", "queries", "budget", "estimates", "running", "dead_letters"),
    *("reports", "clusters", "cluster_answers"),
)
_NAME_MAX: Final = 249  # Kafka's own limit
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


class TopicsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[topics]`: names and settings of the topics."""

    prefix: Annotated[str, such_as("surat.")] = ""
    """prefix of every topic name that is not written in this table, such as `"surat."`"""
    telemetry: str = "telemetry"
    """input: key = vehicle id in UTF-8; also the name of the budget's domain. Under `add_remove` it has
    `message.timestamp.type = LogAppendTime`, so recordings cannot be replayed into it: use `batch --ledger`"""
    telemetry_format: str = "jsonl"
    """or another of [feeds.md](feeds.md): one reading per record"""
    telemetry_partitioner: str = "murmur2"
    """partitioner of its producers: `murmur2` (Java, aiokafka, kafka-python) or `crc32` (librdkafka)"""
    telemetry_retention: Duration = "72h"
    """its retention, if hatcast creates it: 72h or more; `"none"` for recordings"""
    means: str = "hats.means"
    """output: the means of HATs"""
    queries: str = "hats.queries"
    """output: answers to queries over days"""
    budget: str = "hats.budget"
    """output: the charges of each day"""
    estimates: str = "hats.estimates"
    """output: estimates of every cell, which are made from the means and cost nothing"""
    running: str = "hats.running"
    """output: running means of `[[policy.running]]`, which are made from the means and cost nothing"""
    dead_letters: str = "hats.dead-letters"
    """output, for operators: place and reason of each record that could not be decoded"""
    reports: str = "reports"
    """input: devices' reports ([device.md](device.md)), if the estimator is [hybrid](hybrid.md); key = the device's
    id of the day. Created with the settings of telemetry"""
    clusters: str = "hats.clusters"
    """output: rounds and results of `hatcast cluster live` ([cluster.md](cluster.md#live))"""
    cluster_answers: str = "cluster-answers"
    """input: devices' answers to these rounds"""

    @property
    def registry(self) -> str:
        """The domain's registry topic. Its name is not configurable, so that all workers of the telemetry find it."""
        return self.telemetry + REGISTRY_SUFFIX

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all topics."""
        return *(getattr(self, role) for role in _NAMED), self.registry

    def prefixed(self, written: Collection[str]) -> "TopicsTable":
        """Return the table with `prefix` before every default topic name. `written`: the keys in the file."""
        names = {role: self.prefix + getattr(self, role) for role in _NAMED if role not in written}
        return msgspec.structs.replace(self, **names)

    def check_names(self) -> None:
        """Raise SettingError if a name is invalid for Kafka, or two topics have the same name."""
        if len(set(self.names)) != len(self.names):
            raise SettingError("topics", "two topics have the same name", "give each its own name")
        for name in self.names:
            if len(name) > _NAME_MAX or not _TOPIC_NAME.fullmatch(name):
                raise SettingError(
                    "topics",
                    f"{name!r} is not a valid topic name",
                    f"use at most {_NAME_MAX} letters, digits, dots, underscores and hyphens",
                )


_HOUR_MS: Final = 3_600_000


class DisplayTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[display]`: the live map."""

    listen: str = "127.0.0.1:8080"
    """address of the page; `--host` and `--port` override its parts"""
    keep: Duration = "72h"
    """slots that ended longer before the newest one are dropped; `"1h"` to `"32d"`. Memory grows with it: about 2 kB
    for each hexagon and slot, a release and an estimate"""
    title: Annotated[str | None, such_as("Bus speeds, hour by hour")] = None
    """title of the page; without it the policy's name and what it publishes, so name a policy after its city"""
    gtfs: Annotated[str | None, such_as("timetable.zip")] = None
    """a GTFS timetable (zip): the map draws its routes and stops, and says which are in a hexagon
    ([map.md](map.md#where-a-hexagon-is))"""
    basemap: Annotated[str | None, such_as("city.pmtiles")] = None
    """a PMTiles archive of vector tiles: the map draws it under the hexagons"""
    allow_origins: Annotated[tuple[str, ...], such_as(["https://city.example"])] = ()
    """origins whose pages may read the API (CORS), such as `["https://city.example"]`; `["*"]`: all. None by default
    ([API](consume.md#from-other-pages))"""
    allow_framing: Annotated[tuple[str, ...], such_as(["https://city.example"])] = ()
    """origins whose pages may show the map in a frame, such as `["https://city.example"]`; `["*"]`: all. None by
    default"""


@dataclass(frozen=True, slots=True)
class DisplaySettings:
    """`[display]`, parsed."""

    listen: Address
    keep_ms: int  # slots that ended longer before the newest one are not shown
    title: str
    gtfs: Path | None = None  # timetable whose routes and stops are drawn; None: none
    basemap: Path | None = None  # PMTiles archive that is drawn under the hexagons; None: none
    allow_origins: tuple[str, ...] = ()  # origins whose pages may read the API; `*`: all
    allow_framing: tuple[str, ...] = ()  # origins whose pages may show the map in a frame; `*`: all


def display_settings(table: DisplayTable, folder: Path) -> DisplaySettings:
    """Parse `[display]`; the map opens its files. Raises SettingError."""
    keep_ms = duration_ms(table.keep, "display.keep")
    if not _HOUR_MS <= keep_ms <= 32 * 24 * _HOUR_MS:
        raise SettingError("display.keep", f"{table.keep!r} is out of range", 'use "1h" to "32d"')
    return DisplaySettings(
        listen=parse_address(table.listen, "display.listen"),
        keep_ms=keep_ms,
        title=table.title or "",
        gtfs=None if table.gtfs is None else folder / table.gtfs,
        basemap=None if table.basemap is None else folder / table.basemap,
        allow_origins=parse_origins(table.allow_origins, "display.allow_origins"),
        allow_framing=parse_origins(table.allow_framing, "display.allow_framing"),
    )
