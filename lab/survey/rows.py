"""Accepted readings as rows with their cells.    [docs/specification/fold.md, rules 1 to 9 and 11]

The rules are the fold's own code. Rules 1 to 9 are applied to each record by itself: recordings are folded in arrival
order, where the watermark of rule 9 is the record's own arrival. So the order of records does not matter, no record
changes the outcome of another user's record, and no records need buffering. Rule 11 (`min_interval`) is left to the
counting code: readings with equal `steps` count once. Rule 12 is not applied: the number of HATs per day is one of the
survey's statistics, and a private selection applies the cap to its candidates (`selection`). Rule 10 does not apply to
recordings.

**Spill**: rows go to disk, one folder per local date, so that memory holds one part of one date at a time. The rows are
raw data: only their owner can read the folder, and every end of the run except SIGKILL deletes it.
"""

import signal
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Final

import h3.api.basic_int as h3
import numpy as np
import polars as pl

from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.open_slots import OpenSlot, Vehicle
from hatcast.stream.fold.reading_fold import ReadingFold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import MeansKeys, Policy
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Outcome, Reading, parse_time
from hatcast.stream.readings.vehicles import Pseudonyms

_SLOT_CACHE_SIZE: Final = 10_000
_USER_CACHE_SIZE: Final = 200_000
_OUTSIDE_DATES: Final = Outcome.OUTSIDE_DATES.value
_ACCEPTED: Final = Outcome.ACCEPTED.value
_cell_at = h3.latlng_to_cell
_GROUP_ROWS: Final = 1 << 15  # of a Parquet row group, which is read or skipped as a whole
_USERS: Final = 1 << 64


@dataclass(slots=True)
class DayRows:
    """Readings of one local date as columns."""

    resolutions: int
    users: "array[int]" = field(default_factory=lambda: array("Q"))  # pseudonyms as unsigned 64-bit integers
    slots: "array[int]" = field(default_factory=lambda: array("i"))  # local starts in minutes since midnight
    # number of whole `min_interval`s since the slot's start
    steps: "array[int]" = field(default_factory=lambda: array("i"))
    arrivals: "array[int]" = field(default_factory=lambda: array("q"))  # ms UTC
    at_bound: "array[int]" = field(default_factory=lambda: array("b"))  # 1 for a reading of U or more, else 0
    cells: list["array[int]"] = field(init=False)  # H3 indexes, one column per resolution

    def __post_init__(self) -> None:
        self.cells = [array("q") for _ in range(self.resolutions)]


class RowCollector(ReadingFold[Reading]):
    """Converts records in any order to rows by local date.

    outcomes   number of records by outcome; `accepted` means by rules 1 to 9
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
        policy:  its `cells` are applied, at the last resolution; its K, horizons, `from` and partitions are not
        days:    first and last local date, both included; other readings are `outside_dates`. None: all dates
        now_ms:  start time of the survey: records beyond now_ms + max_ahead arrived in the future
        """
        finest = replace(policy, h3_resolution=resolutions[-1], fine=None, from_date=None, method=MeansKeys())
        super().__init__(finest, Calendar(finest), FoldUsers(pseudonyms), lambda reading: reading, None)
        self.pending = 0  # number of rows since the last `take`
        self._resolutions = tuple(resolutions)
        self._upper_bound = policy.upper_bound
        self._first, self._last = ("", "~") if days is None else (days[0].isoformat(), days[1].isoformat())
        self._latest_ms = now_ms + policy.max_ahead_ms
        self._rows_by_date: dict[str, DayRows] = {}
        self._user_ids: dict[str, int] = {}
        self._slot: OpenSlot | None = None
        self._slot_minutes = 0
        self._rows = DayRows(len(resolutions))
        self._coarser_columns: list[tuple[Callable[[int], None], int]] = []
        self._place: tuple[float, float] = (0.0, 0.0)
        self._arrival_ms = 0

    def add(self, recorded: Recorded) -> None:
        """Add one record. Without a readable arrival its own time counts as arrival, independent of other records."""
        outcome = self._outcome(recorded)
        self.outcomes[outcome] += 1

    def take(self) -> dict[str, DayRows]:
        """Return the rows since the last call, by local date."""
        taken, self._rows_by_date, self.pending, self._slot = self._rows_by_date, {}, 0, None
        if len(self.slots) > _SLOT_CACHE_SIZE:
            self.slots.clear()
            self.periods.clear()
            self._minutes.clear()
        return taken

    def _outcome(self, recorded: Recorded) -> str:
        reading, arrival = recorded.reading, recorded.arrival
        if arrival is None:
            made = None if reading is None else parse_time(reading.time)
            arrival = 0 if made is None else made  # without a time the outcome is bad_time for any arrival
        if arrival > self._latest_ms:
            return Outcome.ARRIVED_IN_FUTURE.value
        if arrival < 0 or reading is None:
            return Outcome.UNDECODABLE.value
        self._place = reading.lat, reading.lon  # type: ignore[assignment]  # read by _enter only, where both are floats
        self._arrival_ms = arrival
        return self._fold(arrival, arrival, reading)

    def _enter(self, vehicle: Vehicle, slot: OpenSlot, cell: int, step: int, milli: int) -> str:
        """Append the row of a reading that passed rules 3 to 9."""
        if slot is not self._slot and not self._switch_to(slot):
            return _OUTSIDE_DATES
        rows = self._rows
        user = self._user_ids.get(vehicle.canonical)
        rows.users.append(self._user_id(vehicle.canonical) if user is None else user)
        rows.slots.append(self._slot_minutes)
        rows.steps.append(step)
        rows.arrivals.append(self._arrival_ms)
        rows.at_bound.append(milli >= self._upper_bound)
        latitude, longitude = self._place
        for append, resolution in self._coarser_columns:
            # Not the parent of `cell`: H3 hexagons do not nest exactly.
            append(_cell_at(latitude, longitude, resolution))
        rows.cells[-1].append(cell)
        self.pending += 1
        return _ACCEPTED

    def _switch_to(self, slot: OpenSlot) -> bool:
        """Switch to the columns of a slot; consecutive records mostly share one. False if its date is not selected."""
        local_date = slot.slot.date
        if not self._first <= local_date <= self._last:
            return False
        rows = self._rows_by_date.get(local_date)
        if rows is None:
            rows = self._rows_by_date[local_date] = DayRows(len(self._resolutions))
        self._slot, self._rows, self._slot_minutes = slot, rows, minutes_of(slot.slot.name)
        self._coarser_columns = [
            (column.append, resolution)
            for column, resolution in zip(rows.cells[:-1], self._resolutions[:-1], strict=True)
        ]
        return True

    def _user_id(self, vehicle: str) -> int:
        if len(self._user_ids) >= _USER_CACHE_SIZE:
            self._user_ids.clear()
        user = self._user_ids[vehicle] = int.from_bytes(self._pseudonyms.of(vehicle, None), "big")
        return user


