"""Checks of the `[policy]` table, key by key. Each raises SettingError with the key, the problem and the fix.

See docs/specification/release.md, Invariants, I7.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

from hatcast.stream.errors import SettingError, name_fix
from hatcast.stream.policy.cells_file import CellsFile, check_days, read_cells_file
from hatcast.stream.policy.estimator_keys import Relation
from hatcast.stream.policy.table import PolicyTable, check_weak, epsilon_problem
from hatcast.stream.policy.toml_tables import check_within, member, plain_date
from hatcast.stream.policy.value_keys import Value
from hatcast.stream.readings.reading import to_milli
from hatcast.stream.time_zones import similar_time_zone, time_zone
from hatcast.stream.units import DAY_MS, HOUR_MS, MINUTE_MS, NANO, nano_ceil, nano_floor

STEPS_MAX: Final = 86_400  # of min_interval in a slot: one bit of each is stored, 11 kB a user
ALL_CELLS: Final = "all"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,80}")
UNITS: Final = ("user_day", "user")
CONTINUAL_UNIT: Final = "user_horizon"  # of [policy.continual] only
TOTAL_MAX: Final = 9e6  # of all days: a larger sum gives no privacy
SUM_MAX: Final = 2**52 * NANO  # far below the numbers of 25 digits that a ledger can have
HATS_MAX: Final = 10**8  # of a day, if cells are not listed: their records alone take 90 GB


def reject_above_of(given: PolicyTable, single: Value | None = None) -> int | None:
    """Return `reject_above` in milli-units; None: no value is rejected. single: of `[policy.value]`."""
    value = given.reject_above
    if isinstance(value, str):
        if value != "none":
            kind, unit = ("a speed", "km/h") if single is None else ("a number", single.unit)
            raise SettingError("policy.reject_above", f"{value!r} is not {kind}", f'write {unit} or "none"')
        return None
    least, key = (given.upper_bound, "upper_bound") if single is None else (single.upper / 1000, "value.upper")
    if not least <= value <= 1e6:
        raise SettingError(
            "policy.reject_above", f"{value:g} is not between {key} and 1e6", 'correct it, or write "none"'
        )
    return to_milli(value, "km/h")


def check_range(given: PolicyTable) -> None:
    """Check the upper bound of speeds, and the grid."""
    bound = given.upper_bound
    if not 0 < bound <= 1e6 or to_milli(bound, "km/h") == 0:
        raise SettingError(
            "policy.upper_bound", f"{bound:g} is not a valid upper bound", "write km/h above 0, such as 65.0"
        )
    if not 0 < given.grid <= bound:
        raise SettingError("policy.grid", f"{given.grid:g} is not in (0, upper_bound]", "write km/h, such as 0.001")
    if Fraction(Decimal(repr(given.grid))).denominator > 10**6:
        raise SettingError("policy.grid", f"{given.grid:g} is too fine", "use at least 0.000001 km/h")


def check_place(given: PolicyTable) -> None:
    """Check name and resolution."""
    check_name(given.name, "policy.name")
    check_within(given.h3_resolution, 0, 15, "policy.h3_resolution", "is not an H3 resolution")


def check_name(name: str, key: str) -> None:
    """Check that a name can be part of a Redis key and of a release_id."""
    if not _NAME.fullmatch(name):
        raise SettingError(
            key, f"{name!r} cannot be part of a key", "use ASCII letters, digits, '-', '_' and '.', at most 80"
        )


def check_transition(given: PolicyTable) -> None:
    """Check `replaces` and `from`: both or neither."""
    for key, value, other in (("replaces", given.replaces, given.from_date), ("from", given.from_date, given.replaces)):
        if value is None and other is not None:
            raise SettingError(
                f"policy.{key}", "is missing", 'write both: replaces = "old" and from = "2022-02-01", or neither'
            )
    if given.replaces is None or given.from_date is None:
        return
    check_name(given.replaces, "policy.replaces")
    if given.replaces == given.name:
        raise SettingError("policy.replaces", "names the policy itself", "give the new policy another name")
    plain_date(given.from_date, "policy.from")


def check_times(given: PolicyTable, durations: Mapping[str, int]) -> None:
    """Check slots, hours, durations and time zone."""
    slot = durations["slot_length"]
    if slot < MINUTE_MS or slot % MINUTE_MS or DAY_MS % slot:
        raise SettingError(
            "policy.slot_length", f"{given.slot_length!r} does not divide a day into whole minutes", 'use "1h" or "15m"'
        )
    first, end = given.hours
    if not 0 <= first < end <= 24:
        problem, fix = f"{list(given.hours)} is not a range of hours", "use [first, end) within 0 and 24"
        if 0 <= end < first <= 24:
            problem = f"{list(given.hours)} goes over midnight, and a bus's budget is that of one local day"
            fix = f"use [0, 24], or [{first}, 24] here and [0, {end}] in a policy of its own"
        raise SettingError("policy.hours", problem, fix)
    least = -(-slot // STEPS_MAX)
    if not least <= durations["min_interval"] <= slot:
        raise SettingError(
            "policy.min_interval",
            f"{given.min_interval!r} divides a slot into too many steps or none",
            f"use {least}ms to slot_length",
        )
    for key, most, days in (("lateness", 30 * DAY_MS, "30d"), ("max_ahead", DAY_MS, "1d")):
        if durations[key] > most:
            raise SettingError(f"policy.{key}", f"{getattr(given, key)!r} is too long", f"use at most {days}")
    try:
        time_zone(given.timezone)
    except (ValueError, OSError, LookupError):
        near = similar_time_zone(given.timezone)
        fix = 'use a name such as "Asia/Kolkata"'
        if near is None:
            fix += ', or "America/Chicago" for Austin'
        raise SettingError(
            "policy.timezone",
            f"{given.timezone!r} is not a known time zone",
            fix if near is None else f"did you mean {near}? {fix}",
        ) from None


def check_privacy(given: PolicyTable) -> None:
    """Check `[policy.privacy]`, except the keys that depend on the estimator."""
    privacy = given.privacy
    where = "policy.privacy"
    if not 0 < privacy.epsilon <= 1e9 or nano_ceil(privacy.epsilon) * privacy.max_hats_per_day > 2**62:
        raise SettingError(f"{where}.epsilon", *epsilon_problem(privacy.epsilon))
    check_weak(privacy.epsilon, f"{where}.epsilon", privacy)
    check_within(privacy.max_hats_per_day, 1, 65535, f"{where}.max_hats_per_day", "is not a valid cap")
    if not privacy.daily_limit >= privacy.epsilon:
        raise SettingError(
            f"{where}.daily_limit",
            f"{privacy.daily_limit:g} is below one HAT's epsilon {privacy.epsilon:g}, so nothing could be released",
            "raise daily_limit or lower epsilon",
        )
    if not privacy.daily_limit <= 1e9:
        raise SettingError(f"{where}.daily_limit", "is not a valid limit", "use a number, such as 105.0")
    if not 0 < privacy.delta < 1:
        raise SettingError(f"{where}.delta", f"{privacy.delta:g} is not in (0, 1)", "use a small number, such as 1e-6")
    if privacy.min_users is not None and not 1 <= privacy.min_users <= 10**9:
        raise SettingError(f"{where}.min_users", f"{privacy.min_users} is not a number of users", "use 1 or more")
    _check_unit(given)
    member(Relation, privacy.relation, f"{where}.relation", "is not a relation")


def check_sums(given: PolicyTable, charged_nano: int, slot_length_ms: int, cells: frozenset[int] | None) -> None:
    """Check that the sum of a day's charges stays within the ledger's exact integers.

    charged_nano   charge of one HAT in 1e-9
    """
    hats = HATS_MAX if cells is None else len(cells) * day_slots(given, slot_length_ms)
    if charged_nano * hats > SUM_MAX:
        raise SettingError(
            "policy.privacy.epsilon",
            f"{charged_nano / NANO:g} on each of up to {hats:,} HATs of a day is more than the ledger can count",
            f"use at most {SUM_MAX // hats / NANO:g}",
        )


def check_add_remove(given: PolicyTable, slot_length_ms: int, cells: frozenset[int] | None, content: object) -> None:
    """Check the requirements of `relation = "add_remove"` besides a proved estimator: presence must not show.

    cells, content   as returned by `cells_of`
    A whole day has to fit in its limit: otherwise the order of commits, which is not public, would decide which HAT is
    not released. Every listed cell is charged in every slot, and a user enters at most K of these HATs, each for
    epsilon: min(K, cells x slots) x epsilon.
    """
    if cells is None or not isinstance(content, dict) or content["source"] != "public":
        raise SettingError(
            "policy.cells",
            "must be public and listed under add_remove: which cells have data is private",
            'name a file whose first line is source = "public", made without looking at the data',
        )
    privacy, where = given.privacy, "policy.privacy"
    if privacy.min_users is not None:
        raise SettingError(
            f"{where}.min_users",
            "depends on the number of users, which add_remove hides",
            "remove it: policy.estimator.weight_threshold decides on suppression",
        )
    hats = most_hats_of(given, slot_length_ms, cells)
    if hats * nano_ceil(privacy.epsilon) > nano_floor(privacy.daily_limit):
        raise SettingError(
            f"{where}.daily_limit",
            f"{privacy.daily_limit:g} is below what a whole day can cost a user under add_remove: "
            f"{hats} HATs at epsilon {privacy.epsilon:g}",
            "lower epsilon or max_hats_per_day, or raise daily_limit",
        )


def most_hats_of(given: PolicyTable, slot_length_ms: int, cells: frozenset[int] | None) -> int:
    """Return the most HATs that one user's day can enter: K, or cells x slots if fewer are listed.

    No day has more slots than this counts; a day on which the local clock skips an hour has fewer.
    """
    cap = given.privacy.max_hats_per_day
    return cap if cells is None else min(cap, len(cells) * day_slots(given, slot_length_ms))


def day_slots(given: PolicyTable, slot_length_ms: int) -> int:
    """Return the number of slots of a day."""
    first, end = (-(-hour * HOUR_MS // slot_length_ms) for hour in given.hours)  # slots that start before the hour
    return end - first


def _check_unit(given: PolicyTable) -> None:
    privacy, where = given.privacy, "policy.privacy"
    limit = privacy.total_limit
    if given.continual is not None:
        if privacy.unit != CONTINUAL_UNIT:
            raise SettingError(
                f"{where}.unit",
                f"{privacy.unit!r} is not proved for [policy.continual]",
                f'remove it: the unit is "{CONTINUAL_UNIT}", one vehicle in one horizon',
            )
        return
    if privacy.unit == CONTINUAL_UNIT:
        raise SettingError(f"{where}.unit", f"{CONTINUAL_UNIT!r} needs a horizon", "add the table [policy.continual]")
    if privacy.unit not in UNITS:
        raise SettingError(
            f"{where}.unit",
            f"{privacy.unit!r} is not a privacy unit",
            f"{name_fix(privacy.unit, UNITS)}: one vehicle on one day, or on all days",
        )
    if privacy.unit == "user_day":
        if limit is not None:
            raise SettingError(
                f"{where}.total_limit", 'is not used by unit "user_day"', 'remove it, or use unit = "user"'
            )
        return
    if limit is None:
        raise SettingError(
            f"{where}.total_limit",
            'is missing for unit "user"',
            "add it: the limit for all days of one vehicle together",
        )
    if not privacy.epsilon <= limit <= TOTAL_MAX:
        raise SettingError(
            f"{where}.total_limit",
            f"{limit:g} is not between epsilon and {TOTAL_MAX:g}",
            "use a number, such as 1000.0",
        )


def cells_of(given: PolicyTable, read_cells: Callable[[str], str]) -> tuple[CellsFile | None, object]:
    """Return the listed cells (None: all cells) and the content that is hashed into policy_id."""
    if given.cells == ALL_CELLS:
        return None, ALL_CELLS
    listed = read_cells_file(read_cells(given.cells), f"policy.cells ({given.cells})", given.h3_resolution)
    if not listed.cells:
        raise SettingError(
            f"policy.cells ({given.cells})", "lists no cell", 'list H3 indexes, one a line, or write cells = "all"'
        )
    check_days(listed, given.timezone, f"policy.cells ({given.cells})")
    return listed, listed.canonical
