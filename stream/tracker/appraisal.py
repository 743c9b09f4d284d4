"""Choice of queries: the expected reduction of summed standard deviation against the buses' payments.

docs/specification/tracker.md, section 3
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from hatcast.stream.tracker.balances import Balances
from hatcast.stream.tracker.contributions import DayCounts, Floats, Integers
from hatcast.stream.tracker.model import SHARED, Covariance
from hatcast.stream.tracker.query import Members, Query, designs_of, members_of, query_of
from hatcast.stream.tracker.setting import Variances
from hatcast.stream.units import NANO

PAYMENTS: Final = np.array((0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0))  # epsilon, at most, of each bus
_HORIZON: Final = 24.0  # hours after the day that count
SMALLEST: Final = 1_000_000  # 1e-9: a bus with less left takes no part
_FLOOR: Final = 1e-6  # of the variance that a HAT has before a query


class Outlook:
    """Value of information about the next 24 hours: each cell counts by the expected number of its HATs.

    weights   float64 [C]  HATs expected, over twice their standard deviation: what one unit of variance is worth
    """

    def __init__(self, covariance: Covariance, variances: Variances, seen: Floats, hours: int) -> None:
        """seen: float64 [C], the number of HATs of each cell in the first `hours` hours."""
        self._covariance = covariance
        expected = _HORIZON * (seen + 1) / (hours + 4)
        self.weights = expected / (2 * np.sqrt(covariance.of_cells() + variances.future))
        rows = covariance.slopes + np.eye(SHARED)[0]
        self._matrix = (rows * self.weights[:, None]).T @ rows

    def gain(self, cell: int, shared: Floats, variance: Floats) -> Floats:
        """Return the gain of observations of a cell, float64 [P].

        shared, variance   float64 [P, 27], [P]: as in `Designs`
        """
        row = self._row(cell)
        alone = shared @ row
        own = float(self._covariance.variance[cell])
        all_cells = ((shared @ self._matrix) * shared).sum(axis=1)
        return np.asarray((all_cells + self.weights[cell] * ((alone + own) ** 2 - alone**2)) / variance)

    def before(self, cell: int) -> None:
        """Take a cell out of the sum, before an observation changes its slopes."""
        self._matrix -= self.weights[cell] * np.outer(self._row(cell), self._row(cell))

    def after(self, cell: int) -> None:
        """Take the cell in again."""
        self._matrix += self.weights[cell] * np.outer(self._row(cell), self._row(cell))

    def _row(self, cell: int) -> Floats:
        row: Floats = self._covariance.slopes[cell].copy()
        row[0] += 1
        return row


class Appraisal:
    """Chooser of queries: makes those whose gain exceeds their price.

    values   float64 [H]  what one unit of standard deviation of each HAT of the day is worth
    """

    def __init__(
        self, values: Floats, variances: Variances, day: DayCounts, covariance: Covariance, balances: Balances
    ) -> None:
        self._values = values
        self._variances = variances
        self._day = day
        self._covariance = covariance
        self._balances = balances

    def query(
        self, items: Iterable[Integers], hats: Integers, outlook: Outlook, price: float, reserve: int = 0
    ) -> Query | None:
        """Make the query of the best of these contributions, if it is worth its price.

        hats      what the query is about, ascending
        reserve   what each bus keeps of its balance, 1e-9
        """
        best: tuple[float, Members, Integers] | None = None
        for contributions in items:
            found = self._best_payment(contributions, hats, outlook, price, reserve)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        if best is None:
            return None
        _, members, payments = best
        return self.made(members, payments, outlook)

    def made(self, members: Members, payments: Integers, outlook: Outlook) -> Query:
        """Make a query. payments: int64 [L], of each bus, 1e-9."""
        outlook.before(members.cell)
        query = query_of(members, payments, self._day, self._covariance, self._variances)
        outlook.after(members.cell)
        return query

    def _best_payment(
        self, contributions: Integers, hats: Integers, outlook: Outlook, price: float, reserve: int
    ) -> tuple[float, Members, Integers] | None:
        """Return the net gain, the members and their payments (1e-9) of the best payment; None if none is worth it."""
        solvent = self._balances.left(self._day.bus[contributions], reserve) >= SMALLEST
        if not solvent.any():
            return None
        members = members_of(contributions[solvent], self._day, self._covariance, self._variances)
        left = self._balances.left(members.buses, reserve)
        levels = PAYMENTS[: np.searchsorted(PAYMENTS, left.max() / NANO) + 1]
        payments = np.minimum((levels[:, None] * NANO).astype(np.int64), left)
        costs = payments.sum(axis=1) / NANO
        designs = designs_of(members, payments / NANO, self._day, self._covariance, self._variances)
        gains = outlook.gain(members.cell, designs.shared, designs.variance)
        gains += self._gain_today(members, designs.shared, designs.betas, designs.variance, hats)
        net = gains - price * costs
        best = int(net.argmax())
        return (float(net[best]), members, payments[best]) if net[best] > 0 else None

    def _gain_today(self, members: Members, shared: Floats, betas: Floats, variance: Floats, hats: Integers) -> Floats:
        """Return the expected reduction of these HATs' summed standard deviation, float64 [P].

        hats   ascending; some of them, and some of the members' HATs, may not be among the others
        """
        rows = self._rows(members.cell, hats)
        own = self._covariance.hats[hats]
        before = np.einsum("hi,ij,hj->h", rows, self._covariance.shared, rows)
        before = before + float(self._covariance.variance[members.cell]) + own
        common = shared @ rows.T + float(self._covariance.variance[members.cell])  # [P, H]
        _, theirs, mine = np.intersect1d(hats, members.hats, assume_unique=True, return_indices=True)
        common[:, theirs] += betas[:, mine] * own[theirs]
        after = np.maximum(before - common**2 / variance[:, None], _FLOOR * before)
        return np.asarray(((np.sqrt(before) - np.sqrt(after)) * self._values[hats]).sum(axis=1))

    def _rows(self, cell: int, hats: Integers) -> Floats:
        return np.array(
            [self._covariance.row_of(cell, self._day.hats[hat].hour, self._day.hats[hat].features) for hat in hats]
        )
