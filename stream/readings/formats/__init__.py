"""Telemetry formats: decoders of records to readings. One module per format; only it knows the format's field names.

To add a format: a module here, an entry below, a sample in tests/data/feeds and a row in docs/feeds.md, which explains
the steps. A decoder never raises on a record: it returns None for one that it cannot decode (outcome `undecodable`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from types import MappingProxyType
from typing import Final

from hatcast.stream.errors import SettingError
from hatcast.stream.readings.formats import capmetro, gtfs_rt, hfp, itms, jsonl, siri
from hatcast.stream.readings.formats._choice import MAPPED, PARQUET, in_zone, mapped_format
from hatcast.stream.readings.formats._columns import Columns
from hatcast.stream.readings.formats._mapped import NO_VALUE, Wanted
from hatcast.stream.readings.formats._mapped_csv import header_of
from hatcast.stream.readings.formats._times import zone_of
from hatcast.stream.readings.formats.interface import Format, Recorded, Table
from hatcast.stream.readings.positions import DeriveSpeed
from hatcast.stream.readings.reading import ValueUnits

FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        each.name: each
        for each in (
            jsonl.FORMAT,
            itms.FORMAT,
            gtfs_rt.FORMAT,
            gtfs_rt.PLATES,
            gtfs_rt.LABELS,
            hfp.FORMAT,
            siri.FORMAT,
            capmetro.FORMAT,
        )
    }
)

FORMAT_NAMES: Final = (*FORMATS, *(name for name in MAPPED if name not in FORMATS))
"""All formats: of fixed fields, and with named columns"""


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """A format by name.

    columns   for `csv`, `parquet` and `jsonl`, and `times_in` of all; None: the fixed fields of the format, and for
              `csv` and `parquet` those that the header shows
    derive    which speeds are derived from positions; None: none
    header_time  whether records without a time have that of their message's header
    """

    name: str
    columns: Columns | None = None
    derive: DeriveSpeed | None = None
    header_time: bool = False

    @property
    def mapped(self) -> bool:
        """Whether columns are named, or found by a header."""
        return self.name not in FORMATS or (self.columns is not None and not self._only_times)

    @property
    def _only_times(self) -> bool:
        """Whether the columns name a time zone and nothing else, for a format of fixed fields."""
        columns = self.columns
        return self.name not in MAPPED and columns is not None and columns == Columns(times_in=columns.times_in or "")

    def format(self, units: ValueUnits, zone: tzinfo, *, live: bool = False) -> Format:
        """Return the format whose readings carry the values of a policy.

        zone   of times without an offset
        live   it decodes single records, such as messages, and not only recordings
        Raises SettingError.
        """
        if not self.mapped:
            feed = format_with(self.name, units)
            if self.columns is not None and self.columns.times_in is not None:
                feed = in_zone(feed, zone_of(self.columns.times_in))
            return _with_header_times(feed) if self.header_time else feed
        if self.header_time:
            raise _no_header(self.name)
        return mapped_format(
            self.name, self.columns or Columns(), Wanted(zone, tuple(units.others), units.single), live=live
        )


def _with_header_times(feed: Format) -> Format:
    if feed.header_times is None:
        raise _no_header(feed.name)
    return feed.header_times()


def _no_header(name: str) -> SettingError:
    return SettingError("header_time", f"{name} messages have no header with a time", "leave it out")


def format_with(name: str, units: ValueUnits) -> Format:
    """Return a format whose readings carry the values that a policy releases.

    Raises SettingError if records of this format do not have them.
    """
    feed = FORMATS[name]
    if units.single is not None:
        if feed.single is None:
            able = [each.name for each in FORMATS.values() if each.single is not None]
            raise SettingError(
                "policy.value", f"{name} records have no value but the speed", f"use {', '.join(able)}, or remove it"
            )
        return feed.single(*units.single)
    if not units.others:
        return feed
    if feed.values is None:
        able = [each.name for each in FORMATS.values() if each.values is not None]
        raise SettingError(
            "policy.values", f"{name} records have no value but the speed", f"use {', '.join(able)}, or remove it"
        )
    return feed.values(units.others)


__all__ = [
    "FORMATS",
    "FORMAT_NAMES",
    "NO_VALUE",
    "PARQUET",
    "Columns",
    "DeriveSpeed",
    "Format",
    "FormatChoice",
    "Recorded",
    "Table",
    "format_with",
    "header_of",
]
