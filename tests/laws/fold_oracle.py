"""fold.md a second time, as plainly as it can be said: slow, exact, nothing shared with stream/fold/reading_fold.py.

Only the local zone's offset (zoneinfo), the cell (h3) and the form of an ISO time (datetime) are taken as given.
"""

import json
import math
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any

import h3.api.basic_int as h3
from kafka.partitioner.default import murmur2

from hatcast.stream.time_zones import time_zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
LOCAL_DATES = (-62_104_060_800_000, 253_370_764_800_000)  # the years 2 to 9998: outside, no zone has a date
KM_H = {
    "km/h": Fraction(1),
    "m/s": Fraction(36, 10),
    "mph": Fraction(1609344, 1000000),
    "kn": Fraction(1852, 1000),
}


@dataclass
class Rules:
    """What the fold is told; times in ms, values in milli-units."""

    timezone: str
    slot_length: int
    hours: tuple[int, int]
    lateness: int
    max_ahead: int
    min_interval: int
    resolution: int
    cells: frozenset[int] | None
    fine: frozenset[int]
    upper_bound: int
    reject_above: int | None
    drop_zero: bool
    cap: int
    first_date: str | None
    partition: int
    partitions: int
    partitioner: str
    values: tuple[tuple[str, int, int], ...] = ()  # besides the speed: name, lower, upper
    horizon: "Horizon | None" = None


@dataclass
class Horizon:
    """Instead of the cap: what a user may enter in so many days, from a first date on."""

    first: str
    days: int
    only: bool  # the first is the last
    slots: int
    apart: int
    cells: int

    def of(self, date: str) -> int | None:
        past = (datetime.fromisoformat(date) - datetime.fromisoformat(self.first)).days
        return None if past < 0 or (self.only and past >= self.days) else past // self.days


@dataclass
class State:
    clock: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    # (date, slot, cell, user) -> count, sum, max, intervals
    contributions: dict[tuple[str, str, int, str], tuple[int, int, int, frozenset[int]]] = field(default_factory=dict)
    # the same -> sums of the other values, each clipped
    others: dict[tuple[str, str, int, str], tuple[int, ...]] = field(default_factory=dict)


def fold(rules: Rules, now: int, log: Sequence[tuple[int, bytes | None]]) -> State:
    state = State()
    for ts, value in log:
        state.outcomes[outcome(rules, state, now, ts, value)] += 1
    return state


# The table of the spec, a rule an `if`: its length is the spec's.
def outcome(  # noqa: C901, PLR0911, PLR0912
    rules: Rules, state: State, now: int, ts: int, value: bytes | None
) -> str:
    if ts > now + rules.max_ahead:
        return "arrived_in_future"
    if ts < 0:
        return "undecodable"
    state.clock = ts if state.clock is None or ts > state.clock else state.clock
    if value is None or value == b"":
        return "tick"
    record = decoded(value, [name for name, _, _ in rules.values])
    if record is None:
        return "undecodable"
    lat, lon = float(record["lat"]), float(record["lon"])
    if not (math.isfinite(lat) and math.isfinite(lon)) or abs(lat) > 90 or abs(lon) > 180 or (lat == 0 and lon == 0):
        return "bad_place"
    milli = milli_of(record["speed"], record["unit"])
    if rules.reject_above is None:
        milli = 0 if milli is None or milli < 0 else milli
    elif milli is None or milli < 0 or milli > rules.reject_above:
        return "bad_value"
    others = [milli_of(record[name], "km/h") for name, _, _ in rules.values]  # 1000 of it are one, whatever it is
    if rules.reject_above is not None and None in others:
        return "bad_value"
    time = time_of(record["time"])
    if time is None or not LOCAL_DATES[0] <= time < LOCAL_DATES[1] or time > ts + rules.max_ahead:
        return "bad_time"
    if rules.drop_zero and milli == 0:
        return "zero"
    date, slot = slot_of(rules.timezone, rules.slot_length, time)
    start, end = span_of(rules.timezone, rules.slot_length, date, slot)
    if rules.first_date is not None and date < rules.first_date:
        return "outside_dates"
    if rules.horizon is not None and rules.horizon.of(date) is None:
        return "outside_dates"
    minutes = int(slot[:2]) * 60 + int(slot[3:])
    if not rules.hours[0] * 60 <= minutes < rules.hours[1] * 60:
        return "outside_hours"
    cell = next(
        (at for finer in range(15, rules.resolution, -1) if (at := h3.latlng_to_cell(lat, lon, finer)) in rules.fine),
        h3.latlng_to_cell(lat, lon, rules.resolution),
    )
    if rules.cells is not None and cell not in rules.cells:
        return "outside_cells"
    if state.clock >= end + rules.lateness:
        return "late"
    user = record["vehicle"]
    if partition_of(user, rules) != rules.partition:
        return "wrong_partition"
    interval = (time - start) // rules.min_interval
    key = (date, slot, cell, user)
    if key in state.contributions:
        if interval in state.contributions[key][3]:
            return "duplicate"
    elif rules.horizon is not None:
        if not may_enter(rules, rules.horizon, [each for each in state.contributions if each[3] == user], key):
            return "over_participation"
    elif sum(1 for known in state.contributions if known[0] == date and known[3] == user) >= rules.cap:
        return "over_cap"
    count, total, greatest, seen = state.contributions.get(key, (0, 0, 0, frozenset()))
    cut = min(milli, rules.upper_bound)
    state.contributions[key] = (count + 1, total + cut, max(greatest, cut), seen | {interval})
    known = state.others.get(key, (0,) * len(others))
    state.others[key] = tuple(
        old + (lower if other is None else min(max(other, lower), upper))
        for old, other, (_, lower, upper) in zip(known, others, rules.values, strict=True)
    )
    return "accepted"


