"""The law of the tracker, on two neighbours side by side that have the same released numbers.

Neighbours differ in the speeds of one bus on one day. All that is decided, and all that is published, must be the same
for both; each sum before the noise may differ by what that bus is charged on that day, and by nothing on other days.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import cycle, zip_longest

import numpy as np

from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.tracker_keys import TrackerKeys
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import HOUR_MS, NANO

UPPER_BOUND = 65.0
OF_SPEEDS = Prior.of(UPPER_BOUND)
GUESSED = Prior.of(UPPER_BOUND, value="load")
"""whose scale is learnt at the end of each date"""
FIRST_HOUR = 7
NOBODY = -1  # the bus in which days without a change differ
Day = Sequence[Sequence[HatUsers]]
"""The HATs of each slot of a day"""


def hat(cell: str, buses: Sequence[int], counts: Sequence[int], speeds: Sequence[int]) -> HatUsers:
    """Buses with their means, in milli-units."""
    return HatUsers(
        cell,
        np.array(buses, np.uint64),
        np.array(counts, np.int64),
        np.array([count * speed for count, speed in zip(counts, speeds, strict=True)], np.int64),
    )


@dataclass(frozen=True)
class Change:
    """What neighbours differ in: the bus has one of these speeds, milli-units, in each of its HATs of one day."""

    day: int
    bus: int
    speeds: Sequence[int]

    def of(self, days: Sequence[Day]) -> list[Day]:
        rest = iter(self.speeds)
        changed = [
            [
                replace(each, sums=np.where(each.pseudonyms == self.bus, each.counts * next(rest), each.sums))
                for each in of
            ]
            for of in days[self.day]
        ]
        return [*days[: self.day], changed, *days[self.day + 1 :]]


class Recorder:
    """Noise after which the released number is `given`, whatever the sum is. Keeps what it was asked for."""

    def __init__(self) -> None:
        self.given = 0
        self.asked: list[tuple[int, int, float]] = []

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        self.asked.append((value, distance, epsilon))
        return Noisy(self.given, distance / epsilon)


class Twin:
    """One neighbour.

    users   pseudonym of each contribution of the day, in the order in which they were given
    scale   of the prior when the day began
    """

    def __init__(self, keys: TrackerKeys, prior: Prior) -> None:
        self.tracker = Tracker(keys, prior)
        self.noise = Recorder()
        self.users: list[int] = []
        self.scale: int | None = None

    def begin_day(self, timetable: Timetable | None) -> None:
        self.tracker.timetable = timetable
        self.tracker.begin_day()
        self.users, self.scale = [], self.tracker.prior_scale

    def close_slot(self, hours: int, hats: Sequence[HatUsers]) -> Iterator[ResidualQuery]:
        self.users += [user for each in hats for user in each.pseudonyms.tolist()]
        return self.tracker.close_slot(hours * HOUR_MS, hours % 24, hats)

    def sum_of(self, query: ResidualQuery, released: int) -> int:
        """Release a query. Return what the noise was added to."""
        before = len(self.noise.asked)
        self.noise.given = released
        drawn = self.tracker.tracks[0].draw(query, self.tracker.values, self.noise)
        assert len(self.noise.asked) == before + 1, "noise: not drawn once for each query"
        assert drawn == released, "noise: something else is released than what the noise returned"
        value, distance, epsilon = self.noise.asked[-1]
        assert (distance, epsilon) == (query.scale, 1.0), "noise: another scale than the charges are computed with"
        return value

    def published(self) -> tuple[object, ...]:
        """All that follows from released numbers: estimates, and the state with means and calibration."""
        numbers = range(len(self.tracker.schedule.day.hats))
        return self.tracker.estimates(numbers), self.tracker.state("policy", "date").encoded()


@dataclass(frozen=True)
class Step:
    """One query of both neighbours: how far its sums are apart, and how far they may be by the bus's charge.

    cells   in which the bus is a member of it
    """

    moved: int
    allowed: int
    cells: int


def hold(
    keys: TrackerKeys,
    days: Sequence[Day],
    change: Change,
    released: Iterable[int],
    timetables: Sequence[Timetable | None] = (None,),
    prior: Prior = OF_SPEEDS,
) -> list[Step]:
    """Run both neighbours with the same released numbers, and assert the law at each step. timetables: of the days."""
    numbers, tables = iter(released), cycle(timetables)
    twins = Twin(keys, prior), Twin(keys, prior)
    steps: list[Step] = []
    for day, slots in enumerate(zip(days, change.of(days), strict=True)):
        timetable = next(tables)
        for twin in twins:
            twin.begin_day(timetable)
        paid: Counter[int] = Counter()
        bus = change.bus if day == change.day else NOBODY
        for slot, hats in enumerate(zip(*slots, strict=True)):
            hours = 24 * day + FIRST_HOUR + slot
            made = [twin.close_slot(hours, of) for twin, of in zip(twins, hats, strict=True)]
            steps += [_step(twins, both, bus, next(numbers), paid) for both in zip_longest(*made)]
            _assert_alike(twins)
        made = [twin.tracker.settle() for twin in twins]
        steps += [_step(twins, both, bus, next(numbers), paid) for both in zip_longest(*made)]
        assert all(spent <= keys.daily_limit for spent in paid.values()), "limit: a bus has paid more on a day"
        for twin in twins:
            scale = twin.tracker.prior_scale
            twin.tracker.end_day()
            assert scale == twin.scale, "decision: the scale of the prior changes within a date"
        _assert_alike(twins)
    return steps


def _step(
    twins: tuple[Twin, Twin], both: Sequence[ResidualQuery | None], bus: int, released: int, paid: Counter[int]
) -> Step:
    left, right = both
    assert left is not None, "decision: one neighbour has one query more"
    assert right is not None, "decision: one neighbour has one query more"
    assert _plain(left) == _plain(right), "decision: the neighbours' queries differ"
    sums = [twin.sum_of(query, released) for twin, query in zip(twins, (left, right), strict=True)]
    _assert_paid(left, twins[0].noise.asked[-1][1])
    users = _users_of(left, twins[0])
    charges = dict(zip(users, left.charges.tolist(), strict=True))
    bounds = dict(zip(users, left.bounds.tolist(), strict=True))
    paid.update(charges)
    moved = abs(sums[0] - sums[1])
    assert moved <= 2 * bounds.get(bus, 0), "sum: it differs by more than the bounds of the bus"
    assert moved * NANO <= charges.get(bus, 0) * left.scale, "sum: it differs by more than the bus is charged"
    learned = [twin.tracker.tracks[0].learn(query, released) for twin, query in zip(twins, (left, right), strict=True)]
    assert learned[0] == learned[1], "published: the neighbours' innovations differ"
    _assert_alike(twins)
    day = twins[0].tracker.schedule.day
    of_bus = [number for number in left.members.contributions.tolist() if twins[0].users[number] == bus]
    return Step(moved * NANO, charges.get(bus, 0) * left.scale, len({day.hats[day.hat[each]].cell for each in of_bus}))


def _assert_paid(query: ResidualQuery, scale: int) -> None:
    """Each bus pays for its own bounds, rounded up, and no more than it is ready to."""
    for bound, charge, payment in zip(
        query.bounds.tolist(), query.charges.tolist(), query.payments.tolist(), strict=True
    ):
        assert charge == -(-2 * bound * NANO // scale), "charge: not that of the bus's own bounds, rounded up"
        assert 0 <= charge <= payment, "charge: more than the payment"


def _users_of(query: ResidualQuery, twin: Twin) -> list[int]:
    """Return the pseudonym of each bus of a query, by its contributions."""
    members = query.members
    pairs = {
        (position, twin.users[number])
        for position, number in zip(members.of_bus.tolist(), members.contributions.tolist(), strict=True)
    }
    users = [user for _, user in sorted(pairs)]
    assert len(users) == len(set(users)) == len(members.buses), "charge: a bus has more than one balance"
    return users


def _assert_alike(twins: tuple[Twin, Twin]) -> None:
    left, right = twins
    assert left.published() == right.published(), "published: estimates or states of the neighbours differ"


def _plain(value: object) -> object:
    """Return all fields, and those of fields, as values that can be compared."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if is_dataclass(value):
        return [_plain(getattr(value, each.name)) for each in fields(value)]
    return value
