"""Which readings count, and where they lie.    [fold.md, rules 1 to 9 and 11]

The rules are the fold's own code. Rules 1 to 9 are asked of each record by itself: recordings are folded in arrival
order, where the clock that rule 9 compares with is the record's own arrival. So the order of records does not matter,
no record changes what becomes of another user's, and nothing has to be held. Rule 11 (`min_interval`) is left to
whoever counts: as many readings count as `steps` differ. Rule 12 is not applied: how many HATs a day has is a figure of
the survey, and a private selection applies it to its candidates (`selection`). Rule 10 is not for recordings.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final

import h3.api.basic_int as h3

from hatcast.stream.fold.contributions import FoldOf
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.open_slots import OpenSlot
from hatcast.stream.fold.partition_fold import Vehicle
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.pseudonyms import Pseudonyms
from hatcast.stream.readings.reading import Outcome, Reading, parse_time

_SLOTS_KEPT: Final = 10_000
_USERS_KEPT: Final = 200_000
_OUTSIDE_DATES: Final = Outcome.OUTSIDE_DATES.value
_ACCEPTED: Final = Outcome.ACCEPTED.value
_cell_at = h3.latlng_to_cell


@dataclass(slots=True)
class DayRows:
    """The readings of one local date, column by column.

    users      pseudonyms, as unsigned numbers of 64 bits
    slots      local starts, in minutes since midnight
    steps      of `min_interval` since the slot's start
    arrivals   ms UTC
    cells      H3 indexes, a column for each resolution
    """

    resolutions: int
    users: "array[int]" = field(default_factory=lambda: array("Q"))
    slots: "array[int]" = field(default_factory=lambda: array("i"))
    steps: "array[int]" = field(default_factory=lambda: array("i"))
    arrivals: "array[int]" = field(default_factory=lambda: array("q"))
    cells: list["array[int]"] = field(init=False)

    def __post_init__(self) -> None:
        self.cells = [array("q") for _ in range(self.resolutions)]


class Rows(FoldOf[Reading]):
    """Records in any order to rows by local date.

    outcomes   records by what became of them; `accepted`: by rules 1 to 9
    held       rows since the last `take`
    """

    def __init__(
        self,
        policy: Policy,
        pseudonyms: Pseudonyms,
        resolutions: Sequence[int],
        days: tuple[date, date] | None,
        now_ms: int,
    ) -> None:
        """Args:
        policy:  its `cells` are applied, and are of the last resolution; its K, `from` and partitions are not
        days:    local dates, both included; readings of others are `outside_dates`. None: all
        now_ms:  the time of the start: later records arrived in the future
        """
        finest = replace(policy, h3_resolution=resolutions[-1], from_date=None)
        super().__init__(finest, Calendar(finest), pseudonyms, _itself, None)
        self.held = 0
        self._resolutions = tuple(resolutions)
        self._first, self._last = ("", "~") if days is None else (days[0].isoformat(), days[1].isoformat())
        self._latest_ms = now_ms + policy.max_ahead_ms
        self._days_rows: dict[str, DayRows] = {}
        self._user_ids: dict[str, int] = {}
        self._slot: OpenSlot | None = None
        self._slots_start = 0
        self._rows = DayRows(len(resolutions))
        self._coarser: list[tuple[Callable[[int], None], int]] = []
        self._place: tuple[float, float] = (0.0, 0.0)
        self._arrival_ms = 0

    def add(self, recorded: Recorded) -> None:
        """One record. One without a readable arrival is taken as arrived when it was made, whatever others did."""
        outcome = self._outcome(recorded)
        self.outcomes[outcome] += 1

    def take(self) -> dict[str, DayRows]:
        """The rows since the last call, by local date."""
        taken, self._days_rows, self.held, self._slot = self._days_rows, {}, 0, None
        if len(self.slots) > _SLOTS_KEPT:
            self.slots.clear()
            self.days.clear()
            self._minutes.clear()
        return taken

    def _outcome(self, recorded: Recorded) -> str:
        reading, arrival = recorded.reading, recorded.arrival
        if arrival is None:
            made = None if reading is None else parse_time(reading.time)
            arrival = 0 if made is None else made  # no time at all ends as bad_time, whenever it arrived
        if arrival > self._latest_ms:
            return Outcome.ARRIVED_IN_FUTURE.value
        if arrival < 0 or reading is None:
            return Outcome.UNDECODABLE.value
        self._place = reading.lat, reading.lon  # type: ignore[assignment]  # read by _enter only, where both are floats
        self._arrival_ms = arrival
        return self._fold(arrival, arrival, reading)

    def _enter(self, vehicle: Vehicle, slot: OpenSlot, cell: int, step: int, milli: int) -> str:
        """A reading that rules 3 to 9 let through: one row."""
        del milli
        if slot is not self._slot and not self._turn_to(slot):
            return _OUTSIDE_DATES
        rows = self._rows
        user = self._user_ids.get(vehicle.canonical)
        rows.users.append(self._user_id(vehicle.canonical) if user is None else user)
        rows.slots.append(self._slots_start)
        rows.steps.append(step)
        rows.arrivals.append(self._arrival_ms)
        latitude, longitude = self._place
        for append, resolution in self._coarser:
            append(_cell_at(latitude, longitude, resolution))  # no parent of `cell`: hexagons do not nest exactly
        rows.cells[-1].append(cell)
        self.held += 1
        return _ACCEPTED

    def _turn_to(self, slot: OpenSlot) -> bool:
        """Rows are of this slot from now on; False if they are not wanted. Records mostly come in order of time."""
        local_date = slot.slot.date
        if not self._first <= local_date <= self._last:
            return False
        rows = self._days_rows.get(local_date)
        if rows is None:
            rows = self._days_rows[local_date] = DayRows(len(self._resolutions))
        self._slot, self._rows, self._slots_start = slot, rows, minutes_of(slot.slot.name)
        self._coarser = [
            (column.append, resolution)
            for column, resolution in zip(rows.cells[:-1], self._resolutions[:-1], strict=True)
        ]
        return True

    def _user_id(self, vehicle: str) -> int:
        if len(self._user_ids) >= _USERS_KEPT:
            self._user_ids.clear()
        user = self._user_ids[vehicle] = int.from_bytes(self._pseudonyms.of(vehicle, None), "big")
        return user


def minutes_of(slot: str) -> int:
    """Minutes from midnight to a slot's local start: "09:00" is 540."""
    return int(slot[:2]) * 60 + int(slot[3:])


def slots_of(policy: Policy) -> list[int]:
    """The slots of a policy's `hours`, as minutes from midnight."""
    length, (first, end) = policy.slot_length_ms // 60_000, policy.hours
    return [start for start in range(0, 24 * 60, length) if first * 60 <= start < end * 60]


def _itself(reading: Reading) -> Reading:
    return reading
