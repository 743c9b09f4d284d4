"""HATs: H3 cell x local date x slot of the local clock.    [docs/specification/fold.md]

A `Calendar` maps an instant to its slot. Where clocks go back, the repeated hour is one slot of two hours: it starts
at the first instant of that local time and ends at the last. A skipped hour does not exist.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from datetime import date as local_date
from operator import attrgetter
from typing import Final

from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.reading import Outcome, cache
from hatcast.stream.time_zones import TIME_ZONE_DATA, time_zone

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_SHIFT_MAX: Final = timedelta(hours=26)  # larger than any single change of a time zone's offset
_BY: Final = " by "  # before the version of the data
_SLOT_CACHE_SIZE: Final = 10_000  # more than a year of hours


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of the local clock on one local date."""

    # date, name: "2022-01-02", "09:00": the local start
    date: str
    name: str
    # start_ms, end_ms: ms UTC; [start, end)
    start_ms: int
    end_ms: int
    # outcome of its readings by rule 8 if its date is before the policy's first or after its last, or its local start
    # outside the policy's `hours`; None if they count
    outside: str | None

    @property
    def key(self) -> str:
        """`date/slot`: the slot's part of a HAT's key."""
        return f"{self.date}/{self.name}"


def later(date: str, days: int) -> str:
    """Return the local date so many days later."""
    return (local_date.fromisoformat(date) + timedelta(days=days)).isoformat()


