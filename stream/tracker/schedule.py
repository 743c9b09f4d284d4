"""Queries of a policy in order: at the close of each slot, and at the end of the day.

All decisions are functions of public counts and the policy.    [docs/specification/tracker.md, section 3]
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from hatcast.stream.policy.tracker_keys import TrackerKeys
from hatcast.stream.tracker.appraisal import SMALLEST, Appraisal, Outlook
from hatcast.stream.tracker.balances import Balances
from hatcast.stream.tracker.contributions import DayCounts, Hat, HatCounts, Integers
from hatcast.stream.tracker.model import SHARED, Covariance
from hatcast.stream.tracker.query import Query, members_of
from hatcast.stream.tracker.setting import Variances
from hatcast.stream.tracker.settlement import Settlement, values_of
from hatcast.stream.tracker.state import TrackerState, floats_of

_PRICE: Final = 0.5  # at the close of a slot, of the policy's price: only a HAT's own hour can be shown live
_WATCHED_HATS: Final = 4  # of a bus's day, for which its watch share is meant to last


class Schedule:
    """Queries of one policy, in order, and the covariance that follows from them.

    Call, in order: `begin_day`; for each slot `add_cells`, `add`, `close_slot`; at the end of the day `settle`.

    seen, hours   as in `Outlook`
    """

    def __init__(self, keys: TrackerKeys, variances: Variances, state: TrackerState | None = None) -> None:
        """state: after the days before; None: there were none."""
        self._keys = keys
        self._variances = variances
        self.covariance = Covariance(variances)
        self._watched: set[int] = set()
        self.seen = np.empty(0)
        self.hours = 0
        if state is not None:
            cells = len(state.cells)
            self.add_cells(state.cells)
            self.covariance.shared = floats_of(state.covariance, SHARED, SHARED)
            self.covariance.slopes = floats_of(state.slopes, cells, SHARED)
            self.covariance.variance = floats_of(state.variance, cells)
            self.seen, self.hours = floats_of(state.seen, cells), state.hours
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
        self.seen = np.concatenate((self.seen, np.zeros(len(cells))))

    def add(self, hats: Sequence[HatCounts]) -> None:
        """Add the final HATs of a slot."""
        self._newest = self.day.add(hats)
        self.covariance.add_hats(self.day.hats[self._newest.start :])
        self._is_unpaid = np.concatenate((self._is_unpaid, np.ones(len(self.day.hat) - len(self._is_unpaid), bool)))
        np.add.at(self.seen, [hat.cell for hat in hats], 1)
        self.hours += 1

    def close_slot(self) -> Iterator[Query]:
        """Make the queries of the newest slot: watched cells first, then those with most users."""
        counted = self.day.hats
        users = np.array([hat.users for hat in counted], np.float64)
        values = values_of(users, self._keys.objective)
        appraisal = Appraisal(values, self._variances, self.day, self.covariance, self.balances)
        outlook = Outlook(self.covariance, self._variances, self.seen, self.hours)
        for number in sorted(self._newest, key=lambda n: (counted[n].cell not in self._watched, -counted[n].users)):
            hat = counted[number]
            query = self._watched_query(hat, appraisal, outlook) if hat.cell in self._watched else None
            if query is None:
                items, price = self._items(hat), _PRICE * self._keys.price
                query = appraisal.query(items, np.array([number]), outlook, price, self._reserve(self._keys.share))
            if query is not None:
                self._is_unpaid[query.members.contributions] = False
                yield self._charged(query)

    def _items(self, hat: Hat) -> list[Integers]:
        """Return the alternatives of a HAT's query: the HAT alone, or all unpaid contributions to its cell today."""
        of_cell = (self.day.hats[number] for number in self.day.of_cell[hat.cell])
        unpaid = [np.arange(other.first, other.end)[self._is_unpaid[other.first : other.end]] for other in of_cell]
        alone = np.arange(hat.first, hat.end)
        together = np.concatenate(unpaid)
        return [alone, together] if len(together) > len(alone) else [alone]

    def _reserve(self, share: float) -> int:
        """Return what each bus keeps if only a share of its limit may be spent now."""
        return round((1 - share) * self._keys.daily_limit)

    def _watched_query(self, hat: Hat, appraisal: Appraisal, outlook: Outlook) -> Query | None:
        """Query a watched HAT at an equal payment of all its buses, as long as they have a watch share."""
        share = self._keys.watch_share
        contributions = np.arange(hat.first, hat.end)
        left = self.balances.left(self.day.bus[contributions], self._reserve(share))
        unit = int(self._keys.daily_limit * share / _WATCHED_HATS)
        paying = np.minimum(left, unit) >= SMALLEST
        if not paying.any():
            return None
        members = members_of(contributions[paying], self.day, self.covariance, self._variances)
        payments = np.minimum(unit, self.balances.left(members.buses, self._reserve(share)))
        return appraisal.made(members, payments, outlook)

    def settle(self) -> Iterator[Query]:
        """Make the queries of the day's end."""
        settlement = Settlement(self._keys, self._variances, self.day, self.covariance, self.balances)
        for query in settlement.queries(np.flatnonzero(self._is_unpaid), self.seen, self.hours):
            yield self._charged(query)

    def _charged(self, query: Query) -> Query:
        self.balances.charge(query.members.buses, query.charges)
        return query
