"""Time zones: the one place where a zone's rules are read.    [docs/specification/fold.md, Time zone data]

The tzdata package comes before the system's files, so processes that install one version have the same rules,
whatever their machines have. Its version is in the worker's log and in `hatcast status`.
"""

from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import tzdata

from hatcast.stream.errors import similar_name

TIME_ZONE_DATA: Final = f"tzdata {tzdata.IANA_VERSION}"


@cache
def time_zone(name: str) -> ZoneInfo:
    """Return the time zone of this name. Raises ValueError, OSError or LookupError if there is none."""
    if name not in _packaged():
        return ZoneInfo(name)
    with files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def similar_time_zone(name: str) -> str | None:
    """Return the name of a time zone that is spelled much like this one; None if there is none."""
    return similar_name(name, available_timezones())


@cache
def _packaged() -> frozenset[str]:
    """Return the names of the zones in the package."""
    return frozenset(files(tzdata).joinpath("zones").read_text().split())
