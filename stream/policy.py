"""The policy: what is promised. All of it is public: printed, documented, hashed into `policy_id`.

`read_policy` turns the `[policy]` table into a `Policy`, or refuses with the key and the mend (invariant I7).
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import h3.api.basic_int as h3
import rfc8785

from stream.errors import BadSetting
from stream.estimator_keys import EstimatorKeys, Relation, chosen_keys
from stream.policy_table import PolicyTable, canonical
from stream.reading import to_milli
from stream.tables import decode_table, duration_ms

DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
STEPS_MAX: Final = 86_400  # of min_interval in a slot: which were seen is kept as one bit each, 11 kB a user
WEAK_EPSILON: Final = 10.0  # above it a release is hardly private, so the policy has to say that this is meant
NANO: Final = 1_000_000_000  # charges are integers of 1e-9 epsilon, rounded up
ALL_CELLS: Final = "all"

__all__ = ["EstimatorKeys", "Policy", "Relation", "nano", "read_policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is promised. Values are milli-units of km/h, times milliseconds.

    canonical      what policy_id is the hash of: JSON by RFC 8785, without the name
    cells          H3 indexes, or None for all
    grid           km/h; releases are multiples of it
    epsilon_nano   charge of one HAT in 1e-9, rounded up
    grouping, array_length, quantiles   of the estimator, array_length a rule's name or a number of places; None for
                   those that it does not use
    """

    name: str
    policy_id: str
    canonical: bytes = field(repr=False)
    upper_bound: int
    reject_above: int | None
    drop_zero: bool
    timezone: str
    h3_resolution: int
    slot_length_ms: int
    hours: tuple[int, int]
    lateness_ms: int
    max_ahead_ms: int
    min_interval_ms: int
    cells: frozenset[int] | None = field(repr=False)
    grid: Decimal
    unit: str
    relation: Relation
    epsilon: float
    max_hats_per_day: int
    daily_limit: float
    delta: float
    min_users: int
    estimator: str
    grouping: str | None
    array_length: str | int | None
    quantiles: str | None

    @property
    def epsilon_nano(self) -> int:
        """What one release costs, in 1e-9, rounded up."""
        return nano(self.epsilon)

    @property
    def daily_limit_nano(self) -> int:
        """What a user's day may cost, in 1e-9, rounded down."""
        return int(Decimal(repr(self.daily_limit)) * NANO)


def nano(epsilon: float) -> int:
    """An epsilon as a charge: integer 1e-9, rounded up so that a ledger never shows less than was spent."""
    return math.ceil(Decimal(repr(epsilon)) * NANO)


def read_policy(
    table: Mapping[str, Any], estimators: Mapping[str, EstimatorKeys], read_cells: Callable[[str], str]
) -> Policy:
    """The `[policy]` table of hatcast.toml, checked.

    estimators   the registry's keys, by name
    read_cells   the text of the file that `cells` names
    Raises BadSetting with the key, the problem and the mend.
    """
    given = decode_table(table, PolicyTable, "policy")
    cells, cells_content = _cells(given, read_cells)
    keys = chosen_keys(given.estimator, given.privacy.relation, estimators)
    _check_values(given)
    reject_above = _reject_above(given)
    durations = {
        key: duration_ms(getattr(given, key), f"policy.{key}")
        for key in ("slot_length", "lateness", "max_ahead", "min_interval")
    }
    _check_times(given, durations)
    _check_privacy(given)
    hashed = rfc8785.dumps(canonical(given, durations, cells_content, keys))
    return Policy(
        name=given.name,
        policy_id="b2:" + hashlib.blake2b(hashed, digest_size=16).hexdigest(),
        canonical=hashed,
        upper_bound=to_milli(given.upper_bound, "km/h"),
        reject_above=reject_above,
        drop_zero=given.drop_zero,
        timezone=given.timezone,
        h3_resolution=given.h3_resolution,
        slot_length_ms=durations["slot_length"],
        hours=given.hours,
        lateness_ms=durations["lateness"],
        max_ahead_ms=durations["max_ahead"],
        min_interval_ms=durations["min_interval"],
        cells=cells,
        grid=Decimal(repr(given.grid)),
        unit=given.privacy.unit,
        relation=Relation(given.privacy.relation),
        epsilon=given.privacy.epsilon,
        max_hats_per_day=given.privacy.max_hats_per_day,
        daily_limit=given.privacy.daily_limit,
        delta=given.privacy.delta,
        min_users=given.privacy.min_users,
        estimator=given.estimator.name,
        grouping=str(keys["grouping"]) if "grouping" in keys else None,
        array_length=keys.get("array_length"),
        quantiles=str(keys["quantiles"]) if "quantiles" in keys else None,
    )


def _reject_above(given: PolicyTable) -> int | None:
    value = given.reject_above
    if isinstance(value, str):
        if value != "none":
            raise BadSetting("policy.reject_above", f"{value!r} is no speed", 'write km/h or "none"')
        return None
    if not given.upper_bound <= value <= 1e6:
        raise BadSetting(
            "policy.reject_above", f"{value:g} is not within upper_bound and 1e6", 'correct it, or write "none"'
        )
    return to_milli(value, "km/h")


