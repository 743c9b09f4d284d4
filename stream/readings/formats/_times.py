"""Times of foreign records: ISO 8601 without a zone, epoch numbers of any unit, and strptime patterns.

A reader converts one cell to milliseconds UTC. A time without an offset is local time of a zone. One that the clocks
skip is not a time; one that they repeat, at the end of summer time, is a `Repeated`.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Final

from hatcast.stream.errors import SettingError, name_fix
from hatcast.stream.readings.formats._values import parse_number
from hatcast.stream.readings.formats.interface import INT64
from hatcast.stream.readings.reading import instant_ms, iso_moment
from hatcast.stream.time_zones import similar_time_zone, time_zone
from hatcast.stream.units import DAY_MS, EPOCHS, half_even


class Repeated(int):
    """The first of two instants (ms UTC) that have this local time."""

    second: int  # the other one


class RepeatedHours:
    """Decides which instants the repeated times of a recording are: by the order of each vehicle's own records."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, bool]] = {}

    def instant(self, vehicle: str, time: Repeated) -> int:
        """Return the first instant, or the second if the vehicle's local time has gone back."""
        before, again = self._seen.get(vehicle, (int(time), False))
        again = before - time >= _BACK_MS or (again and abs(before - time) < DAY_MS)
        self._seen[vehicle] = int(time), again
        return time.second if again else int(time)


TimeReader = Callable[[object], int | None]  # one cell, of any type -> ms UTC; None if it is not such a time

ISO: Final = "iso"
# `iso` recognizes the numbers of 2000 to 2099 of each unit: with all numbers up to the next unit, 202405061000, which
# is a date, would be a time in 1976.
_SIZED_MS: Final = range(946_684_800_000, 4_102_444_800_000)
_LEAST_DIGITS: Final = 9  # text with fewer digits is a date, not an epoch number
_DATE_LENGTH: Final = 10  # of YYYY-MM-DD, which has no time of day
_BACK_MS: Final = 600_000  # less is a record that is out of order, or a file with the newest record first
_UTC_ENDS: Final = ("Z", "UTC", "GMT")
_DIRECTIVE: Final = re.compile(r"%(.)", re.DOTALL)
_GROUPS: Final = {letter: f"(?P<{letter}>[0-9][0-9])" for letter in "mdHMS"} | {
    "Y": "(?P<Y>[0-9]{4})",
    "f": "(?P<f>[0-9]{1,6})",
}
_KNOWN: Final = frozenset("aAbBdfGHIjmMpSuUVwWyYz")  # not c, x, X: the locale of a Python program decides their order
_ARGUMENTS: Final = "YmdHMSf"  # of datetime(), in order
_EXAMPLE: Final = 'a pattern such as "%d.%m.%Y %H:%M:%S"'


def time_reader(time_format: str | None, zone: tzinfo) -> TimeReader:
    """Return a reader of times.

    time_format   `s`, `ms`, `us` or `ns` since 1970; a pattern of strptime; `iso` or None: ISO 8601, or a number whose
                  size shows its unit, for times from 2000 to 2099
    zone          of times without an offset
    Raises SettingError if it is none of these, or if the pattern does not define an instant.
    """
    if time_format is None or time_format == ISO:
        return _iso_reader(zone)
    if time_format in EPOCHS:
        factor, divisor = EPOCHS[time_format]
        return lambda cell: _epoch_ms(_number(cell), factor, divisor)
    check_time_format(time_format)
    return _pattern_reader(time_format, zone)


def check_time_format(time_format: str) -> None:
    """Raise SettingError if it is not a time format."""
    if time_format == ISO or time_format in EPOCHS:
        return
    letters = [letter for letter in _DIRECTIVE.findall(time_format) if letter != "%"]
    given = set(letters)
    has_date = given & set("Yy") and ("j" in given or (given & set("mbB") and "d" in given))
    has_hour = "H" in given or {"I", "p"} <= given
    problem, fix = f"{time_format!r} ", f"write {_EXAMPLE}"
    if "%" not in time_format:
        problem += "is not a time format"
        fix = f"{name_fix(time_format, (ISO, *EPOCHS))}, or {_EXAMPLE}"
    elif "Z" in given:
        problem = "%Z is a name of a zone, which is not unique"
        fix = "use %z for an offset such as +05:30, or name the zone with times_in"
    elif not (has_date and has_hour):
        problem += f"has no {'hour' if has_date else 'year, month and day'}"
    elif not given <= _KNOWN or len(given) < len(letters) or "%" in _DIRECTIVE.sub("", time_format):
        problem += "has a directive twice, or one that strptime does not know"
    else:
        return
    raise SettingError("time_format", problem, fix)


