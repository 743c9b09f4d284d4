"""Base of the folds of readings and of reports.    [docs/specification/fold.md, rules 1, 2, 10 to 13]

A pure function of the log: `PartitionFold.apply` folds records in offset order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from hatcast.stream.fold.calendar import Calendar, Slot, closes_at
from hatcast.stream.fold.journal import MOST_ROWS, AcceptedRow, Entrant, Journal
from hatcast.stream.fold.open_slots import (
    CHUNK_USERS,
    Contribution,
    IdSpans,
    OpenHat,
    OpenSlot,
    PeriodUsers,
    UserOfDay,
    Vehicle,
)
from hatcast.stream.fold.users import FoldUsers, limit_of
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.reading import Outcome, cache

V = TypeVar("V")
Belongs = Callable[[bytes], bool] | None
"""Whether an id in UTF-8 belongs to a partition; None skips rule 10 (recordings)"""

# Most entries of a cache.
_VEHICLE_CACHE_SIZE: Final = 200_000
CACHE_SIZE: Final = 20_000  # times, speeds, minutes

# Plain strings: hashing a member of an Enum runs Python code, for every record.
_ACCEPTED, _HEARTBEAT, _FUTURE = Outcome.ACCEPTED.value, Outcome.HEARTBEAT.value, Outcome.ARRIVED_IN_FUTURE.value
_UNDECODABLE, _WRONG = Outcome.UNDECODABLE.value, Outcome.WRONG_PARTITION.value
_DUPLICATE, _LATE = Outcome.DUPLICATE.value, Outcome.LATE.value
_BAD_SIGNATURE: Final = Outcome.BAD_SIGNATURE.value


class PartitionFold(ABC, Generic[V]):
    """State of one partition: watermark, outcomes, open slots and days. V: type of a record's value.

    State is bounded by the users of open HATs and of unfinished days or horizons.
    """

    def __init__(self, policy: Policy, calendar: Calendar, users: FoldUsers, belongs: Belongs, value_max: int) -> None:
        """value_max: larger values are clipped to it (rule 13)."""
        self.policy = policy
        self.calendar = calendar
        self.watermark: int | None = None  # greatest arrival (ms UTC) applied so far; None before the first record
        # ms UTC: records that arrived earlier are missing; None: none are missing
        self.complete_from: int | None = None
        self.outcomes: dict[str, int] = {outcome.value: 0 for outcome in Outcome}  # number of records by outcome
        self.slots: dict[str, OpenSlot] = {}  # by `date/slot`; days by date, or horizons by their first date
        self.periods: dict[str, PeriodUsers] = {}
        # rules of the local dates that have opened here: `Calendar.rules_of` when their first HAT was stored
        self.rules: dict[str, str] = {}
        # (`date/slot`, cell) of HATs that were released before a reading of another user arrived
        self.late_hats: set[tuple[str, int]] = set()
        self.limit = limit_of(policy, calendar)  # of what each user enters in a day or horizon
        self.journal = Journal()  # sizes of what the store has
        self.spans = IdSpans()  # how many timeslots the ids of days that are over lived in
        self._changed: list[OpenHat] = []
        self._accepted: list[AcceptedRow] = []
        self._entrants: list[Entrant] = []
        self._keeps_rows = True  # until there are more than a block of the journal may have
        self._mark = object()  # until chunks are written: so a chunk is marked as changed once for each of its vehicles
        self._dropped_changed = False
        self._pseudonyms = users.pseudonyms
        self._earlier = users.earlier
        self._belongs = belongs
        self._salted = policy.unit != "user"
        self._max_ahead = policy.max_ahead_ms
        self._value_max = value_max
        self._vehicles: dict[str, Vehicle | None] = {}

    def count_within_max_ahead(self, now_ms: int, timestamps: Sequence[int]) -> int:
        """Return the number of leading records that are at most `max_ahead` after now. `timestamps` as for `apply`.

        The next record of a log has to wait, because the broker accepted it: rejecting it would make the state depend
        on this process's clock, not on the log alone.
        """
        latest = now_ms + self._max_ahead
        if not timestamps or max(timestamps) <= latest:
            return len(timestamps)
        return next(index for index, timestamp in enumerate(timestamps) if timestamp > latest)

    def apply(self, now_ms: int, timestamps: Iterable[int], values: Iterable[V | None]) -> dict[int, str]:
        """Fold records; return index -> outcome of those that get a dead letter: undecodable or not genuine.

        timestamps   arrivals in ms UTC
        values       record values; empty or None: a heartbeat record
        Records further ahead of now than `max_ahead` are rejected, as recordings require; of a log pass only those
        that `count_within_max_ahead` counts.
        """
        latest = now_ms + self._max_ahead
        watermark = -1 if self.watermark is None else self.watermark
        self._keeps_rows = len(self._accepted) <= MOST_ROWS
        outcomes, fold, accepted = self.outcomes, self._fold, 0
        letters: dict[int, str] = {}
        for index, (timestamp, value) in enumerate(zip(timestamps, values, strict=True)):
            if timestamp > latest:
                outcomes[_FUTURE] += 1
                continue
            if timestamp > watermark:
                watermark = timestamp
            if timestamp < 0:
                outcome = _UNDECODABLE
            elif value:
                outcome = fold(timestamp, watermark, value)
                if outcome is _ACCEPTED:  # most records
                    accepted += 1
                    continue
            else:
                outcome = _HEARTBEAT
            outcomes[outcome] += 1
            if outcome is _UNDECODABLE or outcome is _BAD_SIGNATURE:
                letters[index] = outcome
        outcomes[_ACCEPTED] += accepted
        self.watermark = None if watermark < 0 else watermark
        return letters

    @abstractmethod
    def _fold(self, timestamp: int, watermark: int, value: V) -> str:
        """Fold one record with a value and return its outcome."""

    def _enter(self, vehicle: Vehicle, slot: OpenSlot, cell: int, step: int, milli: int) -> str:
        """Apply rules 10 to 13: find the reading's user and HAT, and count it there."""
        hat, contribution = vehicle.hat, vehicle.contribution
        if vehicle.slot is not slot or vehicle.cell != cell or hat is None or contribution is None:
            found = self._find(vehicle, slot, cell)
            if isinstance(found, str):
                return found
            hat, contribution = found
        seen = contribution.seen
        with_step = seen | 1 << step
        if with_step == seen:
            return _DUPLICATE
        contribution.seen = with_step
        value = milli if milli < self._value_max else self._value_max
        contribution.count += 1
        contribution.total += value
        if value > contribution.maximum:
            contribution.maximum = value
        if vehicle.marked is not self._mark:
            self._mark_changed(vehicle, hat, contribution)
        if self._keeps_rows:
            self._accepted.append((hat, contribution, step, value))
        return _ACCEPTED

    def _mark_changed(self, vehicle: Vehicle, hat: OpenHat, contribution: Contribution) -> None:
        """Mark the chunk of a vehicle's user as changed since chunks were last written."""
        if not hat.changed:
            self._changed.append(hat)
            self.journal.add_hat(hat)
        hat.change(contribution.ordinal)
        vehicle.marked = self._mark

    def _find(self, vehicle: Vehicle, slot: OpenSlot, cell: int) -> tuple[OpenHat, Contribution] | str:
        """Return a HAT and the contribution of a vehicle's user, which is added if new; the outcome if rejected."""
        if not vehicle.belongs:
            return _WRONG
        period = slot.period
        user = vehicle.user
        if user is None or user.period != period.name:
            user = self._user(vehicle, period)
        if slot.slot.start_ms > user.latest_ms:
            user.see(slot.slot.start_ms)
            period.slots.add(slot.slot.start_ms)
        hat = slot.hats.get(cell)
        contribution = None if hat is None else hat.users.get(user.pseudonym)
        if hat is None or contribution is None:
            rejection = self._count_hat(user, slot, cell)
            if rejection is not None:
                return rejection
            hat, contribution = self._add_user(user, slot, cell)
        vehicle.slot, vehicle.cell, vehicle.hat = slot, cell, hat
        vehicle.contribution, vehicle.marked = contribution, None
        return hat, contribution

    def _count_hat(self, user: UserOfDay, slot: OpenSlot, cell: int) -> str | None:
        """Count a HAT against the user's limit, unless an earlier run did; return the outcome if it is rejected.

        The limit is checked first, so that records which are folded again get the same outcome as before.
        """
        released = slot.released.get(cell)
        if released is not None and user.pseudonym in released:
            return None
        rejection = self.limit.rejection(user, slot.slot, cell)
        if rejection is not None:
            return rejection
        if released is not None:
            self.late_hats.add((slot.slot.key, cell))
            return _LATE
        self.limit.enter(user, slot.slot, cell)
        slot.period.changed.add(user.ordinal // CHUNK_USERS)
        return None

    def _add_user(self, user: UserOfDay, slot: OpenSlot, cell: int) -> tuple[OpenHat, Contribution]:
        """Add a user to a HAT, which is created for its first user."""
        hat = slot.hats.get(cell)
        if hat is None:
            hat = slot.hats[cell] = OpenHat(slot.slot.key, cell, slot.slot.end_ms)
        contribution = hat.users[user.pseudonym] = self._new_contribution(len(hat.users))
        self._entrants.append(Entrant(len(self._accepted), user.pseudonym))
        self.journal.users += 1
        return hat, contribution

    def _new_contribution(self, ordinal: int) -> Contribution:
        """Return the contribution of a user without a reading. ordinal: its position in the HAT."""
        return Contribution(0, 0, 0, 0, ordinal)

    def _add_vehicle(self, sent: str, canonical: str | None) -> Vehicle | None:
        """Return and cache the vehicle of an id that is not in the cache; None if undecodable (rules 3 and 10)."""
        vehicle = None
        if canonical is not None:
            vehicle = Vehicle(canonical, self._belongs is None or self._belongs(canonical.encode()))
        return cache(self._vehicles, sent, vehicle, _VEHICLE_CACHE_SIZE)

    def _user(self, vehicle: Vehicle, period: PeriodUsers) -> UserOfDay:
        pseudonym = self._pseudonyms.of(vehicle.canonical, period.name if self._salted else None)
        user = period.users.get(pseudonym)
        if user is None:
            user = self.limit.new_user(pseudonym, period)
        vehicle.user = user
        return user

    def _open_slot(self, slot: Slot) -> OpenSlot:
        name = self.limit.period_of(slot.date)
        period = self.periods.get(name)
        if period is None:
            period = self.periods[name] = PeriodUsers(name)
            if self._earlier is not None:
                self.limit.add_earlier(period, self._earlier)
        opened = self.slots[slot.key] = OpenSlot(slot, closes_at(slot, self.policy), period)
        if self._earlier is not None:
            opened.released = self._earlier.released(slot.key)
        return opened

    def slot_named(self, key: str) -> OpenSlot:
        """Return the slot `date/slot`; open it if needed. Raises KeyError if the local clock lacks this slot."""
        opened = self.slots.get(key)
        if opened is None:
            slot = self.calendar.slot_named(*key.split("/"))
            if slot is None:
                raise KeyError(key)
            opened = self._open_slot(slot)
        return opened

    def is_over(self, period: str) -> bool:
        """Return True if the watermark has closed the last slot of a day, or of a horizon."""
        return self.watermark is not None and self.watermark >= self.limit.end_of(period) + self.policy.lateness_ms

    def take_changed(self) -> list[OpenHat]:
        """Return the HATs with chunks that have changed since the last call. The caller clears their `changed`."""
        changed, self._changed, self._mark = self._changed, [], object()
        self._dropped_changed = False
        self.take_rows()
        return changed

    def add_restored(self, slot: OpenSlot, hat: OpenHat) -> None:
        """Add a stored HAT to its slot."""
        hat.end_ms = slot.slot.end_ms
        slot.hats[hat.cell] = hat
        self.journal.users += len(hat.users)
        if hat.changed:
            self._changed.append(hat)

    def needs_chunks(self) -> bool:
        """Return whether a slot has closed since chunks were last written: a release reads nothing else."""
        watermark = -1 if self.watermark is None else self.watermark
        return self._dropped_changed or any(watermark >= slot.closes_ms for slot in self.slots.values())

    def take_rows(self) -> tuple[list[AcceptedRow], list[Entrant]]:
        """Return the rows of the readings accepted since the last call, and the users that entered HATs."""
        taken = self._accepted, self._entrants
        self._accepted, self._entrants = [], []
        return taken

    def drop_closed(self) -> bool:
        """Drop slots that the watermark has closed, and days that are over. Return True if a slot was dropped.

        Call it after all changes are stored: the release reads them from the store.
        """
        watermark = -1 if self.watermark is None else self.watermark
        closed = [key for key, slot in self.slots.items() if watermark >= slot.closes_ms]
        if not closed:
            return False
        for key in closed:
            hats = self.slots.pop(key).hats.values()
            self.journal.users -= sum(len(hat.users) for hat in hats)
            # Readings may have been folded while the last changes were being stored.
            self._dropped_changed |= any(hat.changed for hat in hats)
        for name in [name for name, period in self.periods.items() if period.over]:
            self.periods.pop(name).add_to(self.spans)
        self._vehicles.clear()
        return True
