"""Spill rows to disk, one folder per local date, so that memory holds one part of one date at a time.

The rows are raw data: only their owner can read the folder, and every end of the run except SIGKILL deletes it.
"""

import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import numpy as np
import polars as pl

from hatcast.lab.survey.rows import DayRows
from hatcast.stream.errors import HatcastError

_GROUP_ROWS: Final = 1 << 15  # of a Parquet row group, which is read or skipped as a whole
_USERS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of the rows in memory.

    chunk_rows   rows before they are written
    part_rows    rows of a date that are counted at once, about; all rows of one user's day are always together
    """

    chunk_rows: int = 1 << 18
    part_rows: int = 1 << 19


class Spill:
    """Rows by local date, in Parquet files sorted by user.

    columns   names of the columns with cells
    """

    def __init__(self, folder: Path, resolutions: Sequence[int], part_rows: int) -> None:
        self._folder = folder
        self._part_rows = part_rows
        self.columns = [cell_column(resolution) for resolution in resolutions]
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
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with tempfile.TemporaryDirectory(prefix="hatcast-survey-") as folder:
            yield Spill(Path(folder), resolutions, part_rows)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
