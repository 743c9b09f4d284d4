"""Laws of the tracker: decisions see counts alone, and a bus pays for what it moves, at most the daily limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys
from hatcast.stream.tracker import query as queries
from hatcast.stream.tracker.balances import Balances
from hatcast.stream.tracker.contributions import Floats, Integers
from hatcast.stream.tracker.model import Means
from hatcast.stream.tracker.query import CLIPS, STEPS, Query, charges_of, noiseless_sum
from hatcast.stream.tracker.schedule import Schedule
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import HOUR_MS, NANO

UPPER_BOUND = 65.0
Slots = Sequence[Sequence[HatUsers]]
"""The HATs of each slot of a day"""


@st.composite
def days(draw: st.DrawFn) -> Slots:
    """Days of a few slots, cells and buses, with any speeds in [0, U]."""
    slots = []
    for _ in range(draw(st.integers(1, 4))):
        hats = []
        for cell in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)):
            buses = draw(st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True))
            counts = draw(st.lists(st.integers(1, 60), min_size=len(buses), max_size=len(buses)))
            speeds = draw(st.lists(st.integers(0, 65_000), min_size=len(buses), max_size=len(buses)))
            hats.append(hat(cell, buses, counts, speeds))
        slots.append(hats)
    return slots


def hat(cell: str, buses: Sequence[int], counts: Sequence[int], speeds: Sequence[int]) -> HatUsers:
    """Buses with their means, in milli-units."""
    return HatUsers(
        cell,
        np.array(buses, np.uint64),
        np.array(counts, np.int64),
        np.array([count * speed for count, speed in zip(counts, speeds, strict=True)], np.int64),
    )


all_keys = st.builds(
    TrackerKeys,
    daily_limit=st.sampled_from([NANO // 10, 2 * NANO, 5 * NANO + 1, 40 * NANO]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    objective=st.sampled_from(Objective),
    price=st.sampled_from([0.001, 0.3, 5.0]),
    watch=st.sampled_from([frozenset[str](), frozenset("a")]),
    watch_share=st.sampled_from([0.0, 0.5, 1.0]),
)


def neighbour(slots: Slots, bus: int, speeds: Sequence[int]) -> Slots:
    """The same day, in which one bus drove at other speeds."""
    rest = iter(speeds)
    return [
        [replace(each, sums=np.where(each.pseudonyms == bus, each.counts * next(rest), each.sums)) for each in hats]
        for hats in slots
    ]


@dataclass(frozen=True)
class Step:
    """One query of two neighbours with the same released past: what was decided, and both sums before the noise."""

    left: Query
    right: Query
    left_sum: int
    right_sum: int
    left_buses: Sequence[int]


def in_step(keys: TrackerKeys, left: Slots, right: Slots, noises: Iterator[int]) -> Iterator[Step]:
    """Run both days with the same released numbers: those of the left one, with these noises."""
    trackers = [Tracker(keys, UPPER_BOUND), Tracker(keys, UPPER_BOUND)]
    for tracker in trackers:
        tracker.begin_day()
    names: list[int] = []  # a tracker numbers buses in the order in which they appear
    for number, (ours, theirs) in enumerate(zip(left, right, strict=True)):
        names += dict.fromkeys(p for each in ours for p in each.pseudonyms.tolist() if p not in names)
        made = [
            tracker.close_slot(number * HOUR_MS, number, hats)
            for tracker, hats in zip(trackers, (ours, theirs), strict=True)
        ]
        yield from _both(trackers, made, noises, names)
    yield from _both(trackers, [tracker.settle() for tracker in trackers], noises, names)


def _both(
    trackers: Sequence[Tracker], made: Sequence[Iterator[Query]], noises: Iterator[int], names: Sequence[int]
) -> Iterator[Step]:
    left, right = trackers
    for ours, theirs in zip(*made, strict=True):
        sums = (
            noiseless_sum(ours, left.values, left.tracks[0].means),
            noiseless_sum(theirs, right.values, right.tracks[0].means),
        )
        released = sums[0] + next(noises)
        left.tracks[0].learn(ours, released)
        right.tracks[0].learn(theirs, released)
        yield Step(ours, theirs, *sums, [names[number] for number in ours.members.buses.tolist()])


def is_same_decision(left: Query, right: Query) -> bool:
    """Everything but the sum."""
    mine, yours = left.members, right.members
    return (left.scale, left.total, left.kept, mine.cell) == (right.scale, right.total, right.kept, yours.cell) and all(
        np.array_equal(a, b)
        for a, b in (
            (left.payments, right.payments),
            (left.bounds, right.bounds),
            (left.charges, right.charges),
            (mine.contributions, yours.contributions),
            (mine.buses, yours.buses),
            (mine.spread, yours.spread),
            (left.observation.row, right.observation.row),
            (left.gain.shared, right.gain.shared),
        )
    )


def is_paid(step: Step, bus: int) -> bool:
    """The sum moves by at most what the bus pays, in units of the noise's scale."""
    moved = abs(step.left_sum - step.right_sum)
    charge = dict(zip(step.left_buses, step.left.charges.tolist(), strict=True)).get(bus, 0)
    return bool(moved * NANO <= charge * step.left.scale)


