"""Users of a fold: pseudonyms, HATs that earlier runs entered for them, and limits of what one user enters.

A *period* is what the users' entries are counted over: a local date, or a horizon of a policy with
`[policy.continual]`. It is named by its first local date, which also salts the pseudonyms.
docs/specification/fold.md, rule 12

The n slots of a horizon are numbered by the local clock: the day of the horizon times the slots of a day, plus the
position of the slot's local start among the day's. So n is the same for every horizon: the number of an hour that the
clock skips is not used, and a repeated hour is one slot.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Final, Protocol

from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.fold.open_slots import PeriodUsers, UserOfDay, UserOfHorizon
from hatcast.stream.fold.packing import pack_cell_slots, pack_day, pack_horizon, unpack_day, unpack_horizon
from hatcast.stream.policy.policy import ContinualKeys, Policy
from hatcast.stream.policy.query import Period
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.readings.vehicles import Pseudonyms
from hatcast.stream.units import HOUR_MS, MINUTE_MS


def horizon_of(keys: ContinualKeys, day: str) -> Period:
    """Return the horizon that contains a local date. Raises ValueError for a date outside of all horizons."""
    horizon = keys.horizon_of(day)
    if horizon is None:
        raise ValueError(f"{day} is not in a horizon of the policy")
    return horizon


class SlotIndex:
    """Number of each slot of a policy in its horizon, 0 to n - 1. Raises ValueError for a policy without horizons."""

    def __init__(self, policy: Policy) -> None:
        self._keys = policy.keys_of(ContinualKeys)
        self._minutes = policy.slot_length_ms // MINUTE_MS
        self._first = -(-policy.hours[0] * HOUR_MS // policy.slot_length_ms)  # of the slots of a whole day
        self._slots_of_day = self._keys.slots // self._keys.horizon_days

    def of(self, day: str, name: str) -> int:
        """Return the number of the slot with this local date and start. Raises ValueError if it is not released."""
        hour, _, minute = name.partition(":")
        step, rest = divmod(int(hour) * 60 + int(minute), self._minutes)
        position = step - self._first
        if rest or not 0 <= position < self._slots_of_day:
            raise ValueError(f"{day}/{name} is not a slot within the policy's hours")
        past = date.fromisoformat(day) - horizon_of(self._keys, day).first
        return past.days * self._slots_of_day + position


_SLOTS_CACHED: Final = 4096
_OVER_CAP: Final = Outcome.OVER_CAP.value
_OVER_PARTICIPATION: Final = Outcome.OVER_PARTICIPATION.value


class EarlierRuns(Protocol):
    """HATs that earlier runs entered and released. They count against a user's limit, once."""

    def entered(self, date: str) -> Mapping[bytes, int]:
        """Return the number of HATs that each user (pseudonym) has entered on a local date."""

    def members(self, dates: Sequence[str]) -> Mapping[tuple[str, int], frozenset[bytes]]:
        """Return the users of each released HAT of these local dates, by `date/slot` and H3 cell."""

    def released(self, slot: str) -> Mapping[int, frozenset[bytes]]:
        """Return the users of each released HAT of a slot (`date/slot`), by H3 cell."""


@dataclass(frozen=True, slots=True)
class FoldUsers:
    """Users of a fold, the same for all partitions."""

    pseudonyms: Pseudonyms
    earlier: EarlierRuns | None = None  # HATs of earlier runs; None: none


class UserLimit:
    """Limit of what one user enters in a period, and the stored form of its users: at most K HATs of a local date."""

    def __init__(self, policy: Policy, calendar: Calendar) -> None:
        self._most = policy.max_hats_per_day
        self._calendar = calendar

    def period_of(self, day: str) -> str:
        """Return the name of the period that contains a local date."""
        return day

    def end_of(self, period: str) -> int:
        """Return the end (ms UTC) of the last slot of a period."""
        return self._calendar.day_end(period)

    def new_user(self, pseudonym: bytes, period: PeriodUsers) -> UserOfDay:
        """Add a user who has entered nothing yet to a period."""
        user = period.users[pseudonym] = UserOfDay(pseudonym, 0, len(period.users), period.name)
        return user

    def rejection(self, user: UserOfDay, _slot: Slot, _cell: int) -> str | None:
        """Return the outcome of a reading that would enter one HAT more; None if the user may enter it."""
        return _OVER_CAP if user.entered >= self._most else None

    def enter(self, user: UserOfDay, _slot: Slot, _cell: int) -> None:
        """Count a HAT that the user may enter."""
        user.entered += 1

    def add_earlier(self, period: PeriodUsers, runs: EarlierRuns) -> None:
        """Add the users of a period that earlier runs released, to a period without users."""
        for pseudonym, entered in runs.entered(period.name).items():
            self.new_user(pseudonym, period).entered = entered

    def pack(self, users: Sequence[UserOfDay]) -> bytes:
        """Pack users of one period into a chunk."""
        return pack_day([(user.pseudonym, user.entered) for user in users])

    def unpack(self, chunk: bytes, period: PeriodUsers) -> None:
        """Add the users of a chunk to a period, in order. Raises ValueError for a chunk of another format."""
        for ordinal, (pseudonym, entered) in enumerate(unpack_day(chunk), start=len(period.users)):
            period.users[pseudonym] = UserOfDay(pseudonym, entered, ordinal, period.name, entered)


