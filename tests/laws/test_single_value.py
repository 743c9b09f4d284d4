"""Laws of `[policy.value]`: a value with any range is computed as the speed is, at its distance from the lower bound.

From the record on the topic to the published bytes, by every estimator.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from typing import Any

import h3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import ESTIMATOR_KEYS, ESTIMATORS
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import pack
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HYBRID_KEYS
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.policy.policy import Policy, Relation, read_policy
from hatcast.stream.release.hats import HatChunks, Release, release_of
from tests.folding import NOON, apply, contributions, fold_of, record
from tests.support import Scripted, selects

CELL = h3.latlng_to_cell(21.2, 72.8, 7)
SLOT = "2022-01-02/12:00"
HYBRIDS = [name for name in HYBRID_ESTIMATORS if name != "lm_only"]  # it reads devices' reports alone
every_estimator = pytest.mark.parametrize("name", [*ESTIMATORS, *HYBRIDS])
without_selection = pytest.mark.parametrize(
    "name", [*(name for name, each in ESTIMATORS.items() if not selects(each)), *HYBRIDS]
)
Readings = list[list[int]]
"""of each vehicle its values, milli-units"""


def policy_with(name: str, lower: int, upper: int, grid: str = "0.001") -> Policy:
    """lower, upper: milli-units."""
    privacy: dict[str, Any] = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0, "min_users": 1}
    estimator: dict[str, Any] = {"name": name}
    if name in ESTIMATORS and Relation.REPLACE not in ESTIMATORS[name].keys.relations:
        privacy["relation"] = "add_remove"
        del privacy["min_users"]
        estimator |= {"array_length": 3, "weight_threshold": 0.5}
    if name.startswith("kvh"):
        estimator["sigma"] = (upper - lower) / 8000
    table = {
        "name": "test",
        "timezone": "UTC",
        "hours": [12, 13],
        "cells": "cells.txt",
        "privacy": privacy,
        "estimator": estimator,
        "value": {"name": "v", "unit": "u", "lower": lower / 1000, "upper": upper / 1000, "grid": float(grid)},
    }
    return read_policy(table, {**ESTIMATOR_KEYS, **HYBRID_KEYS}, lambda _: f'source = "public"\n{CELL}')


def released(policy: Policy, readings: Readings, noise: Scripted) -> Release:
    """Fold the records of all vehicles, and release their HAT."""
    fold = fold_of(policy)
    sent = [
        record(vehicle=f"bus-{bus}", time=NOON + 1000 * at, speed=None, unit="u", value=milli / 1000)
        for bus, values in enumerate(readings)
        for at, milli in enumerate(values)
    ]
    apply(fold, [(NOON + 60_000, each) for each in sent])
    (slot,) = fold.slots.values()
    (hat,) = slot.hats.values()
    chunk = pack([known.row(pseudonym) for pseudonym, known in hat.users.items()])
    return release_of(policy, Calendar(policy), SLOT, CELL, HatChunks([chunk]), noise)


def published(policy: Policy, readings: Readings, draw: int) -> dict[str, Any]:
    release = released(policy, readings, Scripted(repeat(draw), repeat(3)))
    decoded: dict[str, Any] = json.loads(numbered(release.record(0), 1), parse_float=Decimal, parse_int=Decimal)
    return decoded


grids = st.sampled_from([("0.001", 1), ("0.25", 250), ("1", 1000)])


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int, str]:
    """A lower bound on the grid, an upper bound, and the grid."""
    grid, step = draw(grids)
    lower = step * draw(st.sampled_from([-600, -1, 0, 7]) | st.integers(-100_000 // step - 1, 100_000 // step))
    return lower, lower + step + draw(st.sampled_from([0, 65_000, 4_200_000]) | st.integers(1, 10**6)), grid


def crowds(lower: int, upper: int) -> st.SearchStrategy[Readings]:
    value = st.sampled_from([lower, upper, lower - 1000, upper + 1]) | st.integers(lower, upper)
    return st.lists(st.lists(value, min_size=1, max_size=4), min_size=1, max_size=6)


NUMBERS = ("mean", "raw", "interval95")


def numbers(found: dict[str, Any], shift: Decimal) -> list[Decimal]:
    low, high = found["interval95"]
    return [found["mean"] - shift, found["raw"] - shift, low - shift, high - shift]


@every_estimator
@given(data=st.data())
def test_a_range_that_is_moved_moves_every_published_number_and_nothing_else(name: str, data: st.DataObject) -> None:
    lower, upper, grid = data.draw(ranges())
    readings = data.draw(crowds(lower, upper))
    draw = data.draw(st.integers(-50, 50))
    moved = published(policy_with(name, lower, upper, grid), readings, draw)
    at_zero = published(
        policy_with(name, 0, upper - lower, grid), [[value - lower for value in values] for values in readings], draw
    )
    assert moved["status"] == at_zero["status"]
    if moved["status"] == "released":
        shift = Decimal(lower) / 1000
        assert numbers(moved, shift) == numbers(at_zero, Decimal(0))
        assert shift <= moved["mean"] <= Decimal(upper) / 1000
    for changing in (*NUMBERS, "policy_id"):
        moved.pop(changing, None), at_zero.pop(changing, None)
    assert moved == at_zero


@without_selection
@given(data=st.data())
def test_another_vehicles_values_change_the_probability_of_no_output_by_more_than_epsilon(
    name: str, data: st.DataObject
) -> None:
    lower, upper, grid = data.draw(ranges())
    policy = policy_with(name, lower, upper, grid)
    readings = data.draw(crowds(lower, upper))
    bus = data.draw(st.integers(0, len(readings) - 1))
    ends = st.sampled_from([lower, upper, -(10**9), 10**9])
    other = [*readings]
    other[bus] = [data.draw(ends) for _ in readings[bus]]
    one, two = (asked(policy, each) for each in (readings, other))
    assert [scale for _, *scale in one] == [scale for _, *scale in two], "the noise depends on values"
    lost = sum(
        abs(first - second) * Fraction(epsilon) / distance
        for (first, distance, epsilon), (second, *_) in zip(one, two, strict=True)
        if first != second
    )
    assert lost <= 1


def asked(policy: Policy, readings: Readings) -> Sequence[tuple[int, int, float]]:
    noise = Scripted(repeat(0))
    released(policy, readings, noise)
    return noise.asked


@given(ranges(), st.data())
def test_the_noise_is_as_wide_as_for_a_speed_of_this_range(bounds: tuple[int, int, str], data: st.DataObject) -> None:
    """The baseline, by its definition: sensitivity (upper - lower) times the largest share of one vehicle."""
    lower, upper, grid = bounds
    readings = data.draw(crowds(lower, upper))
    ((value, distance, epsilon),) = asked(policy_with("baseline", lower, upper, grid), readings)
    counts = [len(values) for values in readings]
    step = Fraction(grid) * 1000
    assert distance == (upper - lower) * max(counts) // (sum(counts) * step) + 1
    assert epsilon == 1.0
    clipped = [min(max(each, lower), upper) for values in readings for each in values]
    assert value == round((Fraction(sum(clipped), len(clipped)) - lower) / step)


@given(ranges(), st.data())
def test_contributions_are_distances_from_the_lower_bound_and_their_sums_fit_the_range(
    bounds: tuple[int, int, str], data: st.DataObject
) -> None:
    lower, upper, grid = bounds
    fold = fold_of(policy_with("baseline", lower, upper, grid))
    values = data.draw(crowds(lower, upper))[0]
    apply(fold, [(NOON + 9000, record(time=NOON + 1000 * at, v=milli / 1000)) for at, milli in enumerate(values)])
    clipped = [min(max(each, lower), upper) - lower for each in values]
    ((count, total, maximum, _),) = contributions(fold).values()
    assert (count, total, maximum) == (len(values), sum(clipped), max(clipped))
