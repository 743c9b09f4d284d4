"""Family of an answer to a query over days: one user's day differs, in one cell and slot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from hatcast.lab.audit.families import Claim, Neighbours, RandomNumbers, Run, chunks_of, stripped
from hatcast.lab.audit.hats import CELL, NOW_MS
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.query import Query
from hatcast.stream.queries import RetainedDay
from hatcast.stream.release.queries import QueryPeriod, query_periods_of, query_release_of
from hatcast.stream.units import NANO

_COUNTS: Final = 5
_MORE_USERS: Final = 4  # a day, beyond what `min_n` needs

UserDay = tuple[int, float]
"""Readings of a user on a day, and their mean as a share of the range"""


@dataclass(frozen=True, slots=True)
class Days:
    """Users of each day, and the user-day in which the neighbours differ: (day, position), its other share."""

    users: tuple[tuple[UserDay, ...], ...]
    at: tuple[int, int]
    other: float | None


class QueryFamily:
    """Answers to one query of a policy. See `Family`."""

    is_alone = False
    sample_divisor = 1

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
            days[of_date] = RetainedDay.of(stripped(chunks_of(rows)) if rows else [])

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