def minutes_of(slot: str) -> int:
    """Return the minutes from midnight to a slot's local start: 540 for "09:00"."""
    return int(slot[:2]) * 60 + int(slot[3:])


def name_of(slot: int) -> str:
    """Return the name of a slot from its minutes since midnight: "09:00" for 540."""
    return f"{slot // 60:02}:{slot % 60:02}"


def slots_of(policy: Policy) -> list[int]:
    """Return the slots in a policy's `hours` as minutes from midnight."""
    length, (first, end) = policy.slot_length_ms // 60_000, policy.hours
    return [start for start in range(0, 24 * 60, length) if first * 60 <= start < end * 60]


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of the rows in memory."""

    chunk_rows: int = 1 << 18  # rows before they are written
    # rows of a date that are counted at once, about; all rows of one user's day are always together
    part_rows: int = 1 << 19


class Spill:
    """Rows by local date, in Parquet files sorted by user."""

    def __init__(self, folder: Path, resolutions: Sequence[int], part_rows: int) -> None:
        self._folder = folder
        self._part_rows = part_rows
        self.columns = [cell_column(resolution) for resolution in resolutions]  # names of the columns with cells
        self._rows: dict[str, int] = {}
        self._files = 0

    def write(self, rows_by_date: Mapping[str, DayRows]) -> None:
        """Append rows. Raises HatcastError if the disk is full."""
        try:
            for local_date, rows in rows_by_date.items():
                self._write(local_date, rows)
        except (OSError, pl.exceptions.PolarsError):  # polars raises several types for a failed write
            raise HatcastError(
                f"temporary files cannot be written in {self._folder.parent}: free space there, or set TMPDIR"
            ) from None

    def _write(self, local_date: str, rows: DayRows) -> None:
        folder = self._folder / local_date
        folder.mkdir(exist_ok=True)
        self._rows[local_date] = self._rows.get(local_date, 0) + len(rows.users)
        frame = pl.DataFrame(
            {
                "user": np.frombuffer(rows.users, np.uint64),
                "slot": np.frombuffer(rows.slots, np.int32),
                "step": np.frombuffer(rows.steps, np.int32),
                "arrival": np.frombuffer(rows.arrivals, np.int64),
                "at_bound": np.frombuffer(rows.at_bound, np.int8),
                **{
                    name: np.frombuffer(column, np.int64) for name, column in zip(self.columns, rows.cells, strict=True)
                },
            }
        )
        path = folder / f"{self._files}.parquet"
        frame.sort("user").write_parquet(path, compression="zstd", compression_level=1, row_group_size=_GROUP_ROWS)
        self._files += 1

    def dates(self) -> list[str]:
        """Return the local dates that have rows, sorted."""
        return sorted(self._rows)

    def parts(self, local_date: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a date in parts of about `part_rows`, each with all rows of its users.

        Pseudonyms are uniform, so equal ranges of them have about equally many users.
        """
        parts = -(-self._rows[local_date] // self._part_rows)
        scanned = pl.scan_parquet(sorted((self._folder / local_date).glob("*.parquet")))
        for part in range(parts):
            first, end = _USERS * part // parts, _USERS * (part + 1) // parts
            within = pl.col("user").is_between(pl.lit(first, pl.UInt64), pl.lit(end - 1, pl.UInt64))
            yield scanned.filter(within).collect()


def cell_column(resolution: int) -> str:
    """Return the name of the column with the cells of a resolution."""
    return f"cell_{resolution}"


@contextmanager
def open_spill(resolutions: Sequence[int], part_rows: int) -> Iterator[Spill]:
    """Yield a spill in a new folder of mode 700 below TMPDIR, deleted at the end, also on SIGTERM, SIGHUP, Ctrl-C."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with tempfile.TemporaryDirectory(prefix="hatcast-survey-") as folder:
            yield Spill(Path(folder), resolutions, part_rows)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