def _check_values(given: PolicyTable) -> None:
    bound = given.upper_bound
    if not 0 < bound <= 1e6 or to_milli(bound, "km/h") == 0:
        raise BadSetting("policy.upper_bound", f"{bound:g} is no upper bound", "write km/h above 0, such as 65.0")
    if not 0 < given.grid <= bound:
        raise BadSetting("policy.grid", f"{given.grid:g} is not in (0, upper_bound]", "write km/h, such as 0.001")
    if Fraction(Decimal(repr(given.grid))).denominator > 10**6:
        raise BadSetting("policy.grid", f"{given.grid:g} is too fine", "use at least 0.000001 km/h")
    if not given.name or not given.name.isascii() or any(c in given.name for c in "{}:/ ") or len(given.name) > 80:
        raise BadSetting(
            "policy.name", f"{given.name!r} cannot be part of a key", "use ASCII letters, digits, '-', '_' and '.'"
        )
    if not 0 <= given.h3_resolution <= 15:
        raise BadSetting("policy.h3_resolution", f"{given.h3_resolution} is no H3 resolution", "use 0 to 15")


def _check_times(given: PolicyTable, durations: Mapping[str, int]) -> None:
    slot = durations["slot_length"]
    if slot < MINUTE_MS or slot % MINUTE_MS or DAY_MS % slot:
        raise BadSetting(
            "policy.slot_length", f"{given.slot_length!r} does not divide a day into whole minutes", 'use "1h" or "15m"'
        )
    first, end = given.hours
    if not 0 <= first < end <= 24:
        raise BadSetting(
            "policy.hours", f"{list(given.hours)} is no range of hours", "use [first, end) within 0 and 24"
        )
    least = -(-slot // STEPS_MAX)
    if not least <= durations["min_interval"] <= slot:
        raise BadSetting(
            "policy.min_interval",
            f"{given.min_interval!r} cuts a slot into too many steps or none",
            f"use {least}ms to slot_length",
        )
    for key, most, days in (("lateness", 30 * DAY_MS, "30d"), ("max_ahead", DAY_MS, "1d")):
        if durations[key] > most:
            raise BadSetting(f"policy.{key}", f"{getattr(given, key)!r} is too long", f"use at most {days}")
    try:
        ZoneInfo(given.timezone).utcoffset(None)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSetting(
            "policy.timezone", f"{given.timezone!r} is no known time zone", 'use a name such as "Asia/Kolkata"'
        ) from None


def _check_privacy(given: PolicyTable) -> None:
    privacy = given.privacy
    where = "policy.privacy"
    if not 0 < privacy.epsilon <= 1e9 or nano(privacy.epsilon) * privacy.max_hats_per_day > 2**62:
        raise BadSetting(f"{where}.epsilon", f"{privacy.epsilon:g} is no epsilon", "use a number above 0, such as 1.0")
    if privacy.epsilon > WEAK_EPSILON and not privacy.acknowledge_weak_privacy:
        raise BadSetting(
            f"{where}.epsilon",
            f"{privacy.epsilon:g} hides hardly anything",
            f"use at most {WEAK_EPSILON:g}, or set acknowledge_weak_privacy = true",
        )
    if not 1 <= privacy.max_hats_per_day <= 65535:
        raise BadSetting(f"{where}.max_hats_per_day", f"{privacy.max_hats_per_day} is no cap", "use 1 to 65535")
    if not privacy.daily_limit >= privacy.epsilon:
        raise BadSetting(
            f"{where}.daily_limit",
            f"{privacy.daily_limit:g} is below one HAT's epsilon {privacy.epsilon:g}, so nothing could be released",
            "raise daily_limit or lower epsilon",
        )
    if not privacy.daily_limit <= 1e9:
        raise BadSetting(f"{where}.daily_limit", "is no limit", "use a number, such as 105.0")
    if not 0 < privacy.delta < 1:
        raise BadSetting(f"{where}.delta", f"{privacy.delta:g} is not in (0, 1)", "use a small number, such as 1e-6")
    if not 1 <= privacy.min_users <= 10**9:
        raise BadSetting(f"{where}.min_users", f"{privacy.min_users} is no number of users", "use 1 or more")
    if privacy.unit != "user_day":
        raise BadSetting(
            f"{where}.unit", f"{privacy.unit!r} cannot be kept by this version", 'use "user_day": one vehicle, one day'
        )
    if privacy.relation not in set(Relation):
        raise BadSetting(f"{where}.relation", f"{privacy.relation!r} is no relation", 'use "replace" or "add_remove"')


def _cells(given: PolicyTable, read_cells: Callable[[str], str]) -> tuple[frozenset[int] | None, object]:
    """The listed cells, and their content as it is hashed."""
    if given.cells == ALL_CELLS:
        return None, ALL_CELLS
    where = f"policy.cells ({given.cells})"
    first, *rest = read_cells(given.cells).splitlines() or [""]
    source = first.removeprefix("source = ").strip('"')
    if source not in ("public", "survey", "private") or not first.startswith("source = "):
        raise BadSetting(where, "does not begin with its source", 'make the first line source = "public"')
    cells = set()
    for number, line in enumerate(rest, start=2):
        text = line.strip()
        if not text:
            continue
        if not h3.is_valid_cell(_index(text)) or h3.get_resolution(_index(text)) != given.h3_resolution:
            raise BadSetting(
                where, f"line {number} is no H3 index of resolution {given.h3_resolution}", "correct or remove it"
            )
        cells.add(_index(text))
    if not cells:
        raise BadSetting(where, "lists no cell", 'list H3 indexes, one a line, or write cells = "all"')
    return frozenset(cells), {"source": source, "cells": sorted(h3.int_to_str(cell) for cell in cells)}


def _index(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0
