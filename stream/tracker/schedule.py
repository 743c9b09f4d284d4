"""Queries of a policy in order: at the close of each slot, and at the end of the day.

All decisions are functions of public counts, the policy, its timetable and the scale of a guessed prior.
[docs/specification/tracker.md, section 3]
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys
from hatcast.stream.tracker.counts import DayCounts, Floats, HatCounts, Integers, ModelHat
from hatcast.stream.tracker.model import Covariance, Drift
from hatcast.stream.tracker.prior import Variances, factor_of
from hatcast.stream.tracker.query import Designs, Members, ResidualQuery, designs_of, members_of, query_of
from hatcast.stream.units import NANO

PAYMENTS: Final = np.array((0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0))  # epsilon, at most, of each bus
SMALLEST: Final = 1_000_000  # 1e-9: a bus with less left takes no part
_HORIZON: Final = 24.0  # hours after the day that count
_FLOOR: Final = 1e-6  # of the variance that a HAT has before a query
_PRICE: Final = 0.5  # at the close of a slot, of the policy's price: only a HAT's own hour can be shown live
_PULSED_HATS: Final = 2  # of a slot, at least
_WATCHED_HATS: Final = 4  # of a bus's day, for which its watch share is meant to last
_ROUNDS: Final = (1.5, 0.75, 0.4, 0.15, 0.05, 0.01)  # of the price, at the end of the day
_SMALL_LIMIT: Final = 7 * NANO  # below it a block has all hours of the day: each bus then pays once for a cell
_PULSE_PRICES: Final = (0.1, 0.2)  # of a pulse, for small limits and others: what it tells of the day holds for later
_BY_USERS: Final = {Objective.CELLS: 0.15, Objective.BUSES: 1.0, Objective.MIX: 0.5}  # part of the value of a HAT
_USUAL_USERS: Final = 8.0
_INITIAL: Final = 64


class Balances:
    """Individual accounting: balances of the buses of one date, in 1e-9 epsilon, beginning with the daily limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._spent = np.zeros(_INITIAL, np.int64)

    def left(self, buses: Integers, reserve: int = 0) -> Integers:
        """Return what each of these buses has left beyond a reserve, 0 or more."""
        self._grow(buses)
        return np.maximum(self.limit - reserve - self._spent[buses], 0)

    def charge(self, buses: Integers, charges: Integers) -> None:
        """Charge these buses, each once. Raises ValueError, and charges none, if one has less left."""
        if bool(np.any(charges > self.left(buses))):
            raise ValueError("a charge is larger than what the bus has left")
        self._spent[buses] += charges

    def spent(self, number: int) -> Integers:
        """Return what each of the first `number` buses has spent."""
        self._grow(np.array([max(number - 1, 0)]))
        return self._spent[:number].copy()

    def _grow(self, buses: Integers) -> None:
        needed = int(buses.max(initial=-1)) + 1
        if needed > len(self._spent):
            grown = np.zeros(max(needed, 2 * len(self._spent)), np.int64)
            grown[: len(self._spent)] = self._spent
            self._spent = grown


class Outlook:
    """Value of information about the next 24 hours: each cell counts by the expected number of its HATs.

    weights   float64 [C]  HATs expected, over twice their standard deviation: what one unit of variance is worth
    """

    def __init__(self, covariance: Covariance, seen: Floats, hours: int) -> None:
        """seen: float64 [C], the number of HATs of each cell in the first `hours` hours."""
        self._covariance = covariance
        expected = _HORIZON * (seen + 1) / (hours + 4)
        self.weights = expected / (2 * np.sqrt(covariance.of_cells() + covariance.variances.future))
        rows = covariance.city_rows()
        self._matrix = (rows * self.weights[:, None]).T @ rows

    def gain(self, members: Members, designs: Designs) -> Floats:
        """Return the gain of observations of these members, float64 [P]."""
        shared, variance = designs.shared, designs.variance
        all_cells = ((shared @ self._matrix) * shared).sum(axis=1)
        if not members.is_of_one_cell:
            return np.asarray(all_cells / variance)
        (cell,) = members.cells.tolist()
        alone = shared @ self._covariance.city_row(cell)
        own = self._covariance.variance[cell] + designs.betas @ self._covariance.own.with_cell[members.hats]
        return np.asarray((all_cells + self.weights[cell] * ((alone + own) ** 2 - alone**2)) / variance)

    def before(self, members: Members) -> None:
        """Take a cell out of the sum, before an observation changes its slopes. One of several cells changes none."""
        self._add(members, -1)

    def after(self, members: Members) -> None:
        """Take the cell in again."""
        self._add(members, 1)

    def _add(self, members: Members, sign: int) -> None:
        if members.is_of_one_cell:
            (cell,) = members.cells.tolist()
            row = self._covariance.city_row(cell)
            self._matrix += sign * self.weights[cell] * np.outer(row, row)