def zone_of(name: str) -> tzinfo:
    """Return a time zone. Raises SettingError if there is none of this name."""
    try:
        return time_zone(name)
    except (ValueError, OSError, LookupError):
        near = similar_time_zone(name)
        raise SettingError(
            "times_in",
            f"{name!r} is not a known time zone",
            'write "UTC" or "Europe/Berlin"' if near is None else f"did you mean {near}?",
        ) from None


def _iso_reader(zone: tzinfo) -> TimeReader:
    def read(cell: object) -> int | None:
        if not isinstance(cell, str):
            return _sized_epoch_ms(_number(cell))
        text = cell.strip()
        if text.isdigit() and len(text) >= _LEAST_DIGITS:
            return _sized_epoch_ms(_number(text))
        moment = iso_moment(text)
        if moment is None:
            return _sized_epoch_ms(_number(text))
        return None if len(text) <= _DATE_LENGTH else _in_zone(moment, zone)

    return read


def _pattern_reader(pattern: str, zone: tzinfo) -> TimeReader:
    # A pattern that ends in one of these means UTC, though strptime ignores their letters.
    zone = UTC if pattern.endswith(_UTC_ENDS) else zone
    fast = _fast_reader(pattern)

    def read(cell: object) -> int | None:
        # A number is read as its digits: 20220102093000 with %Y%m%d%H%M%S.
        text = str(cell) if cell.__class__ is int else cell
        if not isinstance(text, str):
            return None
        moment = fast(text)
        if moment is None:
            try:
                moment = datetime.strptime(text.strip(), pattern)  # noqa: DTZ007 - _in_zone sets the zone
            except ValueError:
                return None
        return _in_zone(moment, zone)

    return read


def _fast_reader(pattern: str) -> Callable[[str], datetime | None]:
    """Return a reader of zero-padded texts, ten times as fast as strptime; it returns None for every other text."""
    letters = _DIRECTIVE.findall(pattern)
    if not set(letters) <= set(_ARGUMENTS) or len(set(letters)) < len(letters):
        return lambda _: None
    parts = _DIRECTIVE.split(pattern)  # literal, letter, literal, ..
    regex = "".join(_GROUPS[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    absent = "".join(f"(?P<{letter}>)" for letter in _ARGUMENTS if letter not in letters)
    pattern_of = re.compile(regex + absent)
    match, places = pattern_of.fullmatch, [pattern_of.groupindex[letter] for letter in _ARGUMENTS]

    def read(text: str) -> datetime | None:
        found = match(text)
        if found is None:
            return None
        *parts, fraction = found.group(*places)
        year, month, day, hour, minute, second = [int(part or 0) for part in parts]
        micro = int(fraction.ljust(6, "0"))
        try:
            return datetime(year, month, day, hour, minute, second, micro)  # noqa: DTZ001 - _in_zone sets the zone
        except ValueError:
            return None

    return read


def _in_zone(moment: datetime, zone: tzinfo) -> int | None:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone, fold=0)
        earlier, later = moment.utcoffset(), moment.replace(fold=1).utcoffset()
        if earlier is None or later is None or earlier < later:  # the clocks skip this local time (PEP 495)
            return None
        if earlier > later:
            repeated = Repeated(instant_ms(moment))
            repeated.second = instant_ms(moment.replace(fold=1))
            return repeated
    return instant_ms(moment)


def _number(cell: object) -> int | float | None:
    """Return the number of a cell; None if it is none, or not finite."""
    if isinstance(cell, int):
        return None if isinstance(cell, bool) else cell
    if isinstance(cell, str):
        if cell.isascii() and cell.isdigit() and len(cell) <= 20:  # exactly: a float has 53 bits
            return int(cell)
        parsed = parse_number(cell)
        cell = parsed if isinstance(parsed, float) else None
    return cell if isinstance(cell, float) and math.isfinite(cell) else None


def _sized_epoch_ms(number: int | float | None) -> int | None:
    """Convert epoch time of the unit that its size shows."""
    if number is not None:
        for factor, divisor in EPOCHS.values():
            if _SIZED_MS.start * divisor <= number * factor < _SIZED_MS.stop * divisor:
                return _epoch_ms(number, factor, divisor)
    return None


def _epoch_ms(number: int | float | None, factor: int, divisor: int) -> int | None:
    """Round to milliseconds, half to even; None outside 64 bits, in which Kafka's timestamps are."""
    if number is None:
        return None
    if isinstance(number, int):
        rounded = half_even(number * factor, divisor)
    else:
        product = number * factor / divisor
        rounded = round(product) if math.isfinite(product) else INT64
    return rounded if -INT64 <= rounded < INT64 else None