class HorizonLimit(UserLimit):
    """Declared participation: at most `max_cells` cells, in each at most `max_slots` slots, `min_separation` apart.

    A user's state is at most max_cells x max_slots numbers.
    """

    def __init__(self, policy: Policy, calendar: Calendar) -> None:
        super().__init__(policy, calendar)
        self._keys = policy.keys_of(ContinualKeys)
        self._number = lru_cache(_SLOTS_CACHED)(SlotIndex(policy).of)

    def period_of(self, day: str) -> str:
        """Return the period of a date: its horizon, or the date itself outside of all, where no reading counts."""
        horizon = self._keys.horizon_of(day)
        return day if horizon is None else horizon.first.isoformat()

    def end_of(self, period: str) -> int:
        horizon = self._keys.horizon_of(period)
        if horizon is None:
            return self._calendar.day_end(period)
        following = horizon.last + timedelta(days=1)  # the local clock may skip the last date
        return self._calendar.previous_day_end(following.isoformat())

    def new_user(self, pseudonym: bytes, period: PeriodUsers) -> UserOfHorizon:
        user = period.users[pseudonym] = UserOfHorizon(pseudonym, 0, len(period.users), period.name)
        return user

    def rejection(self, user: UserOfDay, slot: Slot, cell: int) -> str | None:
        """Return why a reading is rejected. Later slots of the user count as well: readings may arrive out of order."""
        cell_slots = _of_horizon(user).cell_slots
        slots = cell_slots.get(cell)
        if slots is None:
            return _OVER_PARTICIPATION if len(cell_slots) >= self._keys.max_cells else None
        number, apart = self._number(slot.date, slot.name), self._keys.min_separation
        after = bisect_left(slots, number)
        if after < len(slots) and slots[after] == number:
            return None
        near_next = after < len(slots) and slots[after] - number < apart
        near_last = after > 0 and number - slots[after - 1] < apart
        return _OVER_PARTICIPATION if len(slots) >= self._keys.max_slots or near_next or near_last else None

    def enter(self, user: UserOfDay, slot: Slot, cell: int) -> None:
        self._enter(user, cell, self._number(slot.date, slot.name))

    def add_earlier(self, period: PeriodUsers, runs: EarlierRuns) -> None:
        horizon = self._keys.horizon_of(period.name)
        if horizon is None:
            return  # no run counts a reading of this date
        for (slot, cell), users in runs.members(horizon.dates).items():
            for pseudonym in users:
                user = period.users.get(pseudonym) or self.new_user(pseudonym, period)
                self._enter(user, cell, self._number(*slot.split("/")))

    def pack(self, users: Sequence[UserOfDay]) -> bytes:
        return pack_horizon([(user.pseudonym, _packed(user)) for user in users])

    def unpack(self, chunk: bytes, period: PeriodUsers) -> None:
        for pseudonym, cell_slots in unpack_horizon(chunk):
            user = self.new_user(pseudonym, period)
            user.cell_slots = cell_slots
            user.entered = user.slots = sum(map(len, cell_slots.values()))

    def _enter(self, user: UserOfDay, cell: int, number: int) -> None:
        user = _of_horizon(user)
        slots = user.cell_slots.setdefault(cell, [])
        at = bisect_left(slots, number)
        if slots[at : at + 1] != [number]:
            slots.insert(at, number)
            user.entered += 1
            user.packed = None


def limit_of(policy: Policy, calendar: Calendar) -> UserLimit:
    """Return the limit that a policy puts on each user."""
    return HorizonLimit(policy, calendar) if policy.method.has_horizons else UserLimit(policy, calendar)


def _of_horizon(user: UserOfDay) -> UserOfHorizon:
    if not isinstance(user, UserOfHorizon):
        raise TypeError("a user of a day has no slots of a horizon")
    return user


def _packed(user: UserOfDay) -> bytes:
    """Return a user's part of a chunk. Of the users of a changed chunk most have not changed."""
    user = _of_horizon(user)
    if user.packed is None:
        user.packed = pack_cell_slots(user.cell_slots)
    return user.packed