class Appraisal:
    """Chooser of queries: makes those whose expected reduction of summed standard deviation exceeds their price.

    values   float64 [H]  what one unit of standard deviation of each HAT of the day is worth
    """

    def __init__(self, values: Floats, day: DayCounts, covariance: Covariance, balances: Balances) -> None:
        self._values = values
        self._day = day
        self._covariance = covariance
        self._balances = balances

    def query(
        self,
        items: Iterable[Integers],
        hats: Integers,
        outlook: Outlook,
        price: float,
        reserve: int = 0,
        buses: int = 1,
    ) -> ResidualQuery | None:
        """Make the query of the best of these contributions, if it is worth its price.

        hats      what the query is about, ascending
        reserve   what each bus keeps of its balance, 1e-9
        buses     least number of those that pay
        """
        best: tuple[float, Members, Integers] | None = None
        for contributions in items:
            found = self._best_payment(contributions, hats, outlook, price, reserve, buses)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        if best is None:
            return None
        _, members, payments = best
        return self.made(members, payments, outlook)

    def made(self, members: Members, payments: Integers, outlook: Outlook) -> ResidualQuery:
        """Make a query. payments: int64 [L], of each bus, 1e-9."""
        outlook.before(members)
        query = query_of(members, payments, self._day, self._covariance)
        outlook.after(members)
        return query

    def _best_payment(
        self, contributions: Integers, hats: Integers, outlook: Outlook, price: float, reserve: int, buses: int
    ) -> tuple[float, Members, Integers] | None:
        """Return the net gain, the members and their payments (1e-9) of the best payment; None if none is worth it."""
        solvent = self._balances.left(self._day.bus[contributions], reserve) >= SMALLEST
        if not solvent.any():
            return None
        members = members_of(contributions[solvent], self._day, self._covariance)
        if len(members.buses) < buses:
            return None
        left = self._balances.left(members.buses, reserve)
        shares = shares_of_buses(members)
        levels = PAYMENTS[: np.searchsorted(PAYMENTS, (left / shares).max() / NANO) + 1]
        payments = np.minimum((levels[:, None] * shares * NANO).astype(np.int64), left)
        costs = payments.sum(axis=1) / NANO
        designs = designs_of(members, payments / NANO, self._day, self._covariance)
        gains = outlook.gain(members, designs) + self._gain_today(members, designs, hats)
        net = gains - price * costs
        best = int(net.argmax())
        return (float(net[best]), members, payments[best]) if net[best] > 0 else None

    def _gain_today(self, members: Members, designs: Designs, hats: Integers) -> Floats:
        """Return the expected reduction of these HATs' summed standard deviation, float64 [P].

        hats   ascending: of the cell of the members, or if these are of several, all of theirs at least
        """
        covariance, own, betas = self._covariance, self._covariance.own, designs.betas
        cells = self._day.cells[hats]
        rows = covariance.slopes[cells] + covariance.rows[hats] + own.slopes[hats]
        cell, deviation = covariance.variance[cells] + own.with_cell[hats], own.with_cell[hats] + own.variance(hats)
        before = np.einsum("hi,hi->h", rows @ covariance.shared, rows) + cell + deviation
        common = designs.shared @ rows.T  # [P, H]
        if members.is_of_one_cell:
            common += cell + betas @ (own.with_cell[members.hats] + own.among(hats, members.hats)).T
        else:
            mine = np.searchsorted(hats, members.hats)
            common[:, mine] += designs.weights * cell[mine] + betas * deviation[mine]
        after = np.maximum(before - common**2 / designs.variance[:, None], _FLOOR * before)
        return np.asarray(((np.sqrt(before) - np.sqrt(after)) * self._values[hats]).sum(axis=1))


