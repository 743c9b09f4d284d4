"""Families of a tracker: one query, and all queries of a day, of one bus that goes at another speed all day."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hatcast.lab.audit.hats import CELL, NOW_MS, Claim, Family, Neighbours, RandomNumbers, Run, changed, random_share
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.release.tracker import PolicyTracker
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.tracker import HatUsers
from hatcast.stream.units import NANO

_CELLS: Final = ("87608b0d0ffffff", CELL, "87608b0d3ffffff")
_TIMETABLE: Final = Timetable.of({_CELLS[0]: 120, _CELLS[1]: 410})  # in place of the file, which has other cells
_MOST_COUNT: Final = 30
_MORE_USERS: Final = 3

Rows = tuple[tuple[int, float], ...]
"""(readings, share of the range) of each bus of a HAT: the first one is the bus in which the neighbours differ"""


@dataclass(frozen=True, slots=True)
class TrackerDay:
    """A day: slots, cells of a slot, buses. other: the bus's shares in the other one, in each HAT."""

    slots: tuple[tuple[Rows, ...], ...]
    other: tuple[float, ...]


class TrackerFamily(Family):
    """The queries of a day under a tracker policy, its settlement included."""

    name = "tracker day"
    sample_divisor = 4

    def __init__(self, policy: Policy) -> None:
        """Args: `policy`, with a tracker."""
        self.claim = Claim(policy.keys_of(TrackerKeys).daily_limit / NANO)
        self._policy = policy
        self._timetable = None if policy.keys_of(TrackerKeys).timetable is None else _TIMETABLE
        self._users = max(policy.min_users, 1)
        calendar = Calendar(policy)
        self._slots: list[Slot] = [slot for slot in calendar.slots_of("2022-01-03") if slot.outside is None][:4]

    def worst(self) -> list[Neighbours]:
        """See `Family`: at 0 and at U, as busy as the others and far busier, in one HAT and in all."""
        found = []
        for slots, cells in ((1, 1), (min(2, len(self._slots)), 2)):
            for count in (4, _MOST_COUNT):
                hat = ((count, 0.0), *((4, 0.5) for _ in range(self._users - 1)))
                found.append(self._neighbours(TrackerDay((((hat,) * cells),) * slots, (1.0,) * slots * cells)))
        return found

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        slots = tuple(
            tuple(self._hat(random) for _ in range(random.integers(1, len(_CELLS) + 1)))
            for _ in range(random.integers(1, len(self._slots) + 1))
        )
        return self._neighbours(TrackerDay(slots, tuple(random_share(random) for slot in slots for _ in slot)))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: the bus's speed in one HAT."""
        day: TrackerDay = neighbours.data
        share, at = random_share(random), random.integers(0, len(day.other))
        return self._neighbours(replace(day, other=changed(day.other, at, share)))

    def _hat(self, random: RandomNumbers) -> Rows:
        users = self._users + random.integers(0, _MORE_USERS)
        return tuple((random.integers(1, _MOST_COUNT), random_share(random)) for _ in range(users))

    def _neighbours(self, day: TrackerDay) -> Neighbours:
        shares = iter(day.other)
        other = tuple(tuple(((hat[0][0], next(shares)), *hat[1:]) for hat in slot) for slot in day.slots)
        name = f"a bus in {len(day.other)} HATs of {len(day.slots)} hours"
        return Neighbours(name, self._run(day.slots), self._run(other), day)

    def _run(self, day: Sequence[Sequence[Rows]]) -> Run:
        upper = self._policy.upper_bound
        slots = [
            (self._slots[at], [_hat_users(cell, rows, upper) for cell, rows in zip(_CELLS, hats, strict=False)])
            for at, hats in enumerate(day)
        ]

        def run(noise: Noise) -> list[bytes]:
            tracker = PolicyTracker(self._policy, None, self._timetable)
            tracker.begin_day(slots[0][0].date, ())
            releases = []
            for slot, hats in slots:
                releases += tracker.close_slot(slot, hats, noise)
            releases += tracker.settle(noise)
            return [numbered(release.record(NOW_MS), 1) for release in releases]

        return run


def _hat_users(cell: str, rows: Rows, upper: int) -> HatUsers:
    counts = np.array([count for count, _ in rows], np.int64)
    sums = np.array([int(count * share * upper) for count, share in rows], np.int64)
    return HatUsers(cell, np.arange(1, len(rows) + 1, dtype=np.uint64), counts, sums)
