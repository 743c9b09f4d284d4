"""From a device's means to stored reports: the only module that draws noise, once per HAT."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

import h3.api.basic_int as h3

from hatcast.agents.device.fold import OwnHat, Rules
from hatcast.agents.device.store import DeviceStore
from hatcast.agents.device.stored import StoredMessage, VehicleHat
from hatcast.agents.recordings.pinned import Read
from hatcast.stream.fold.calendar import closes_at
from hatcast.stream.hybrid import DeviceReport, encode_report, report
from hatcast.stream.hybrid.reports import DayKey
from hatcast.stream.mechanisms import Noise

Sign = Callable[[bytes, DayKey], bytes]  # returns an encoded report with its signature


@dataclass(slots=True)
class Tally:
    """Number of HATs with readings, by result."""

    reported: int = 0  # report drawn and stored now
    reported_before: int = 0  # report drawn before, not again
    over_cap: int = 0  # the day's reports are used up
    forgotten: int = 0  # the day is so old that its reports may have been deleted
    uncertified: int = 0  # no certified key of the date is left to sign with


class Reporter:
    """Draws the reports of one device, or of a fleet."""

    def __init__(
        self,
        rules: Rules,
        store: DeviceStore,
        noise: Noise,
        *,
        read: Read | None = None,
        with_sums: bool = False,
        sign: Sign | None = None,
    ) -> None:
        """Args:
        read:       how the readings are read, which the store pins; None: they are not read from records
        with_sums:  store the device's own sums too, which answers to clusterings need
        sign:       None: reports are not signed
        """
        self._read = read
        self._with_sums = with_sums
        self._sign = sign
        self.tally = Tally()
        self._rules = rules
        self._store = store
        self._noise = noise

    def draw(self, hats: Iterable[OwnHat], at_ms: int) -> list[StoredMessage]:
        """Draw and store the reports of final HATs, except those that have one; durable when this returns.

        hats    in each device's order of entry: the first ones of a day are reported
        at_ms   current time of the sender, wall clock or recorded, ms UTC
        """
        drawn: list[StoredMessage] = []
        dates: set[str] = set()
        with self._store.transaction():
            for hat in hats:
                dates.add(hat.slot.date)
                stored = self._draw(hat, at_ms)
                if stored is not None:
                    drawn.append(stored)
            if dates and self._read is not None:  # with the first report, or options could not be corrected
                self._store.readings.pin(self._read)
                for date in dates:
                    self._store.readings.pin_date(date, self._rules.calendar)
        if dates:
            self._store.forget_old(max(dates))
        return drawn

    def _draw(self, hat: OwnHat, at_ms: int) -> StoredMessage | None:
        rules, store, slot = self._rules, self._store, hat.slot
        key = VehicleHat(hat.vehicle, slot.date, slot.name, h3.int_to_str(hat.cell))
        if store.is_forgotten(slot.date):
            self.tally.forgotten += 1
            return None
        if self._with_sums:
            store.answers.add_sums(key, hat.count, hat.total)
        if store.is_reported(key):
            self.tally.reported_before += 1
            return None
        reports, spent_nano = store.spent(hat.vehicle, slot.date)
        if reports >= rules.most_hats or spent_nano + rules.cost_nano > rules.limit_nano:
            self.tally.over_cap += 1
            return None
        body = self._draw_body(key, hat)
        if body is None:
            self.tally.uncertified += 1
            return None
        self.tally.reported += 1
        return store.add(key, rules.cost_nano, StoredMessage(0, *body, at_ms, closes_at(slot, rules.policy)))

    def _draw_body(self, key: VehicleHat, hat: OwnHat) -> tuple[str, bytes] | None:
        """Draw a report and return (id, bytes); None without the key that has to sign it."""
        rules, day_key = self._rules, None
        if self._sign is None:
            name = self._store.id_of(key.vehicle, key.date)
        else:
            signing = self._store.signing_id_of(key.vehicle, key.date)
            if signing is None:
                return None
            name, day_key = signing
        steps = report(hat.mean, rules.parameters, self._noise)
        body = encode_report(
            DeviceReport(
                id=name,
                policy_id=rules.policy.policy_id,
                cell=key.cell,
                date=key.date,
                slot=key.slot,
                value=Decimal(rules.parameters.grid.text(steps)),
                epsilon=rules.parameters.local_epsilon,
            )
        )
        # After the noise: a signature is a function of what is sent and of the key.
        return name, body if self._sign is None or day_key is None else self._sign(body, day_key)
