"""Time zones: the one place where a zone's rules are read.    [docs/specification/fold.md, Time zone data]

The tzdata package comes before the system's files, so processes that install one version have the same rules,
whatever their machines have. Its version is in the worker's log and in `hatcast status`.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import tzdata

from hatcast.stream.errors import similar_name

TIME_ZONE_DATA: Final = f"tzdata {tzdata.IANA_VERSION}"
# Of several zones the one with most people.
_ABBREVIATIONS: Final[Mapping[str, str]] = {
    "ist": "Asia/Kolkata",
    **dict.fromkeys(("pst", "pdt", "pt"), "America/Los_Angeles"),
    **dict.fromkeys(("mdt", "mt"), "America/Denver"),
    **dict.fromkeys(("cst", "cdt", "ct"), "America/Chicago"),
    **dict.fromkeys(("edt", "et"), "America/New_York"),
    "bst": "Europe/London",
    "cest": "Europe/Berlin",
    "msk": "Europe/Moscow",
    "gst": "Asia/Dubai",
    "sgt": "Asia/Singapore",
    "jst": "Asia/Tokyo",
    **dict.fromkeys(("aest", "aedt"), "Australia/Sydney"),
}


@cache
def time_zone(name: str) -> ZoneInfo:
    """Return the time zone of this name. Raises ValueError, OSError or LookupError if there is none."""
    if name not in _packaged():
        return ZoneInfo(name)
    with files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def similar_time_zone(name: str) -> str | None:
    """Return the time zone of a city or an abbreviation, or one that is spelled much like it; None if there is none."""
    known, text = available_timezones(), "_".join(name.split()).casefold()
    named = [each for each in known if f"/{each.casefold()}".endswith(f"/{text}")]
    if named:
        return min(named, key=lambda each: (len(each), each))
    # What is only somewhat alike may be on another continent: Austin and Australia/NSW.
    return _ABBREVIATIONS.get(text) or (similar_name(name, known) if "/" in name else None)


@cache
def _packaged() -> frozenset[str]:
    return frozenset(files(tzdata).joinpath("zones").read_text().split())
