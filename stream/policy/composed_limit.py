"""A `daily_limit` given as (epsilon, delta): the plain limit of as many releases as compose to no more than that.

The ledger counts plain epsilon, whatever the limit was given as. Here the number n of releases is found whose
composition, by what a charge of the estimator pays for, fits (epsilon, delta); n times epsilon is the plain limit.
Proof: docs/proofs.md, "A limit given as epsilon and delta".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from hatcast.stream.accounting import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.mechanisms.grid import Grid, fineness
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.estimator_keys import EstimatorKeys, MeansKeys
from hatcast.stream.policy.hybrid_keys import HybridKeys
from hatcast.stream.policy.table import PolicyTable
from hatcast.stream.readings.reading import to_milli
from hatcast.stream.units import NANO, nano_ceil, nano_floor

_KEY: Final = "policy.privacy.daily_limit"
_ALONE: Final = "composed_limit"  # in the canonical [policy.privacy]
_FINENESS: Final = 6  # noise of 65 steps or more: at epsilon 1 it is wider than it needs to be from 1,000 arrays on
_COARSE: Final = 200  # noise is never widened beyond this part of the range
_NO_FINENESS: Final = 3  # composition gains nothing from noise that is coarser (`accounting.composition`)
_DIGITS: Final = 1e6  # a composed epsilon is rounded up to six digits, as `hats.budget` shows it


@dataclass(frozen=True, slots=True)
class ComposedLimit:
    """The daily limit (epsilon, delta) of a user, as the composition of its releases gives it."""

    epsilon: float
    delta: float
    releases: int  # n, no more than `max_hats_per_day`
    fineness: int  # every noise has a scale of at least 2**fineness grid steps
    least_scale: int  # steps; narrower noise is widened to it. 0: the policy's noise is as wide anyway, or need not be


def without_delta_of_limit(table: Mapping[str, Any]) -> tuple[Mapping[str, Any], float | None]:
    """Return the [policy] table with the epsilon of a `daily_limit = [epsilon, delta]` and its delta as `delta`.

    Also return that epsilon; None, with the table as it is, for a limit of plain epsilon. Raises SettingError.
    """
    privacy = table.get("privacy")
    limit = privacy.get("daily_limit") if isinstance(privacy, Mapping) else None
    if not isinstance(privacy, Mapping) or not isinstance(limit, list | tuple):
        return table, None
    if len(limit) != 2 or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in limit):
        raise SettingError(_KEY, "is neither a number nor [epsilon, delta]", "write 20.0, or [16.1, 1e-6]")
    try:
        epsilon, delta = map(float, limit)
    except OverflowError:  # an integer of hundreds of digits
        epsilon, delta = math.inf, 0.0
    if not 0 < delta < 1:
        raise SettingError(_KEY, f"has a delta of {delta:g}, which is not in (0, 1)", "write [16.1, 1e-6]")
    if privacy.get("delta", delta) != delta:
        raise SettingError("policy.privacy.delta", f"is not the delta of daily_limit, {delta:g}", "remove it")
    if table.get("continual"):
        raise _refused("a horizon of running sums is booked on each of its days")
    return {**table, "privacy": {**privacy, "daily_limit": epsilon, "delta": delta}}, epsilon


def composed_limit(
    epsilon: float,
    given: PolicyTable,
    keys: MeansKeys | HybridKeys,
    estimator: EstimatorKeys,
    selection: SelectionCost | None,
) -> tuple[PolicyTable, ComposedLimit]:
    """Return the [policy] table with the plain limit, and the limit that it was given as.

    epsilon     of the limit; `given.privacy.delta` has its delta
    selection   cost of a private list of cells
    Raises SettingError where nothing is proved.
    """
    privacy, level = given.privacy, nano_ceil(given.privacy.epsilon)
    reasons = {
        "a device keeps its own account": isinstance(keys, HybridKeys),
        "a tracker's queries have charges of their own": not estimator.shares and isinstance(keys, MeansKeys),
        "one answer of a query reads many days of a vehicle": bool(given.query),
        "several values have several noises": bool(given.values),
        "a private list of cells has charged its days": selection is not None,
        'the days of unit "user" add up by plain epsilon': privacy.unit != "user_day",
    }
    for reason, holds in reasons.items():
        if holds:
            raise _refused(reason)
    least, least_scale = _noise(given, keys.array_length if isinstance(keys, MeansKeys) else None, estimator)
    split = ChargeSplit.of(estimator.shares, least)

    def fits(releases: int) -> bool:
        known = KnownCharges(level, releases, split)
        composed = composed_epsilon({level: releases}, privacy.delta, known, enough=epsilon - 1 / _DIGITS)
        return math.ceil(composed * _DIGITS) / _DIGITS <= epsilon

    cap = privacy.max_hats_per_day
    low = min(cap, nano_floor(epsilon) // level)  # the plain sum fits
    if low < 1:
        raise SettingError(
            _KEY,
            f"{epsilon:g} is below one HAT's epsilon {privacy.epsilon:g}, so nothing could be released",
            "raise it",
        )
    high = low
    while high < cap and fits(min(2 * high, cap)):  # from below: the time for many releases grows with their number
        high = min(2 * high, cap)
    beyond = min(2 * high, cap + 1)
    while beyond - high > 1:
        middle = (high + beyond) // 2
        high, beyond = (middle, beyond) if fits(middle) else (high, middle)
    plain = msgspec.structs.replace(privacy, daily_limit=high * level / NANO)
    limit = ComposedLimit(epsilon, privacy.delta, high, least, least_scale)
    return msgspec.structs.replace(given, privacy=plain), limit


def _noise(given: PolicyTable, array_length: str | int | None, estimator: EstimatorKeys) -> tuple[int, int]:
    """Return the fineness that all noise has, and the scale below which noise is widened to have it.

    One step more than 2**fineness, because `fineness` of a published scale allows for its rounding. The two scales of a
    ratio follow from the policy: neither needs to be widened.
    """
    upper, grid = to_milli(given.upper_bound, "km/h"), Grid(Decimal(repr(given.grid)))
    if estimator.weight_threshold is not None and isinstance(array_length, int):
        distance = min(array_length, grid.distance(Fraction(array_length * upper, 2)))
        return fineness(math.floor(2 * distance / Fraction(given.privacy.epsilon))), 0
    least = min(_FINENESS, fineness(int(upper / _COARSE / grid.milli)))
    return (least, 2**least + 1) if least >= _NO_FINENESS else (0, 0)


def _refused(reason: str) -> SettingError:
    return SettingError(
        _KEY,
        f"as (epsilon, delta) is proved for equal releases of one policy, and {reason}",
        "write epsilon alone, such as daily_limit = 20.0",
    )


def check_alone(name: str, keys: Mapping[str, Any], policies: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise HatcastError if a policy shares its days with others and one of them has a composed limit.

    keys       canonical policy of `name`
    policies   those of all policies of the ledger, by name; `name` itself may be among them
    Charges of another policy would come on top of (epsilon, delta). Policies of which one replaces the other, also by
    way of others, have no day in common, unless one of them may charge any day.
    """
    known = {**policies, name: keys}
    beside = [each for each in known if each != name and _share_days(name, each, known)]
    if beside and any(_ALONE in known[each].get("privacy", {}) for each in (name, *beside)):
        raise HatcastError(
            f"policy {name!r} shares the days of {', '.join(sorted(beside))}, and a policy.privacy.daily_limit given as"
            " [epsilon, delta] is for a policy alone on its telemetry: write plain limits, or let one replace the other"
        )


def _share_days(one: str, other: str, policies: Mapping[str, Mapping[str, Any]]) -> bool:
    follows = one in _replaced(other, policies) or other in _replaced(one, policies)
    return not follows or _charges_any_day(policies[one]) or _charges_any_day(policies[other])


def _charges_any_day(keys: Mapping[str, Any]) -> bool:
    """Return whether a policy may charge days before or after its own: a private list's, or those of clusterings."""
    has_private = any(isinstance(each, Mapping) and each.get("source") == "private" for each in keys.values())
    return has_private or "local_epsilon" in keys.get("privacy", {})


def _replaced(name: str, policies: Mapping[str, Mapping[str, Any]]) -> set[str]:
    found = set[str]()
    before = policies[name].get("replaces")
    while before is not None and before not in found:
        found.add(before)
        before = policies.get(before, {}).get("replaces")
    return found


def canonical_limit(limit: ComposedLimit | None) -> dict[str, float]:
    """Return the key of the canonical [policy.privacy] for a limit given as (epsilon, delta)."""
    return {} if limit is None else {_ALONE: limit.epsilon}