class Calendar:
    """Slots of a policy. Pure: an instant always gives the same slot."""

    def __init__(self, policy: Policy) -> None:
        self._zone = time_zone(policy.timezone)
        self._length = timedelta(milliseconds=policy.slot_length_ms)
        self._hours = policy.hours
        self._first_date, self._end_date = policy.method.dates(policy.from_date)
        self._slots: dict[tuple[str, str], Slot] = {}
        self._day_ends: dict[str, int] = {}
        self._rules: dict[str, str] = {}

    def slot_at(self, instant_ms: int) -> Slot:
        """Return the slot of an instant (ms UTC). Raises OverflowError outside the years 2 to 9998."""
        return self._slot_of(self.local(instant_ms))

    def is_whole_minute(self, instant_ms: int) -> bool:
        """Return True if the instant's UTC minute lies in one slot. Before about 1972 some offsets had seconds."""
        return not self._offset(_EPOCH + timedelta(milliseconds=instant_ms)) % timedelta(minutes=1)

    def slot_named(self, date: str, name: str) -> Slot | None:
        """Return the slot with this date and local start; None if the local clock skips it or no slot starts then."""
        try:
            wall = datetime.fromisoformat(f"{date}T{name}")
            slot = self._make(wall)
        except (ValueError, OverflowError):
            return None
        step = (wall - datetime.combine(wall, datetime.min.time())) % self._length
        return slot if slot is not None and not step and (slot.date, slot.name) == (date, name) else None

    def stored_slot(self, key: str) -> Slot:
        """Return the slot with the key `date/slot` of a stored state. Raises HatcastError if there is none."""
        slot = self.slot_named(*key.split("/"))
        if slot is None:
            raise HatcastError(
                f"slot {key} does not exist in {self._zone.key}: the stored state belongs to another policy"
            )
        return slot

    def slots_of(self, date: str) -> list[Slot]:
        """Return the slots of a local date, ordered by their end; none if the local clock skips the date."""
        return sorted(self._slots_from(datetime.fromisoformat(date)), key=attrgetter("end_ms"))

    def day_start(self, date: str) -> int:
        """Return the start (ms UTC) of the first slot of a local date."""
        return min(slot.start_ms for slot in self._slots_from(datetime.fromisoformat(date)))

    def day_end(self, date: str) -> int:
        """Return the end (ms UTC) of the last slot of a local date."""
        end = self._day_ends.get(date)
        if end is None:
            end = max(slot.end_ms for slot in self._slots_from(datetime.fromisoformat(date)))
            cache(self._day_ends, date, end, _SLOT_CACHE_SIZE)
        return end

    def previous_day_end(self, date: str) -> int:
        """Return the end (ms UTC) of the last slot of the preceding local date."""
        day = datetime.fromisoformat(date) - _DAY
        while not self._slots_from(day):  # a day that the local clock skipped
            day -= _DAY
        return self.day_end(day.date().isoformat())

    def rules_of(self, date: str) -> str:
        """Return which instants are on a local date, as intervals in local time with its offset, and by which data.

        Its start, its end and its slots follow from the intervals. Other versions of the data may have others.
        """
        rules = self._rules.get(date)
        if rules is None:
            intervals = ", ".join(
                " to ".join(instant.astimezone(timezone(offset)).isoformat() for instant in (start, end))
                for start, end, offset in self._spans(datetime.fromisoformat(date), _DAY)
            )
            rules = self._rules[date] = f"{intervals or 'no date'}{_BY}{TIME_ZONE_DATA}"
        return rules

    def check_rules(self, opened: Iterable[tuple[str, str]]) -> None:
        """Raise HatcastError if a local date was opened under other rules. opened: dates with their rules."""
        for date, rules in sorted(opened):
            if rules.partition(_BY)[0] != self.rules_of(date).partition(_BY)[0]:
                raise self._other_rules(date, rules)

    def check_published(self, date: str, start: str, end: str) -> None:
        """Raise HatcastError if a published slot of a local date begins or ends at another local time here.

        start   of the slot, or of a period that begins on an earlier date and is not compared
        """
        for text in (start, end) if start.startswith(date) else (end,):
            if datetime.fromisoformat(text).astimezone(self._zone).isoformat() != text:
                raise self._other_rules(date, f"{start} to {end}")

    def _other_rules(self, date: str, rules: str) -> HatcastError:
        return HatcastError(
            f"{date} in {self._zone.key} was opened as {rules}; here it is {self.rules_of(date)}: install the version"
            " of the Python package tzdata that opened it (An update of time zone data in docs/runbook.md)"
        )

    def local(self, instant_ms: int) -> datetime:
        """Convert an instant (ms UTC) to a datetime in the policy's time zone."""
        return (_EPOCH + timedelta(milliseconds=instant_ms)).astimezone(self._zone)

    def _slots_from(self, midnight: datetime) -> list[Slot]:
        steps = timedelta(days=1) // self._length
        return [slot for i in range(steps) if (slot := self._make(midnight + i * self._length)) is not None]

    def _slot_of(self, local: datetime) -> Slot:
        midnight = datetime(local.year, local.month, local.day)  # noqa: DTZ001 - midnight of a wall clock has no zone
        wall = midnight + (local.replace(tzinfo=None) - midnight) // self._length * self._length
        slot = self._make(wall)
        if slot is None:
            raise OverflowError
        return slot

    def _make(self, wall: datetime) -> Slot | None:
        key = (wall.date().isoformat(), wall.strftime("%H:%M"))
        slot = self._slots.get(key)
        if slot is None:
            spans = self._spans(wall, self._length)
            if not spans:
                return None
            first, end = min(start for start, _, _ in spans), max(end for _, end, _ in spans)
            slot = Slot(*key, _ms(first), _ms(end), self._outside(key[0], wall))
            cache(self._slots, key, slot, _SLOT_CACHE_SIZE)
        return slot

    def _outside(self, date: str, wall: datetime) -> str | None:
        if not self._first_date <= date < self._end_date:
            return Outcome.OUTSIDE_DATES.value
        clock = wall - datetime.combine(wall, datetime.min.time())
        return None if self._hours[0] * _HOUR <= clock < self._hours[1] * _HOUR else Outcome.OUTSIDE_HOURS.value

    def _spans(self, wall: datetime, length: timedelta) -> list[tuple[datetime, datetime, timedelta]]:
        """Return the UTC intervals in which the local clock shows [wall, wall + length), each with its offset.

        A slot has two if clocks go back.
        """
        at = wall.replace(tzinfo=UTC)
        spans = []
        for begin, end, offset in self._offsets(at - _SHIFT_MAX, at + length + _SHIFT_MAX):
            start, stop = max(begin, at - offset), min(end, at + length - offset)
            if start < stop:
                spans.append((start, stop, offset))
        return spans

    def _offsets(self, begin: datetime, end: datetime) -> list[tuple[datetime, datetime, timedelta]]:
        """Split [begin, end) where the zone's offset changes; return each part with its offset."""
        parts = []
        start, offset, at = begin, self._offset(begin), begin
        while at < end:
            after = min(at + _HOUR, end)
            if self._offset(after) != offset:
                change = self._change(at, after)
                parts.append((start, change, offset))
                start, offset = change, self._offset(change)
            at = after
        parts.append((start, end, offset))
        return parts

    def _change(self, before: datetime, after: datetime) -> datetime:
        """Return the second at which the offset changes to that of `after`; zones change on whole seconds."""
        old = self._offset(before)
        low, high = 0, int((after - before).total_seconds())
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(before + timedelta(seconds=middle)) == old:
                low = middle
            else:
                high = middle
        return before + timedelta(seconds=high)

    def _offset(self, instant: datetime) -> timedelta:
        return instant.astimezone(self._zone).utcoffset() or timedelta(0)


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def closes_at(slot: Slot, policy: Policy) -> int:
    """Return the watermark (ms UTC) from which a partition accepts no more readings of a slot."""
    return slot.end_ms + policy.lateness_ms


def min_watermark(watermarks: Iterable[int | None]) -> int | None:
    """Return the smallest watermark; None without partitions or if one is None: then no slot is final."""
    found = list(watermarks)
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None
