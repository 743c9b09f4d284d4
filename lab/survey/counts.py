"""Counts of users by cell and slot, from rows with polars, and the cells that they select.

HAT selection: cells with enough users in every slot.    [T III.C; docs/specification/estimators.md, section 7]

S(c, t): number of user-days of D days that enter HAT (c, day, t), which is the sum over days of that HAT's unique
users. Cell c is selected if S(c, t)/D > N for every slot t of the policy's hours. `survey` uses the exact S: such a
list shows where buses are, so it is for `replace`, where that is public. `private` adds noise to S:

**Public**: the candidates, the D days, the slots, K, N and epsilon. None of them is derived from the data.

1. **Bounded influence.** A user-day counts in the first K of the pairs (candidate cell, slot) that it entered, in the
   order of its own first arrivals there, ties by slot and cell. These pairs depend on that user-day alone: the rules
   read one record at a time (`rows`), and the cap reads the HATs of one user on one day. (Users are identified by
   64-bit pseudonyms under a key made for the run: among 10^6 any two collide with probability 3e-8.)
2. **Sensitivity.** Adding or removing one user-day changes at most K of the numbers S(c, t), each by 1: at most K in
   l1, for any data of the others. (In means S/D: at most K of them, each by 1/D.)
3. **Noise.** Each S(c, t), for each candidate and slot, gets independent discrete Laplace noise of scale
   b >= K/epsilon: `Noise.laplace` for distance K. (In means: K/(D epsilon).) The probability of one noisy number
   changes by a factor of at most exp(|change of S(c, t)|/b), that of all numbers together by at most
   exp(K/b) <= exp(epsilon). Where there was no user S is 0 and gets the same noise as elsewhere.
4. **Selection.** The comparison S + noise > N D is in integers and reads noisy numbers only, also negative ones:
   post-processing.

**Relation.** One user-day added or removed: epsilon. One user-day replaced by any other changes up to 2 K numbers (K
that it leaves, K that it enters): 2 epsilon. A user present on all D days is D user-days: D epsilon. Under a policy's
relation `replace` the HATs that a user enters are public, so a selection reveals nothing more; it is charged all the
same.

**Charge**: epsilon to each of the D days, for one list. Another draw costs it again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import h3.api.basic_int as h3
import numpy as np
import polars as pl
from numpy.typing import NDArray

from hatcast.lab.survey.figures import Resolution, SlotFigures
from hatcast.lab.survey.rows import Spill, cell_column
from hatcast.stream.mechanisms import Noise

Counts = NDArray[np.int64]  # [cells, slots]: S(c, t)
_TOTALS: Final = {"cell": pl.Int64, "slot": pl.Int32, "users": pl.Int64}
_DATE: Final = _TOTALS | {"readings": pl.Int64}


@dataclass(frozen=True, slots=True)
class NoisyCounts:
    """S with noise, which may be published, and the scale of the noise on S/D in users."""

    counts: Counts
    scale: float


def busy_cells(cells: Sequence[int], counts: Counts, users: Fraction, days: int) -> list[int]:
    """Return the cells whose mean of daily users is above `users` in every slot, in ascending order.

    cells    [C] H3 indexes; counts [C, T], exact or noisy
    days     D
    For integers S > N D if and only if S > floor(N D). Without a slot no cell is selected.
    """
    threshold = int(users * days)
    return sorted(cell for cell, row in zip(cells, counts, strict=True) if len(row) and int(row.min()) > threshold)


def noisy_counts(counts: Counts, cap: int, days: int, epsilon: float, noise: Noise) -> NoisyCounts:
    """Add noise to each number of S, for `epsilon` in total. The proof is in the module docstring.

    counts   [candidates, slots], of user-days capped at `cap` pairs: private
    cap      K; public like the other arguments
    Guarantee (one user-day added or removed): probabilities change by a factor of at most exp(epsilon).
    Raises UnsafeNoise if the noise could exceed 64 bits, for any counts.
    """
    drawn = [noise.laplace(count, cap, epsilon) for count in counts.ravel().tolist()]
    values = np.array([each.value for each in drawn], np.int64).reshape(counts.shape)
    return NoisyCounts(values, max((each.scale for each in drawn), default=0.0) / days)


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
        self._hats = self._at_bound = 0
        self._by_slot: dict[int, SlotFigures] = {}
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
        slowest = part.group_by("user", cell, "slot").agg(pl.col("at_bound").min())
        self._at_bound += int(slowest["at_bound"].sum())
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
        for slot, number, users, readings in (
            hats.group_by("slot").agg(pl.len(), pl.col("users", "readings").sum()).rows()
        ):
            self._by_slot[slot] = self._by_slot.get(slot, SlotFigures()).plus(SlotFigures(number, users, readings))

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
            at_bound=self._at_bound,
            by_slot=dict(sorted(self._by_slot.items())),
        )


def capped_counts(
    spill: Spill, dates: Iterable[str], candidates: Sequence[int], slots: Sequence[int], cap: int
) -> Counts:
    """Return S(c, t) [candidates, slots] with each user-day capped at `cap` pairs (c, t). Not private yet.

    It is step 1 of `hatcast.lab.survey.counts`.

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
            # distinct (user, cell, slot): so many users by cell and slot
            added = entered.group_by("cell", "slot").agg(pl.len().cast(pl.Int64).alias("users"))
            totals = _sum_users([totals, added])
    return _matrix(totals, candidates, slots)


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