def shares_of_buses(members: Members) -> Floats:
    """Return what each bus pays of a payment of 1, float64 [L]; its mean is 1.

    A bus whose residual has a variance of its own that is twice as large tells half as much, and pays half.
    """
    told = 1 / members.own
    return np.asarray(told / told.mean())


class Settlement:
    """Settlement of one day: queries that spend the rest of the buses' budgets, once all counts are known.

    An item is one query: a cell's contributions of some hours that no bus has paid for yet (a *block*), or a single
    HAT. It is made if the expected reduction of summed standard deviation, of the HATs of this day and of the next 24
    hours, exceeds the price times what the buses pay. The price falls in a few rounds.
    """

    def __init__(self, keys: TrackerKeys, day: DayCounts, covariance: Covariance, balances: Balances) -> None:
        self._keys = keys
        self._day = day
        self._covariance = covariance
        users = np.array([hat.users for hat in day.hats], np.float64)
        values = values_of(users, keys.objective)
        self._appraisal = Appraisal(values, day, covariance, balances)
        self._of_cell = {cell: np.array(hats) for cell, hats in day.of_cell.items()}
        self._by_users = [int(number) for number in np.argsort(users, kind="stable")]
        self._cells = sorted(day.of_cell, key=lambda cell: (-users[self._of_cell[cell]].sum(), cell))

    def queries(self, unpaid: Integers, seen: Floats, hours: int) -> Iterator[ResidualQuery]:
        """Make the queries, in order. The caller charges a query before it takes the next.

        unpaid   int64, ascending: contributions that no bus has paid for yet
        seen, hours   as in `Outlook`
        """
        blocks = self._blocks(unpaid)
        for part in _ROUNDS:
            price = price_of(self._keys, self._covariance) * part
            outlook = Outlook(self._covariance, seen, hours)
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
    ) -> Iterator[ResidualQuery]:
        """Query a cell's blocks, best first, as long as one is worth its price."""
        left = blocks.get(cell, [])
        while left:
            query = self._appraisal.query(left, self._of_cell[cell], outlook, price)
            if query is None:
                return
            yield query
            queried = query.members.hats[0]
            left[:] = [block for block in left if queried not in self._day.hat[block]]


def price_of(keys: TrackerKeys, covariance: Covariance) -> float:
    """Return the price, which is as large as the scale of the prior: where all differs by less, all saves less."""
    return keys.price * factor_of(covariance.prior_scale)


def values_of(users: Floats, objective: Objective) -> Floats:
    """Return the value of a unit of standard deviation in each HAT, from the numbers of users."""
    by_users = _BY_USERS[objective]
    return (1 - by_users) + by_users * users / _USUAL_USERS


