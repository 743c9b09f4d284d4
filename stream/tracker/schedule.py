"""When queries are made, and who pays for them: at the close of each slot, and at the end of the day.

All decisions are functions of public counts and the policy.    [docs/specification/tracker.md, section 3]
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from hatcast.stream.tracker.balances import Balances
from hatcast.stream.tracker.contributions import DayCounts, HatCounts
from hatcast.stream.tracker.model import Covariance
from hatcast.stream.tracker.query import Query, members_of, query_of
from hatcast.stream.tracker.settlement import Settlement
from hatcast.stream.tracker.setting import TrackerKeys, Variances

_PART_OF_UNIT: Final = 0.5  # a HAT is queried if its buses together pay at least this part of one payment
_WATCHED_HATS: Final = 3  # of a bus's day, for which its watch share is meant to last


class Schedule:
    """Queries of one policy, in order, and the covariance that follows from them.

    Call, in order: `begin_day`; for each slot `add_cells`, `add`, `close_slot`; at the end of the day `settle`.
    """

    def __init__(self, keys: TrackerKeys, variances: Variances) -> None:
        self._keys = keys
        self._variances = variances
        self.covariance = Covariance(variances)
        self._watched: set[int] = set()
        self._seen = np.empty(0)
        self._hours = 0
        self.begin_day()

    def begin_day(self) -> None:
        """Begin a local date."""
        self.day = DayCounts(self._variances)
        self.balances = Balances(self._keys.daily_limit)
        self.covariance.begin_day()
        self._is_unpaid = np.empty(0, bool)
        self._newest = range(0)

    def add_cells(self, cells: Sequence[str]) -> None:
        """Number cells that were never seen, from the largest number on."""
        first = self.covariance.cells
        self._watched |= {first + i for i, cell in enumerate(cells) if cell in self._keys.watch}
        self.covariance.add_cells(len(cells))
        self._seen = np.concatenate((self._seen, np.zeros(len(cells))))

    def add(self, hats: Sequence[HatCounts]) -> None:
        """Add the final HATs of a slot."""
        self._newest = self.day.add(hats)
        self.covariance.add_hats(self.day.hats[self._newest.start :])
        self._is_unpaid = np.concatenate((self._is_unpaid, np.ones(len(self.day.hat) - len(self._is_unpaid), bool)))
        np.add.at(self._seen, [hat.cell for hat in hats], 1)
        self._hours += 1

    def close_slot(self) -> Iterator[Query]:
        """Make the queries of the newest slot: watched cells first, then those with most users."""
        counted = self.day.hats
        for number in sorted(self._newest, key=lambda n: (counted[n].cell not in self._watched, -counted[n].users)):
            yield from self._query_hat(number)

    def _query_hat(self, number: int) -> Iterator[Query]:
        keys, hat = self._keys, self.day.hats[number]
        contributions = np.arange(hat.first, hat.end)
        buses = self.day.bus[contributions]
        watched = hat.cell in self._watched
        unit = int(
            keys.daily_limit * (keys.watch_share / _WATCHED_HATS if watched else keys.share / keys.hours_paid)
        )
        share = keys.watch_share if watched else keys.share
        payments = np.minimum(unit, self.balances.left(buses, reserve=int((1 - share) * keys.daily_limit)))
        if payments.sum() < _PART_OF_UNIT * unit or not unit:
            return
        paying = payments > 0
        members = members_of(contributions[paying], self.day, self.covariance, self._variances)
        query = query_of(members, payments[paying], self.day, self.covariance, self._variances)
        self._is_unpaid[contributions[paying]] = False
        yield self._charged(query)

    def settle(self) -> Iterator[Query]:
        """Make the queries of the day's end."""
        settlement = Settlement(self._keys, self._variances, self.day, self.covariance, self.balances)
        for query in settlement.queries(np.flatnonzero(self._is_unpaid), self._seen, self._hours):
            yield self._charged(query)

    def _charged(self, query: Query) -> Query:
        self.balances.charge(query.members.buses, query.charges)
        return query
