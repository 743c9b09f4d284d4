"""Public counts of whole days: who was where and how often, without speeds."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from hatcast.stream.errors import RecordingError
from hatcast.stream.policy.policy import MeansKeys, Policy
from hatcast.stream.readings.formats import Format
from hatcast.stream.tracker.counts import HatCounts

if TYPE_CHECKING:  # the processes that search for keys import this module, and no recordings
    from hatcast.lab.days import RecordedDay, RecordedSlot, Recordings

_MOST_DAYS: Final = 7
HEADER: Final = ("date", "hour", "cell", "vehicle", "readings")

Row = tuple[str, int, str, str, int]  # date, hour of the local clock, cell, vehicle, readings


@dataclass(frozen=True, slots=True, eq=False)
class SlotCounts:
    """HATs of one slot. hour: of the local clock in which it starts."""

    hour: int
    hats: tuple[HatCounts, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CountedDays:
    """Counts of whole days."""

    days: tuple[tuple[SlotCounts, ...], ...]  # slots of each day, in order; numbers of cells are common to all days
    names: tuple[str, ...]  # of the cells, by their numbers

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.names)

    @property
    def hats(self) -> int:
        """Number of HATs of all days."""
        return sum(len(slot.hats) for day in self.days for slot in day)

    def first_days(self) -> "CountedDays":
        """Return the counts of the first days, as many as a plan uses: their queries are designed one by one."""
        return replace(self, days=self.days[:_MOST_DAYS])


def counts_of_recordings(
    paths: Sequence[Path], feed: Format, policy: Policy, min_users: int, progress: Callable[[int], None]
) -> CountedDays:
    """Fold recordings, which are days of one stream, and return their counts. HATs with fewer users are left out.

    Raises RecordingError. Calls `progress` with the number of records folded since the last call.
    """
    from hatcast.lab.days import open_days

    with open_days(paths, feed) as recordings:
        return counts_of_opened(recordings, policy, min_users, progress)


def counts_of_opened(
    recordings: "Recordings", policy: Policy, min_users: int, progress: Callable[[int], None]
) -> CountedDays:
    """Fold open recordings, as `counts_of_recordings` does."""
    from hatcast.lab.days import TRACKER_CAP, with_users

    days = recordings.days(replace(policy, max_hats_per_day=TRACKER_CAP, method=MeansKeys()), progress)
    return counts_of_days(with_users(days, min_users))


def counts_of_days(days: Sequence["RecordedDay"]) -> CountedDays:
    """Return the counts of recorded days. Nothing of a speed is read."""
    return counts_of_rows(rows_of_days(days, lambda slot: slot.hour), 1)


def rows_of_days(days: Iterable["RecordedDay"], number: Callable[["RecordedSlot"], int]) -> Iterator[Row]:
    """Yield the rows of recorded days, with this number of each slot in place of its hour."""
    for day in days:
        for slot in day.slots:
            of_slot = number(slot)
            for hat in slot.hats:
                for user, count in zip(hat.pseudonyms.tolist(), hat.counts.tolist(), strict=True):
                    yield day.date, of_slot, hat.cell, str(user), count


def rows_of_file(path: Path) -> list[Row]:
    """Return the rows of a CSV file with the columns `HEADER`. Raises RecordingError."""
    fix = f"write a line {','.join(HEADER)}, and below it lines such as 2016-11-24,7,8748e3a34ffffff,bus 12,6"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames is None or not {*HEADER} <= {*reader.fieldnames}:
                raise RecordingError(str(path), "has other columns", fix)
            return [row_of(line) for line in reader]
    except OSError as error:
        raise RecordingError(str(path), f"cannot be read ({error.strerror})", "check the path") from None
    except (ValueError, TypeError, csv.Error):
        raise RecordingError(str(path), "has a line that is not counts", fix) from None


def counts_of_rows(rows: Iterable[Row], min_users: int) -> CountedDays:
    """Return the counts of rows in any order, without HATs that have fewer users."""
    cells: dict[str, int] = {}
    days = []
    for _, of_day in groupby(sorted(rows), lambda row: row[0]):
        buses: dict[str, int] = {}
        slots = []
        for hour, of_slot in groupby(of_day, lambda row: row[1]):
            hats = []
            for cell, of_hat in groupby(of_slot, lambda row: row[2]):
                readings: dict[str, int] = {}
                for *_, vehicle, number in of_hat:
                    readings[vehicle] = readings.get(vehicle, 0) + number
                if len(readings) >= min_users:
                    members = np.array([buses.setdefault(vehicle, len(buses)) for vehicle in readings], np.int64)
                    number_of_cell = cells.setdefault(cell, len(cells))
                    hats.append(HatCounts(number_of_cell, hour, members, np.array([*readings.values()], np.int64)))
            if hats:
                slots.append(SlotCounts(hour, tuple(hats)))
        if slots:
            days.append(tuple(slots))
    return CountedDays(tuple(days), tuple(cells))


def row_of(line: Mapping[str, str]) -> Row:
    """Return the row of a line with the columns `HEADER`. Raises KeyError, ValueError or TypeError."""
    row = line["date"], int(line["hour"]), line["cell"], line["vehicle"], int(line["readings"])
    if not (0 <= row[1] <= 23 and row[4] >= 1 and row[0] and row[2] and row[3]):
        raise ValueError
    return row
