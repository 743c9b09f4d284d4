"""Compute a survey's figures from rows, with polars, one part of a date at a time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import h3.api.basic_int as h3
import numpy as np
import polars as pl

from hatcast.lab.survey.figures import Resolution
from hatcast.lab.survey.selection import Counts
from hatcast.lab.survey.spill import Spill, cell_column

_TOTALS: Final = {"cell": pl.Int64, "slot": pl.Int32, "users": pl.Int64}
_DATE: Final = _TOTALS | {"readings": pl.Int64}


class ResolutionCounter:
    """Counts at one resolution: histograms, and users by (cell, slot of the day) over all dates.

    Memory: the HATs of one date, cells times slots of a day, and one number per distinct value of each histogram.
    """

    def __init__(self, resolution: int) -> None:
        self.resolution = resolution
        self._users: Counter[int] = Counter()
        self._hat_readings: Counter[int] = Counter()
        self._readings: Counter[int] = Counter()
        self._hats_per_user_day: Counter[int] = Counter()
        self._totals = pl.DataFrame(schema=_TOTALS)
        self._hats = 0
        self._date = pl.DataFrame(schema=_DATE)

    def add_part(self, part: pl.DataFrame) -> None:
        """Add all rows of some users of the current date."""
        cell = cell_column(self.resolution)
        entered = (
            part.lazy()
            .select("user", pl.col(cell).alias("cell"), "slot", "step")
            .unique()
            .group_by("user", "cell", "slot")
            .agg(pl.len().alias("readings"))
            .collect()
        )
        self._readings += _histogram(entered["readings"])
        self._hats_per_user_day += _histogram(entered.group_by("user").len()["len"])
        hats = entered.group_by("cell", "slot").agg(
            pl.len().cast(pl.Int64).alias("users"), pl.col("readings").cast(pl.Int64).sum()
        )
        self._date = pl.concat([self._date, hats]).group_by("cell", "slot").agg(pl.col("users", "readings").sum())

    def end_date(self) -> None:
        """Complete the current date: later parts belong to another one."""
        hats, self._date = self._date, pl.DataFrame(schema=_DATE)
        self._users += _histogram(hats["users"])
        self._hat_readings += _histogram(hats["readings"])
        self._hats += len(hats)
        self._totals = _sum_users([self._totals, hats.drop("readings")])

    def counts(self, slots: Sequence[int]) -> tuple[list[int], Counts]:
        """Return the cells with a reading, and daily users summed over dates [cells, slots]."""
        cells = self._totals["cell"].unique().sort().to_list()
        return cells, _matrix(self._totals, cells, slots)

    def figures(self, busy_cells: int) -> Resolution:
        """Return the figures, once all dates are added."""
        return Resolution(
            resolution=self.resolution,
            cells=self._totals["cell"].n_unique(),
            cell_slots=len(self._totals),
            hats=self._hats,
            edge_km=h3.average_hexagon_edge_length(self.resolution, unit="km"),
            area_km2=h3.average_hexagon_area(self.resolution, unit="km^2"),
            busy_cells=busy_cells,
            users=self._users,
            hat_readings=self._hat_readings,
            readings=self._readings,
            hats_per_user_day=self._hats_per_user_day,
        )


def capped_counts(
    spill: Spill, dates: Iterable[str], candidates: Sequence[int], slots: Sequence[int], cap: int
) -> Counts:
    """Return S(c, t) [candidates, slots] with each user-day capped at `cap` pairs (c, t). Not private yet.

    It is step 1 of `hatcast.lab.survey.selection`.

    spill   readings in candidates, with the cells of their resolution only
    """
    totals, (cell,) = pl.DataFrame(schema=_TOTALS), spill.columns
    for local_date in dates:
        for part in spill.parts(local_date):
            entered = (
                part.lazy()
                .group_by("user", pl.col(cell).alias("cell"), "slot")
                .agg(pl.col("arrival").min())
                .sort("user", "arrival", "slot", "cell")
                .group_by("user", maintain_order=True)
                .head(cap)
                .collect()
            )
            totals = _sum_users([totals, _totals_of(entered)])
    return _matrix(totals, candidates, slots)


def _totals_of(entered: pl.DataFrame) -> pl.DataFrame:
    """Count users by cell and slot. entered: distinct (user, cell, slot)."""
    return entered.group_by("cell", "slot").agg(pl.len().cast(pl.Int64).alias("users"))


def _sum_users(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by("cell", "slot").agg(pl.col("users").sum())


def _histogram(values: pl.Series) -> Counter[int]:
    counted = values.alias("value").value_counts()
    return Counter(dict(zip(counted["value"].to_list(), counted["count"].to_list(), strict=True)))


def _matrix(totals: pl.DataFrame, cells: Sequence[int], slots: Sequence[int]) -> Counts:
    """Return users [cells, slots], 0 without users. Other cells and slots are left out."""
    counts = np.zeros((len(cells), len(slots)), np.int64)
    row_of = {cell: row for row, cell in enumerate(cells)}
    column_of = {slot: column for column, slot in enumerate(slots)}
    wanted = totals.filter(pl.col("cell").is_in([*cells]) & pl.col("slot").is_in([*slots]))
    for cell, slot, users in wanted.iter_rows():
        counts[row_of[cell], column_of[slot]] = users
    return counts