@given(all_keys, days(), st.integers(0, 7), st.lists(st.integers(0, 65_000), min_size=12, max_size=12), st.data())
@settings(deadline=None, max_examples=200)
def test_what_is_decided_never_looks_at_a_speed_and_a_bus_moves_each_sum_by_at_most_its_charge(
    keys: TrackerKeys, day: Slots, bus: int, speeds: Sequence[int], data: st.DataObject
) -> None:
    noises = iter(lambda: data.draw(st.integers(-(10**8), 10**8)), None)
    for step in in_step(keys, day, neighbour(day, bus, speeds), noises):
        assert is_same_decision(step.left, step.right)
        assert is_paid(step, bus)


@given(all_keys, days())
@settings(deadline=None, max_examples=200)
def test_no_bus_pays_more_on_a_day_than_the_daily_limit(keys: TrackerKeys, day: Slots) -> None:
    paid: dict[int, int] = {}
    for step in in_step(keys, day, day, iter(lambda: 0, None)):
        for bus, charge, payment in zip(
            step.left_buses, step.left.charges.tolist(), step.left.payments.tolist(), strict=True
        ):
            assert 0 <= charge <= payment
            paid[bus] = paid.get(bus, 0) + charge
    assert all(spent <= keys.daily_limit for spent in paid.values())


@given(st.integers(0, 40 * NANO), st.sampled_from(CLIPS.tolist()))
def test_a_charge_is_twice_the_bound_over_the_scale_rounded_up_and_at_most_the_payment(
    payment: int, hundredths: int
) -> None:
    scale = 2 * STEPS * hundredths // 100
    bound = payment * hundredths // 100_000
    (charge,) = charges_of(np.array([bound]), hundredths).tolist()
    assert charge * scale >= 2 * bound * NANO > (charge - 1) * scale
    assert charge <= payment


def test_each_query_draws_noise_of_the_scale_that_its_charges_were_computed_with() -> None:
    drawn = []

    class Recorded:
        def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
            drawn.append(distance / epsilon)
            return Noisy(value, distance / epsilon)

    tracker = Tracker(TrackerKeys(5 * NANO, price=0.001), UPPER_BOUND)
    tracker.begin_day()
    scales = []
    for query in tracker.close_slot(0, 9, [hat("a", range(6), [9] * 6, [30_000] * 6)]):
        tracker.tracks[0].learn(query, tracker.tracks[0].draw(query, tracker.values, Recorded()))
        scales.append(query.scale)
    assert scales == drawn
    assert scales


def test_a_balance_is_never_overdrawn() -> None:
    balances, buses = Balances(10), np.array([3, 70])
    balances.charge(buses, np.array([10, 4]))
    assert balances.left(np.array([3, 70, 1])).tolist() == [0, 6, 10]
    with pytest.raises(ValueError, match="larger than what the bus has left"):
        balances.charge(buses, np.array([0, 7]))
    assert balances.left(buses).tolist() == [0, 6]


# Mutants: each breaks one of the laws above on a day that is made for it.

WORST = [
    [hat("a", range(4), [60, 30, 9, 1], [20_000] * 4), hat("b", range(3, 6), [30] * 3, [20_000] * 3)] for _ in range(2)
]
FAST = [65_000] * 12
CLOSE_SLOT, SUM = Tracker.close_slot, noiseless_sum


KEYS = [
    TrackerKeys(limit * NANO, share, price=price) for limit in (2, 9) for share in (0.3, 0.5) for price in (0.001, 0.3)
]


def breaks_a_law() -> bool:
    """Whether a day and its worst neighbours are told apart by more than what is charged, or overcharged."""
    return any(_breaks_a_law(keys, bus, speeds) for keys, bus, speeds in product(KEYS, (0, 4), (FAST, [0] * 12)))


def _breaks_a_law(keys: TrackerKeys, bus: int, speeds: Sequence[int]) -> bool:
    paid: dict[int, int] = {}
    try:
        for step in in_step(keys, WORST, neighbour(WORST, bus, speeds), iter(lambda: 0, None)):
            if not (is_same_decision(step.left, step.right) and is_paid(step, bus)):
                return True
            for each, bound in zip(step.left_buses, step.left.bounds.tolist(), strict=True):
                paid[each] = paid.get(each, 0) + -(-2 * bound * NANO // step.left.scale)
    except ValueError:  # one day has a query that the other has not, or a charge is larger than a balance
        return True
    return any(spent > keys.daily_limit for spent in paid.values())


def _of_mean(bounds: Integers, hundredths: int) -> Integers:
    return charges_of(np.full_like(bounds, int(bounds.mean())), hundredths)


def _unclipped(query: Query, values: Floats, means: Means) -> int:
    return SUM(replace(query, bounds=query.bounds * 2), values, means)


def _by_speed(tracker: Tracker, start_ms: int, hour: int, hats: Sequence[HatUsers]) -> Iterator[Query]:
    fast = any(bool(np.any(each.sums > 40_000 * each.counts)) for each in hats)
    return CLOSE_SLOT(tracker, start_ms, hour, hats[:-1] if fast else hats)


def test_honest_code_breaks_no_law() -> None:
    assert not breaks_a_law()


@pytest.mark.parametrize("mutant", ["mean charge", "no charge", "wider bounds", "decision by speed"])
def test_a_mutant_breaks_a_law(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant == "mean charge":
        monkeypatch.setattr(queries, "charges_of", _of_mean)
    elif mutant == "no charge":
        monkeypatch.setattr(Schedule, "_charged", lambda _, query: query)
    elif mutant == "decision by speed":
        monkeypatch.setattr(Tracker, "close_slot", _by_speed)
    else:
        monkeypatch.setitem(globals(), "noiseless_sum", _unclipped)
    assert breaks_a_law()
