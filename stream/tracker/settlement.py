"""Settlement of a day: queries that spend the rest of the buses' budgets.    [docs/specification/tracker.md, 3]

At the end of a day all of its counts are known. An item is one query: a cell's contributions of some hours that no bus
has paid for yet (a *block*), or a single HAT. It is made if the expected reduction of summed standard deviation, of the
HATs of this day and of the next 24 hours, exceeds the price times what the buses pay. The price falls in a few rounds.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np

from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys
from hatcast.stream.tracker.appraisal import Appraisal, Outlook
from hatcast.stream.tracker.balances import Balances
from hatcast.stream.tracker.contributions import DayCounts, Floats, Integers
from hatcast.stream.tracker.model import Covariance
from hatcast.stream.tracker.query import Query
from hatcast.stream.tracker.setting import Variances
from hatcast.stream.units import NANO

_ROUNDS: Final = (1.5, 0.75, 0.4, 0.15, 0.05, 0.01)  # of the price
_SMALL_LIMIT: Final = 7 * NANO  # below it a block has all hours of the day: each bus then pays once for a cell
_BY_USERS: Final = {Objective.CELLS: 0.15, Objective.BUSES: 1.0, Objective.MIX: 0.5}  # part of the value of a HAT
_USUAL_USERS: Final = 8.0


class Settlement:
    """Settlement of one day."""

    def __init__(
        self, keys: TrackerKeys, variances: Variances, day: DayCounts, covariance: Covariance, balances: Balances
    ) -> None:
        self._keys = keys
        self._variances = variances
        self._day = day
        self._covariance = covariance
        users = np.array([hat.users for hat in day.hats], np.float64)
        values = values_of(users, keys.objective)
        self._appraisal = Appraisal(values, variances, day, covariance, balances)
        self._of_cell = {cell: np.array(hats) for cell, hats in day.of_cell.items()}
        self._by_users = [int(number) for number in np.argsort(users, kind="stable")]
        self._cells = sorted(day.of_cell, key=lambda cell: (-users[self._of_cell[cell]].sum(), cell))

    def queries(self, unpaid: Integers, seen: Floats, hours: int) -> Iterator[Query]:
        """Make the queries, in order. The caller charges a query before it takes the next.

        unpaid   int64, ascending: contributions that no bus has paid for yet
        seen, hours   as in `Outlook`
        """
        blocks = self._blocks(unpaid)
        for part in _ROUNDS:
            price = self._keys.price * part
            outlook = Outlook(self._covariance, self._variances, seen, hours)
            for cell in self._cells:
                yield from self._block_queries(cell, blocks, outlook, price)
            for number in self._by_users:
                hat = self._day.hats[number]
                query = self._appraisal.query([np.arange(hat.first, hat.end)], np.array([number]), outlook, price)
                if query is not None:
                    yield query

    def _blocks(self, unpaid: Integers) -> dict[int, list[Integers]]:
        """Return each cell's unpaid contributions, by blocks of hours."""
        hours = 24 if self._keys.daily_limit < _SMALL_LIMIT and self._keys.objective is Objective.CELLS else 12
        found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for contribution in unpaid:
            hat = self._day.hats[self._day.hat[contribution]]
            found[hat.cell][hat.hour // hours].append(int(contribution))
        return {cell: [np.array(block) for block in blocks.values()] for cell, blocks in found.items()}

    def _block_queries(
        self, cell: int, blocks: dict[int, list[Integers]], outlook: Outlook, price: float
    ) -> Iterator[Query]:
        """Query a cell's blocks, best first, as long as one is worth its price."""
        left = blocks.get(cell, [])
        while left:
            query = self._appraisal.query(left, self._of_cell[cell], outlook, price)
            if query is None:
                return
            yield query
            queried = query.members.hats[0]
            left[:] = [block for block in left if queried not in self._day.hat[block]]


def values_of(users: Floats, objective: Objective) -> Floats:
    """Return the value of a unit of standard deviation in each HAT, from the numbers of users."""
    by_users = _BY_USERS[objective]
    return (1 - by_users) + by_users * users / _USUAL_USERS
