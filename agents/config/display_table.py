"""`[display]`: the live map."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from hatcast.agents.config.address import Address, parse_address, parse_origins
from hatcast.stream.errors import SettingError
from hatcast.stream.policy.toml_tables import Duration, duration_ms, such_as

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
    """`[display]`, parsed.

    keep_ms         slots that ended longer before the newest one are not shown
    gtfs            timetable whose routes and stops are drawn; None: none
    basemap         PMTiles archive that is drawn under the hexagons; None: none
    allow_origins   origins whose pages may read the API; `*`: all
    allow_framing   origins whose pages may show the map in a frame; `*`: all
    """

    listen: Address
    keep_ms: int
    title: str
    gtfs: Path | None = None
    basemap: Path | None = None
    allow_origins: tuple[str, ...] = ()
    allow_framing: tuple[str, ...] = ()


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
