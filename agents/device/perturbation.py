"""From a device's means to stored reports: the only place that draws, and nothing it draws is drawn again."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

import h3.api.basic_int as h3

from hatcast.agents.device.fold import OwnHat, Rules
from hatcast.agents.device.store import Place, Store, Stored, Times
from hatcast.stream.hybrid import Report, encode_report, report
from hatcast.stream.mechanisms import Noise


@dataclass(slots=True)
class Tally:
    """HATs with readings by what became of them.

    reported         drawn and stored now
    reported_before  they have their report, as it was drawn then
    over_cap         the day's reports are used up
    forgotten        of days so old that their reports may have been deleted
    """

    reported: int = 0
    reported_before: int = 0
    over_cap: int = 0
    forgotten: int = 0


class Reporter:
    """Draws for one device, or for a fleet."""

    def __init__(self, rules: Rules, store: Store, noise: Noise) -> None:
        self.tally = Tally()
        self._rules = rules
        self._store = store
        self._noise = noise

    def draw(self, hats: Iterable[OwnHat], at_ms: int) -> list[Stored]:
        """The reports of closed HATs, durable when this returns; none for those that have one.

        hats    each device's in the order in which it came to them: the first of a day are kept
        at_ms   the time base of whoever sends them, ms UTC
        """
        drawn: list[Stored] = []
        newest = ""
        with self._store.transaction():
            for own in hats:
                newest = max(newest, own.slot.date)
                stored = self._draw(own, at_ms)
                if stored is not None:
                    drawn.append(stored)
        if newest:
            self._store.forget_old(newest)
        return drawn

    def _draw(self, own: OwnHat, at_ms: int) -> Stored | None:
        rules, store, slot = self._rules, self._store, own.slot
        place = Place(own.vehicle, slot.date, slot.name, h3.int_to_str(own.cell))
        if store.is_forgotten(slot.date):
            self.tally.forgotten += 1
            return None
        if store.knows(place):
            self.tally.reported_before += 1
            return None
        reports, spent_nano = store.spent(own.vehicle, slot.date)
        if reports >= rules.most_hats or spent_nano + rules.cost_nano > rules.limit_nano:
            self.tally.over_cap += 1
            return None
        name = store.id_of(own.vehicle, slot.date)
        steps = report(own.mean, rules.parameters, self._noise)
        body = encode_report(
            Report(
                id=name,
                policy_id=rules.policy.policy_id,
                cell=place.cell,
                date=place.date,
                slot=place.slot,
                value=Decimal(rules.parameters.grid.text(steps)),
                epsilon=rules.parameters.local_epsilon,
            )
        )
        self.tally.reported += 1
        return store.add(place, rules.cost_nano, name, body, Times(at_ms, rules.closes_ms(slot)))