class Schedule:
    """Queries of one policy, in order, and the covariance that follows from them.

    Call, in order: `begin_day`; for each slot `add_cells`, `add`, `close_slot`; at the end of the day `settle`.

    seen, hours   as in `Outlook`
    """

    def __init__(self, keys: TrackerKeys, variances: Variances, min_users: int = 1) -> None:
        """min_users: least number of buses of a pulse."""
        self._keys = keys
        self._min_users = min_users
        self.covariance = Covariance(variances)
        self._watched: set[int] = set()
        self.seen = np.empty(0)
        self.hours = 0
        self.day = DayCounts(variances)
        self.begin_day()

    def begin_day(self) -> Drift:
        """Begin a local date. Returns the change that the means have to follow."""
        self.day = DayCounts(self.covariance.variances)
        self.balances = Balances(self._keys.daily_limit)
        self._is_unpaid = np.empty(0, bool)
        self._newest = range(0)
        return self.covariance.begin_day()

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

    def close_slot(self) -> Iterator[ResidualQuery]:
        """Make the queries of the newest slot: its pulse, then watched cells, then those with most users."""
        counted = self.day.hats
        users = np.array([hat.users for hat in counted], np.float64)
        values = values_of(users, self._keys.objective)
        appraisal = Appraisal(values, self.day, self.covariance, self.balances)
        outlook = Outlook(self.covariance, self.seen, self.hours)
        pulse = self._pulse(appraisal, outlook)
        if pulse is not None:
            yield self._charged(pulse)
        for number in sorted(self._newest, key=lambda n: (counted[n].cell not in self._watched, -counted[n].users)):
            hat = counted[number]
            query = self._watched_query(hat, appraisal, outlook) if hat.cell in self._watched else None
            if query is None:
                items, price = self._items(hat), _PRICE * price_of(self._keys, self.covariance)
                query = appraisal.query(items, np.array([number]), outlook, price, self._reserve(self._keys.share))
            if query is not None:
                self._is_unpaid[query.members.contributions] = False
                yield self._charged(query)

    def _pulse(self, appraisal: Appraisal, outlook: Outlook) -> ResidualQuery | None:
        """Query all HATs of the newest slot together if that is worth its price; contributions stay unpaid.

        A HAT that is the only one of its slot is not worth two queries.
        """
        if len(self._newest) < _PULSED_HATS:
            return None
        of_slot = np.arange(self.day.hats[self._newest.start].first, self.day.hats[-1].end)
        factor = _PULSE_PRICES[self._keys.daily_limit >= _SMALL_LIMIT]
        price, reserve = factor * price_of(self._keys, self.covariance), self._reserve(self._keys.share)
        return appraisal.query([of_slot], np.array(self._newest), outlook, price, reserve, self._min_users)

    def _items(self, hat: ModelHat) -> list[Integers]:
        """Return the alternatives of a HAT's query: the HAT alone, or all unpaid contributions to its cell today."""
        of_cell = (self.day.hats[number] for number in self.day.of_cell[hat.cell])
        unpaid = [np.arange(other.first, other.end)[self._is_unpaid[other.first : other.end]] for other in of_cell]
        alone = np.arange(hat.first, hat.end)
        together = np.concatenate(unpaid)
        return [alone, together] if len(together) > len(alone) else [alone]

    def _reserve(self, share: float) -> int:
        """Return what each bus keeps if only a share of its limit may be spent now."""
        return round((1 - share) * self._keys.daily_limit)

    def _watched_query(self, hat: ModelHat, appraisal: Appraisal, outlook: Outlook) -> ResidualQuery | None:
        """Query a watched HAT at an equal payment of all its buses, as long as they have a watch share."""
        share = self._keys.watch_share
        contributions = np.arange(hat.first, hat.end)
        left = self.balances.left(self.day.bus[contributions], self._reserve(share))
        unit = int(self._keys.daily_limit * share / _WATCHED_HATS)
        paying = np.minimum(left, unit) >= SMALLEST
        if not paying.any():
            return None
        members = members_of(contributions[paying], self.day, self.covariance)
        payments = np.minimum(unit, self.balances.left(members.buses, self._reserve(share)))
        return appraisal.made(members, payments, outlook)

    def settle(self) -> Iterator[ResidualQuery]:
        """Make the queries of the day's end."""
        settlement = Settlement(self._keys, self.day, self.covariance, self.balances)
        for query in settlement.queries(np.flatnonzero(self._is_unpaid), self.seen, self.hours):
            yield self._charged(query)

    def _charged(self, query: ResidualQuery) -> ResidualQuery:
        self.balances.charge(query.members.buses, query.charges)
        return query
