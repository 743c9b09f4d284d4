"""Families of an answer to a query over days, and of a private list of cells with the exact law of such lists.

Neighbours of an answer: one user's day differs, in one cell and slot. Neighbours of a list are recordings that differ
in one user-day. They go through the code of `hatcast survey --private`: rows on disk, the cap, noise and comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Final

import h3.api.basic_int as h3
import msgspec

from hatcast.lab.audit.hats import CELL, NOW_MS, Claim, Family, Neighbours, RandomNumbers, Run, changed, chunks_of
from hatcast.lab.survey.counts import Counts, capped_counts
from hatcast.lab.survey.rows import MemoryLimits, RowCollector, open_spill, slots_of
from hatcast.lab.survey.run import select_from
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import strip
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.query import Query
from hatcast.stream.queries import RetainedDay
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from hatcast.stream.release.queries import QueryPeriod, query_periods_of, query_release_of
from hatcast.stream.units import DAY_MS, NANO

_MOST_CELLS: Final = 3
_MOST_SLOTS: Final = 4
_MOST_USERS: Final = 4
_MORE: Final = 3  # pairs beyond the limit that the bus tries to enter
_SPEED: Final = 30.0
_GAP_MS: Final = 1000

Pairs = tuple[tuple[int, int], ...]  # (candidate, slot) that a user-day tries to enter; the first ones in time count


@dataclass(frozen=True, slots=True)
class ComparedRecording:
    """User-days of one date, and which of them the other recording does not have."""

    users: tuple[Pairs, ...]
    missing: int


class ListFamily(Family):
    """A private list of cells, of which the policy's file states the cost."""

    name = "private list"

    def __init__(self, policy: Policy, cap: int | None = None) -> None:
        """Args: `policy`, with a private list; `cap`, of the counting under audit; None: the policy's."""
        cost = policy.selection_cost
        if cost is None or not policy.cells:
            raise ValueError(f"{policy.name} has no private list of cells")
        self.claim = Claim(cost.epsilon)
        self._cells = sorted(policy.cells)[:_MOST_CELLS]
        self._policy = replace(policy, cells=frozenset(self._cells), selection_cost=None)
        self._days, self._number = (cost.first, cost.last), len(cost.dates)
        slots = [slot for slot in Calendar(self._policy).slots_of(cost.dates[0]) if slot.outside is None]
        self._starts = [slot.start_ms for slot in slots][:_MOST_SLOTS]
        self._allowed, self._cap = policy.max_hats_per_day, cap or policy.max_hats_per_day
        self._all = tuple((cell, slot) for slot in range(len(self._starts)) for cell in range(len(self._cells)))

    def worst(self) -> list[Neighbours]:
        """See `Family`: a bus that tries to enter more pairs than it may, alone and beside others."""
        bus = self._all[: self._allowed + _MORE]
        return [self._neighbours(ComparedRecording((bus, *(self._all,) * beside), 0)) for beside in (0, 1, _MOST_USERS)]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        users = tuple(self._pairs(random) for _ in range(1 + random.integers(0, _MOST_USERS)))
        return self._neighbours(ComparedRecording(users, random.integers(0, len(users))))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: the pairs of one user-day."""
        recording: ComparedRecording = neighbours.data
        pairs, at = self._pairs(random), random.integers(0, len(recording.users))
        return self._neighbours(replace(recording, users=changed(recording.users, at, pairs)))

    def _pairs(self, random: RandomNumbers) -> Pairs:
        number = random.integers(1, len(self._all) + 1)
        return tuple(self._all[random.integers(0, len(self._all))] for _ in range(number))

    def _neighbours(self, recording: ComparedRecording) -> Neighbours:
        users, missing = recording.users, recording.missing
        name = f"{len(users)} user-days, without one that tries to enter {len(users[missing])} pairs"
        other = (*users[:missing], *users[missing + 1 :])
        return Neighbours(name, self._run(users), self._run(other), recording)

    def _run(self, users: Sequence[Pairs]) -> Run:
        counts = self._counts(users)

        def run(noise: Noise) -> list[bytes]:
            above = Fraction(1, self._number), self._number  # a sum above 1: the noise decides
            chosen = select_from(counts, self._cells, self._allowed, above, self.claim.epsilon, noise)
            return [msgspec.json.encode([chosen.candidates, [int(c in chosen.selected) for c in self._cells]])]

        return run

    def _counts(self, users: Sequence[Pairs]) -> Counts:
        resolutions = (self._policy.h3_resolution,)
        pseudonyms, now_ms = Pseudonyms(bytes(KEY_BYTES)), NOW_MS + 400 * DAY_MS
        rows = RowCollector(self._policy, pseudonyms, resolutions, self._days, now_ms)
        for user, pairs in enumerate(users):
            for at, (cell, slot) in enumerate(pairs):
                lat, lon = h3.cell_to_latlng(self._cells[cell])
                time = self._starts[slot] + at * _GAP_MS
                rows.add(Recorded(b"", Reading(f"bus {user}", time, lat, lon, _SPEED), time))
        with open_spill(resolutions, MemoryLimits().part_rows) as spill:
            spill.write(rows.take())
            return capped_counts(spill, spill.dates(), self._cells, slots_of(self._policy), self._cap)


_COUNTS: Final = 5
_MORE_USERS: Final = 4  # a day, beyond what `min_n` needs

UserDay = tuple[int, float]  # readings of a user on a day, and their mean as a share of the range


@dataclass(frozen=True, slots=True)
class Days:
    """Users of each day, and the user-day in which the neighbours differ: (day, position), its other share."""

    users: tuple[tuple[UserDay, ...], ...]
    at: tuple[int, int]
    other: float | None


class QueryFamily(Family):
    """Answers to one query of a policy."""

    def __init__(self, policy: Policy, query: Query) -> None:
        """Args: `query`, of this policy."""
        self.name = f"query {query.name}"
        self.claim = Claim(query.epsilon_nano / NANO)
        self._policy = policy
        self._calendar = Calendar(policy)
        self._period = self._period_of(query)
        self._dates = len(self._period.period.dates)
        self._least = -(-max(query.min_n, self._dates) // self._dates)
        limit = query.speed_limit
        if limit is None:  # on request: any limit of the range
            limit = policy.upper_bound // 2
            self._period = self._period.with_limit(limit)
        self._border = limit / policy.upper_bound

    def worst(self) -> list[Neighbours]:
        """See `Family`: 0 and U of the busiest and the least busy user, on the first and the last day."""
        found = []
        for rest in (0.0, 0.5, 1.0):
            day = tuple((1 + at % _COUNTS, rest) for at in range(self._least))
            for at in ((0, 0), (self._dates - 1, self._least - 1)):
                users = [list(day) for _ in range(self._dates)]
                users[at[0]][at[1]] = (users[at[0]][at[1]][0], 0.0)
                found.append(self._neighbours(Days(tuple(map(tuple, users)), at, 1.0)))
        return found

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        number = self._least + random.integers(0, _MORE_USERS)
        users = tuple(
            tuple((random.integers(1, _COUNTS + 1), self._share(random)) for _ in range(number))
            for _ in range(self._dates)
        )
        at = random.integers(0, self._dates), random.integers(0, number)
        return self._neighbours(Days(users, at, self._share(random)))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: the user-day, or its share."""
        days: Days = neighbours.data
        if random.random() < 0.5:
            return self._neighbours(replace(days, other=self._share(random)))
        day = random.integers(0, self._dates)
        return self._neighbours(replace(days, at=(day, random.integers(0, len(days.users[day])))))

    def _share(self, random: RandomNumbers) -> float:
        ends = (0.0, 1.0, self._border, min(1.0, self._border + 1e-3), random.random())
        return ends[random.integers(0, len(ends))]

    def _neighbours(self, days: Days) -> Neighbours:
        day, position = days.at
        users = list(days.users[day])
        if self._policy.relation is Relation.ADD_REMOVE or days.other is None:
            del users[position]
        else:
            users[position] = (users[position][0], days.other)
        other = (*days.users[:day], tuple(users), *days.users[day + 1 :])
        name = f"{len(days.users)} days, one of a user's {days.users[day][position][0]} readings differs"
        return Neighbours(name, self._run(days.users), self._run(other), days)

    def _run(self, users: Sequence[Sequence[UserDay]]) -> Run:
        upper = self._policy.upper_bound
        days: dict[str, RetainedDay | None] = {}
        for of_date, of_day in zip(self._period.period.dates, users, strict=True):
            rows = [(at + 1, count, int(count * share * upper)) for at, (count, share) in enumerate(of_day)]
            days[of_date] = RetainedDay.of([strip(chunk) for chunk in chunks_of(rows)] if rows else [])

        def run(noise: Noise) -> list[bytes]:
            release = query_release_of(self._period, self._calendar, CELL, days, noise)
            return [numbered(release.record(NOW_MS), 1)]

        return run

    def _period_of(self, query: Query) -> QueryPeriod:
        """Return the first period of the query with a slot that exists."""
        first = query.first
        for slot in self._calendar.slots_of(max(first, date(2022, 1, 3)).isoformat()):
            if slot.outside is None:
                for period in query_periods_of(self._policy, self._calendar, slot.date, slot.name):
                    if period.query == query:
                        return period
        raise ValueError(f"the query {query.name} has no period")
