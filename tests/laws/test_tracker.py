"""Laws of the tracker: decisions see counts alone, and a bus pays for what it moves, at most the daily limit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.mechanisms import LaplaceNoise
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys
from hatcast.stream.tracker import query as queries
from hatcast.stream.tracker import track as tracks
from hatcast.stream.tracker.counts import Floats, Integers
from hatcast.stream.tracker.model import Means
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import CLIPS, STEPS, ResidualQuery, charges_of, noiseless_sum
from hatcast.stream.tracker.schedule import Balances, Schedule
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.track import HatEstimate, Track
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import NANO
from tests.laws.tracker_twins import GUESSED, OF_SPEEDS, Change, Day, hat, hold
from tests.support import examples

MOST_HATS = 9  # of a day, and so of a bus


@st.composite
def one_day(draw: st.DrawFn) -> Day:
    """A few slots, cells and buses, with any speeds in [0, U]."""
    slots = []
    for _ in range(draw(st.integers(1, 3))):
        hats = []
        for cell in sorted(draw(st.sets(st.sampled_from("abcd"), min_size=1, max_size=3))):
            buses = draw(st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True))
            counts = draw(st.lists(st.integers(1, 60), min_size=len(buses), max_size=len(buses)))
            speeds = draw(st.lists(st.integers(0, 65_000), min_size=len(buses), max_size=len(buses)))
            hats.append(hat(cell, buses, counts, speeds))
        slots.append(hats)
    return slots


all_days = st.lists(one_day(), min_size=2, max_size=3)
all_keys = st.builds(
    TrackerKeys,
    daily_limit=st.sampled_from([NANO // 10, 2 * NANO, 5 * NANO + 1, 40 * NANO]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    objective=st.sampled_from(Objective),
    price=st.sampled_from([0.001, 0.3, 5.0]),
    watch=st.sampled_from([frozenset[str](), frozenset("a")]),
    watch_share=st.sampled_from([0.0, 0.5, 1.0]),
)
any_speed = st.one_of(st.sampled_from([0, 65_000]), st.integers(0, 65_000))
changes = st.builds(
    Change, st.integers(0, 1), st.integers(0, 7), st.lists(any_speed, min_size=MOST_HATS, max_size=MOST_HATS)
)


speeds_of_cells = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 1200))
all_timetables = st.lists(st.one_of(st.none(), speeds_of_cells.map(Timetable.of)), min_size=1, max_size=2)
"""of one day after the other: the same for neighbours, as no timetable is made from the readings"""


@given(
    all_keys,
    all_days,
    changes,
    st.lists(st.integers(-(10**8), 10**8), min_size=1, max_size=9),
    all_timetables,
    st.sampled_from([OF_SPEEDS, GUESSED]),
)
@settings(deadline=None, max_examples=examples(100))
def test_neighbours_have_all_in_common_but_sums_that_one_bus_moves_by_at_most_its_charge(
    keys: TrackerKeys,
    days: Sequence[Day],
    change: Change,
    released: Sequence[int],
    timetables: Sequence[Timetable | None],
    prior: Prior,
) -> None:
    hold(keys, days, change, cycle(released), timetables, prior)


# Days that are made for the mutants: buses with unequal balances, in changing HATs.

WORST = [
    [[hat("a", range(4), [60, 30, 9, 1], [0] * 4), hat("b", range(3, 6), [30] * 3, [0] * 3)] for _ in range(2)],
    [
        [hat("a", (4, 0, 1), [9, 50, 2], [0] * 3), hat("c", (5, 2, 4), [7, 30, 8], [0] * 3)],
        [hat("b", range(6), [20] * 6, [0] * 6)],
    ],
]
RELEASED = (0, 700_000, -900_000)
FAST, SLOW = [65_000] * MOST_HATS, [20_000] * MOST_HATS
KEYS = [
    TrackerKeys(limit, share=share, price=price, watch=frozenset("a"), watch_share=watched)
    for limit, share, price, watched in product((9 * NANO, 2 * NANO - 7), (0.3, 0.5), (0.001, 0.3), (0.0, 0.2))
]


TIMETABLES = (Timetable.of({"a": 90, "b": 400}), Timetable.of({"b": 90, "c": 310}))


def hold_on_the_worst_days() -> None:
    """Assert the law for each key, day, bus and extreme speeds."""
    for keys, day, bus, speeds in product(KEYS, (0, 1), (0, 4), (FAST, SLOW)):
        hold(keys, WORST, Change(day, bus, speeds), cycle(RELEASED))
    hold(KEYS[0], WORST, Change(1, 4, FAST), cycle(RELEASED), TIMETABLES)
    hold(KEYS[0], WORST, Change(0, 4, FAST), cycle(RELEASED), prior=GUESSED)


def test_the_law_holds_on_the_worst_days() -> None:
    hold_on_the_worst_days()


@pytest.mark.parametrize("keys", KEYS[::5])
def test_hill_climbing_finds_neighbours_that_use_a_charge_up_and_none_that_exceed_it(keys: TrackerKeys) -> None:
    def used(speeds: Sequence[int]) -> float:
        steps = hold(keys, WORST, Change(0, 0, speeds), cycle(RELEASED))
        return max(step.moved / step.allowed for step in steps if step.allowed)

    speeds = [0] * MOST_HATS  # no neighbour yet: these are its speeds
    start = most = used(speeds)
    for at in range(2):  # the HATs of bus 0 on the first day
        for speed in (0, 40_000, 65_000):
            tried = [*speeds[:at], speed, *speeds[at + 1 :]]
            if used(tried) > most:
                speeds, most = tried, used(tried)
    assert start == 0
    assert 0.9 < most <= 1


@pytest.mark.parametrize("keys", KEYS[::5])
def test_a_bus_in_several_cells_of_a_pulse_uses_its_one_charge_up_and_never_exceeds_it(keys: TrackerKeys) -> None:
    pulses = [step for step in hold(keys, WORST, Change(1, 4, FAST), cycle(RELEASED)) if step.cells > 1]
    assert pulses
    assert all(0.9 < step.moved / step.allowed <= 1 for step in pulses)


def test_days_of_the_law_have_queries_at_the_close_of_a_slot_and_in_the_settlement() -> None:
    for keys in KEYS:
        assert len(hold(keys, WORST, Change(0, 0, FAST), cycle(RELEASED))) >= 4


@given(st.integers(0, 40 * NANO), st.sampled_from(CLIPS.tolist()))
def test_a_charge_is_twice_the_bound_over_the_scale_rounded_up_and_at_most_the_payment(
    payment: int, hundredths: int
) -> None:
    scale = 2 * STEPS * hundredths // 100
    bound = payment * hundredths // 100_000
    (charge,) = charges_of(np.array([bound]), hundredths).tolist()
    assert charge * scale >= 2 * bound * NANO > (charge - 1) * scale
    assert charge <= payment


def test_a_balance_is_never_overdrawn() -> None:
    balances, buses = Balances(10), np.array([3, 70])
    balances.charge(buses, np.array([10, 4]))
    assert balances.left(np.array([3, 70, 1])).tolist() == [0, 6, 10]
    with pytest.raises(ValueError, match="larger than what the bus has left"):
        balances.charge(buses, np.array([0, 7]))
    assert balances.left(buses).tolist() == [0, 6]


# Mutants: each is put in the place of the real function, and breaks one part of the law.

BEGIN_DAY, CLOSE_SLOT, SETTLE, ESTIMATES = Tracker.begin_day, Tracker.close_slot, Tracker.settle, Tracker.estimates
DRAW, CHARGED = Track.draw, Schedule._charged


def charge_the_mean(bounds: Integers, hundredths: int) -> Integers:
    return charges_of(np.full_like(bounds, int(bounds.mean())), hundredths)


def charge_the_largest(bounds: Integers, hundredths: int) -> Integers:
    return charges_of(np.full_like(bounds, bounds.max()), hundredths)


def charge_rounded_down(bounds: Integers, hundredths: int) -> Integers:
    return bounds * 100_000 // hundredths


def charge_half(bounds: Integers, hundredths: int) -> Integers:
    return charges_of(bounds // 2, hundredths)


def charge_nothing(_: Schedule, query: ResidualQuery) -> ResidualQuery:
    return query


def clip_at_twice_the_bounds(query: ResidualQuery, values: Floats, means: Means) -> int:
    return noiseless_sum(replace(query, bounds=query.bounds * 2), values, means)


def clip_at_bounds_rounded_up(query: ResidualQuery, values: Floats, means: Means) -> int:
    return noiseless_sum(replace(query, bounds=query.bounds + 1), values, means)


def clip_each_cell(query: ResidualQuery, values: Floats, means: Means) -> int:
    """A bus has a term for each of its HATs."""
    members, one_by_one = query.members, 0
    numbers = np.arange(len(members.contributions))
    for first, last in pairwise([*members.starts.tolist(), len(numbers)]):
        alone = replace(members, within=np.where((first <= numbers) & (numbers < last), members.within, 0.0))
        one_by_one += noiseless_sum(replace(query, members=alone), values, means)
    return one_by_one


def charge_no_pulse(schedule: Schedule, query: ResidualQuery) -> ResidualQuery:
    return CHARGED(schedule, query) if query.members.is_of_one_cell else query


def pulse_in_a_fast_slot(
    tracker: Tracker, start_ms: int, hour: int, hats: Sequence[HatUsers]
) -> Iterator[ResidualQuery]:
    fast = any(bool(np.any(each.sums > 10_000 * each.counts)) for each in hats)
    made = CLOSE_SLOT(tracker, start_ms, hour, hats)
    return (query for query in made if fast or query.members.is_of_one_cell)


def draw_a_pulse_at_half_the_scale(track: Track, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
    if query.members.is_of_one_cell:
        return DRAW(track, query, values, noise)
    return noise.laplace(noiseless_sum(query, values, track.means), query.scale, 2.0).value


def stop_in_a_fast_slot(
    tracker: Tracker, start_ms: int, hour: int, hats: Sequence[HatUsers]
) -> Iterator[ResidualQuery]:
    fast = any(bool(np.any(each.sums > 10_000 * each.counts)) for each in hats)
    return islice(CLOSE_SLOT(tracker, start_ms, hour, hats), 0 if fast else None)


def settle_after_a_fast_day(tracker: Tracker) -> Iterator[ResidualQuery]:
    return SETTLE(tracker) if bool(np.any(tracker.values > 10)) else iter(())


def keep_values(tracker: Tracker) -> None:
    kept = tracker.values
    BEGIN_DAY(tracker)
    tracker.values = kept


def number_a_bus_anew(tracker: Tracker, start_ms: int, hour: int, hats: Sequence[HatUsers]) -> Iterator[ResidualQuery]:
    tracker._buses = {1_000_000 + hour + number: number for number in range(len(tracker._buses))}
    return CLOSE_SLOT(tracker, start_ms, hour, hats)


def estimate_from_values(tracker: Tracker, numbers: Sequence[int]) -> list[list[HatEstimate]]:
    return [
        [replace(each, mean=replace(each.mean, mean=float(tracker.values.mean()))) for each in of]
        for of in ESTIMATES(tracker, numbers)
    ]


def calibrate_by_the_sum(track: Track, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
    track.calibration.add(noiseless_sum(query, values, track.means) / STEPS, query.gain.variance, query.noise)
    return DRAW(track, query, values, noise)


def remember_the_sum(track: Track, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
    track.means.shared[0] += noiseless_sum(query, values, track.means) / STEPS
    return DRAW(track, query, values, noise)


def draw_the_same_noise() -> Callable[[Track, ResidualQuery, Floats, LaplaceNoise], int]:
    drawn: dict[int, int] = {}

    def draw(track: Track, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
        if query.scale not in drawn:
            drawn[query.scale] = noise.laplace(0, query.scale, 1.0).value
        return noiseless_sum(query, values, track.means) + drawn[query.scale]

    return draw


def release_the_same_number() -> Callable[[Track, ResidualQuery, Floats, LaplaceNoise], int]:
    drawn: dict[int, int] = {}

    def draw(track: Track, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
        if query.scale not in drawn:
            drawn[query.scale] = DRAW(track, query, values, noise)
        return drawn[query.scale]

    return draw


def draw_half_of_the_noise(track: Track, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
    return noise.laplace(noiseless_sum(query, values, track.means), query.scale, 2.0).value


def draw_at_another_scale(track: Track, query: ResidualQuery, values: Floats, noise: LaplaceNoise) -> int:
    return noise.laplace(noiseless_sum(query, values, track.means), query.scale - 1, 1.0).value


def draw_no_noise(track: Track, query: ResidualQuery, values: Floats, _: LaplaceNoise) -> int:
    return noiseless_sum(query, values, track.means)


MUTANTS: list[tuple[object, str, Callable[..., object], str]] = [
    (queries, "charges_of", charge_the_mean, "charge|a charge is larger"),
    (queries, "charges_of", charge_the_largest, "charge|a charge is larger"),
    (queries, "charges_of", charge_rounded_down, "charge"),
    (queries, "charges_of", charge_half, "charge"),
    (Schedule, "_charged", charge_nothing, "limit"),
    (Schedule, "_charged", charge_no_pulse, "limit"),
    (Tracker, "close_slot", number_a_bus_anew, "charge|limit"),
    (tracks, "noiseless_sum", clip_each_cell, "sum"),
    (Tracker, "close_slot", pulse_in_a_fast_slot, "decision"),
    (Track, "draw", draw_a_pulse_at_half_the_scale, "noise"),
    (tracks, "noiseless_sum", clip_at_twice_the_bounds, "sum"),
    (tracks, "noiseless_sum", clip_at_bounds_rounded_up, "sum"),
    (Tracker, "begin_day", keep_values, "sum"),
    (Tracker, "close_slot", stop_in_a_fast_slot, "decision"),
    (Tracker, "settle", settle_after_a_fast_day, "decision"),
    (Tracker, "estimates", estimate_from_values, "published"),
    (Track, "draw", calibrate_by_the_sum, "published"),
    (Track, "draw", remember_the_sum, "published"),
    (Track, "draw", draw_the_same_noise(), "noise"),
    (Track, "draw", release_the_same_number(), "noise"),
    (Track, "draw", draw_half_of_the_noise, "noise"),
    (Track, "draw", draw_at_another_scale, "noise"),
    (Track, "draw", draw_no_noise, "noise"),
]


@pytest.mark.parametrize(("owner", "name", "mutant", "part"), MUTANTS, ids=[each[2].__name__ for each in MUTANTS])
def test_a_mutant_breaks_its_part_of_the_law(
    owner: object, name: str, mutant: Callable[..., object], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises((AssertionError, ValueError), match=f"^({part})"):
        hold_on_the_worst_days()