def may_enter(
    rules: Rules, horizon: Horizon, known: Sequence[tuple[str, str, int, str]], new: tuple[str, str, int, str]
) -> bool:
    """Whether a user with these HATs stays within the declared participation with one more."""
    hats = [hat for hat in known if horizon.of(hat[0]) == horizon.of(new[0])]
    cells = {hat[2] for hat in hats} | {new[2]}
    slots = [position(rules, hat[0], hat[1]) for hat in hats if hat[2] == new[2]]
    at = position(rules, new[0], new[1])
    return (
        len(cells) <= horizon.cells
        and len(slots) < horizon.slots
        and all(abs(at - slot) >= horizon.apart for slot in slots)
    )


def position(rules: Rules, date: str, slot: str) -> int:
    """The slots of all days in a row, as the local clock names them: only those within the hours."""
    of_day = [at for at in range(0, 24 * 60, rules.slot_length // 60_000) if rules.hours[0] * 60 <= at]
    of_day = [at for at in of_day if at < rules.hours[1] * 60]
    return datetime.fromisoformat(date).toordinal() * len(of_day) + of_day.index(int(slot[:2]) * 60 + int(slot[3:]))


def decoded(value: bytes, others: Sequence[str] = ()) -> dict[str, Any] | None:  # noqa: PLR0911 - likewise
    """Rule 3: the fields, with the vehicle in its canonical form and the unit filled in."""
    try:
        record = json.loads(value)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    vehicle, time, unit = record.get("vehicle"), record.get("time"), record.get("unit", "km/h")
    if not isinstance(vehicle, str) or unit not in KM_H or isinstance(time, bool):
        return None
    if not isinstance(time, str | int | float):
        return None
    for name in ("lat", "lon", "speed", *others):
        number = record.get(name)
        if isinstance(number, bool) or not isinstance(number, int | float | str):
            return None
        if isinstance(number, str) and number not in ("nan", "inf", "-inf"):
            return None
    vehicle = unicodedata.normalize("NFC", vehicle).strip()
    if not 1 <= len(vehicle.encode()) <= 128:
        return None
    return record | {"vehicle": vehicle, "unit": unit}


def milli_of(speed: float | str, unit: str) -> int | None:
    """None: not finite. A number that no double can hold is itself: it is above every bound, or negative."""
    try:
        double = float(speed)
    except OverflowError:
        return round(Fraction(speed) * KM_H[unit] * 1000)
    return round(Fraction(double) * KM_H[unit] * 1000) if math.isfinite(double) else None


def time_of(time: str | float) -> int | None:
    if isinstance(time, int | float):
        return round(Fraction(time))
    if time.isdecimal() and len(time) >= 12:
        return int(time)
    try:
        instant = datetime.fromisoformat(time)
    except ValueError:
        return None
    if instant.tzinfo is None:
        return None
    return round(Fraction((instant - EPOCH) // timedelta(microseconds=1), 1000))


def slot_of(timezone: str, length: int, time: int) -> tuple[str, str]:
    local = (EPOCH + time * MS).astimezone(time_zone(timezone))
    minutes = (local.hour * 60 + local.minute) * 60_000 // length * (length // 60_000)
    return local.date().isoformat(), f"{minutes // 60:02}:{minutes % 60:02}"


@cache
def span_of(timezone: str, length: int, date: str, slot: str) -> tuple[int, int]:
    """Every minute of the two days around is asked for its slot: the first of that name, and the end of the last."""
    around = (datetime.fromisoformat(date).replace(tzinfo=UTC) - EPOCH) // MS
    minutes = range(around - 86_400_000, around + 2 * 86_400_000, 60_000)
    named = [minute for minute in minutes if slot_of(timezone, length, minute) == (date, slot)]
    return named[0], named[-1] + 60_000


def partition_of(user: str, rules: Rules) -> int:
    key = user.encode()
    if rules.partitioner == "crc32":
        return zlib.crc32(key) % rules.partitions
    found: int = murmur2(key)
    return (found & 0x7FFFFFFF) % rules.partitions
