"""Frames: results for pyarrow, polars, pandas and DuckDB, through the Arrow PyCapsule interface."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar, overload

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import missing_extra, require
from hatcast.stream.errors import HatcastError
from hatcast.stream.records import (
    BUDGET,
    ESTIMATE,
    QUERY,
    RELEASE,
    RUNNING,
    BudgetRecord,
    EstimateRecord,
    QueryRecord,
    ReleaseRecord,
    RunningRecord,
)
from hatcast.stream.records.fields import query_kind

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.axes import Axes

    from hatcast.agents.tables.columns import Table


_SHOWN: Final = 10  # rows of a frame's repr


class Frame(ABC):
    """A table of results. Any library of the Arrow PyCapsule interface takes it: `polars.DataFrame(frame)`."""

    SHOWN: ClassVar[tuple[str, ...]] = ()
    """Columns of its repr; none: all"""
    SHOWN_IF: ClassVar[str] = ""
    """Column that a row of its repr has a value of, if any row has one"""

    @abstractmethod
    def to_arrow(self) -> "pa.Table":
        """Return the rows as a table of pyarrow. Raises HatcastError if it is not installed."""

    @abstractmethod
    def __len__(self) -> int: ...

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a frame of polars. Raises HatcastError if polars is not installed."""
        try:
            import polars as pl
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        return pl.DataFrame(self.to_arrow())

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a frame of pandas, dates as timestamps. Raises HatcastError if it is not installed.

        Counts are `Int64` and flags `boolean`, also where a row has none.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        table = self.to_arrow()
        nullable = {"int64": pd.Int64Dtype(), "bool": pd.BooleanDtype()}
        frame: pd.DataFrame = table.to_pandas(date_as_object=False, types_mapper=lambda kind: nullable.get(str(kind)))
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow stream: the PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the columns as an Arrow schema: the PyCapsule interface."""
        return self.to_arrow().schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        try:
            rows = self._shown()
        except HatcastError as error:  # a repr must not fail
            return f"{type(self).__name__}: {len(self):,} rows; {error}"
        left = len(self) - len(rows[1:])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = (
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )
        more = [f".. {left:,} more"] if left else []
        return "\n".join([f"{type(self).__name__}: {len(self):,} rows", *aligned, *more])

    def _repr_html_(self) -> str:
        """Return the first rows as a table for notebooks."""
        try:
            head, *rows = self._shown()
        except HatcastError:
            return f"<pre>{escape(repr(self))}</pre>"
        table = "".join(
            "<tr>" + "".join(f"<{kind}>{escape(text)}</{kind}>" for text in row) + "</tr>"
            for kind, row in (("th", head), *(("td", each) for each in rows))
        )
        return f"<p>{type(self).__name__}: {len(self):,} rows</p><table>{table}</table>"

    def _shown(self) -> list[list[str]]:
        """Return the first rows as texts, below their names."""
        table = self.to_arrow()
        known = table.filter(table[self.SHOWN_IF].is_valid()) if self.SHOWN_IF else table
        table = table if known.num_rows == 0 else known
        columns = [[name, *map(_text, self._column(table, name))] for name in self.SHOWN or table.column_names]
        return [list(row) for row in zip(*columns, strict=True)]

    def _column(self, table: "pa.Table", name: str) -> list[Any]:
        """Return the first values of a column of the repr."""
        values: list[Any] = table[name][:_SHOWN].to_pylist()
        return values


def _not_installed(error: ModuleNotFoundError) -> Exception:
    line = missing_extra(error)
    return error if line is None else HatcastError(line)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


R = TypeVar("R", ReleaseRecord, QueryRecord, EstimateRecord, RunningRecord, BudgetRecord)


class Records(Frame, Generic[R]):
    """Published records of one kind. Iteration yields them decoded; `values` are their bytes, as in Kafka.

    The columns of its frames are those of `hatcast export` (docs/consume.md), the last one the record as JSON.
    """

    TOPIC: ClassVar[str]
    """Key of the records' topic in `[topics]`"""
    _DECODER: ClassVar[msgspec.json.Decoder[Any]]

    def __init__(self, values: Iterable[bytes]) -> None:
        self.values: Final = tuple(values)

    @classmethod
    def of(cls, values: Iterable[bytes], policy: str | None = None) -> Self:
        """Return those values that are records of this kind, each id once. policy: its name; None: all."""
        table = cls._table()
        found: dict[tuple[str, str], bytes] = {}
        for value in values:
            row = table.values(value)
            if row is None or policy not in (None, row["policy"]):
                continue
            name = row["policy"], row[table.key]
            if table.keeps_last or name not in found:
                found[name] = value
        return cls(found.values())

    @classmethod
    def _table(cls) -> "Table":
        from hatcast.agents.tables.records import TABLES

        return TABLES[cls.TOPIC]

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> "Records[R]": ...
    def __getitem__(self, place: int | slice) -> "R | Records[R]":
        """Return a record, or some of them as a frame of the same kind."""
        if isinstance(place, slice):
            return self._plain()(self.values[place])
        found: R = self._DECODER.decode(self.values[place])
        return found

    @classmethod
    def _plain(cls) -> "type[Records[R]]":
        """Return the type of some of the records."""
        return cls

    def __iter__(self) -> Iterator[R]:
        return (self._DECODER.decode(value) for value in self.values)

    def to_arrow(self) -> "pa.Table":
        """Return the records as a table of pyarrow, in their order."""
        require("pyarrow", "to_arrow()")
        return self._arrow

    @cached_property
    def _arrow(self) -> "pa.Table":
        from hatcast.agents.tables.arrow import table_of_records

        return table_of_records(self._table(), self.values)

    def write(self, path: str | Path, *, all_fields: bool = False) -> None:
        """Write the records to a new file: .jsonl, .csv, .xlsx, .parquet or .geojson.

        CSV, Excel and GeoJSON have a short table, with `all_fields` every field and the record itself.
        Raises HatcastError: the file exists already, has another extension, or cannot be written.
        """
        self._write(Path(path), "write", {}, all_fields=all_fields)

    def to_csv(
        self, path: str | Path, *, decimal: str = ".", encoding: str = "utf-8", all_fields: bool = False
    ) -> None:
        """Write the records to a new file as CSV, as `write` does; with `decimal=","` semicolons separate its fields.

        `encoding="utf-8-sig"` is UTF-8 that Excel recognises.
        """
        self._write(Path(path), "to_csv", {"decimal": decimal, "encoding": encoding}, all_fields=all_fields)

    def _write(self, path: Path, option: str, style: Mapping[str, str], *, all_fields: bool) -> None:
        from hatcast.agents.tables.files import FilesOf, Written
        from hatcast.agents.tables.lines import CsvStyle

        with FilesOf(path, [self._table()], Written(CsvStyle(**style), all_fields), option=option) as file:
            for value in self.values:
                file.write(value)


class Answers(Records[QueryRecord]):
    """Answers to queries over days."""

    TOPIC = "queries"
    SHOWN = ("query", "first_date", "last_date", "slot", "cell", "status", "mean", "low", "high", "unit")
    _DECODER = QUERY


class Estimates(Records[EstimateRecord]):
    """Estimates of all cells and slots, which follow from releases."""

    TOPIC = "estimates"
    SHOWN = ("date", "slot", "cell", "stage", "mean", "mean_low", "mean_high", "road", "unit")
    SHOWN_IF = "mean"  # the others are predicted only
    _DECODER = ESTIMATE

    def plot(self, date: str | None = None, hour: str | None = None, axes: "Axes | None" = None) -> "Axes":
        """Draw the hexagons of an hour, coloured by their mean, fainter where its interval is wide.

        A hexagon that is predicted only has the road's speed. Needs `hatcast[research]`.

        Args:
            date: local date, such as `2022-01-03`; None: the last one.
            hour: local start of the hour, such as `09:00`; None: the last one of the date.
            axes: of matplotlib, to draw on; None: new ones.

        Raises:
            HatcastError: there is no estimate of this hour, or matplotlib is not installed.
        """
        require("matplotlib", "plot()")
        from hatcast.agents.api.plotting import draw_hexagons

        found = [record for record in self if date in (None, record.date) and hour in (None, record.slot)]
        if not found:
            raise HatcastError("plot: has no estimate of this date and hour; give a date and an hour of the frame")
        last = max((record.date, record.slot) for record in found)
        return draw_hexagons([record for record in found if (record.date, record.slot) == last], axes)


class RunningMeans(Records[RunningRecord]):
    """Running means of all cells, which follow from releases."""

    TOPIC = "running"
    SHOWN = ("name", "date", "slot", "cell", "slots", "mean", "mean_low", "mean_high", "unit")
    _DECODER = RUNNING


class BudgetDays(Records[BudgetRecord]):
    """Privacy loss booked for each local date so far, the same for every vehicle: docs/privacy.md."""

    TOPIC = "budget"
    SHOWN = ("policy", "date", "releases", "epsilon_user_day", "limit")
    _DECODER = BUDGET


class Releases(Records[ReleaseRecord]):
    """Private means of HATs. A HAT that is suppressed or exceeds the budget has a status and no mean."""

    TOPIC = "means"
    SHOWN = ("date", "slot", "cell", "status", "mean", "low", "high", "unit")
    _DECODER = RELEASE

    def _column(self, table: "pa.Table", name: str) -> list[Any]:
        values = super()._column(table, name)
        if name != "slot":
            return values
        return [  # of a query of several HATs all slots that it is about, as in `hatcast tail`
            f"{slot}-{record.end[11:16]}" if query_kind(record.release_id) else slot
            for slot, record in zip(values, self, strict=False)
        ]


class BatchReleases(Releases):
    """Releases of one call of `hatcast.batch`, in the order in which they were made.

    Of a tracker these are single queries: its means are `estimates`, which its repr shows.

    answers    answers to the policy's queries over days, for periods that are over
    budget     what the dates of the releases and of the answers' periods have cost in the ledger
    outcomes   number of readings by outcome, such as `accepted`; None under `add_remove`, where counts are private
    """

    def __init__(
        self,
        values: Iterable[bytes],
        answers: Answers,
        budget: BudgetDays,
        outcomes: Mapping[str, int] | None,
        settings: Settings,
        ledger: Path | None = None,
    ) -> None:
        super().__init__(values)
        self._settings = settings
        self._policy = settings.policy
        self._ledger = ledger
        self.answers: Final = answers
        self.budget: Final = budget
        self.outcomes: Final = outcomes

    @cached_property
    def estimates(self) -> Estimates:
        """Estimates of all cells and slots, of all days in the ledger. They cost no budget. Raises HatcastError."""
        from hatcast.agents.batch.ledger_days import estimates

        return Estimates.of(estimates(self._all_values(), self._policy))

    @cached_property
    def running(self) -> RunningMeans:
        """The policy's running means, of all days in the ledger. They cost no budget. Raises HatcastError."""
        from hatcast.agents.batch.ledger_days import running_means

        return RunningMeans.of(running_means(self._all_values(), self._policy))

    @property
    def queries(self) -> Releases:
        """The releases themselves, which are single queries of a tracker; the repr of this frame shows them."""
        return Releases(self.values)

    def plot(self, date: str | None = None, hour: str | None = None, axes: "Axes | None" = None) -> "Axes":
        """Draw the estimates of an hour: see `Estimates.plot`. Raises HatcastError."""
        return self.estimates.plot(date, hour, axes)

    def write_map(self, path: str | Path) -> None:
        """Write the map of all days in the ledger as one page, as `hatcast map` does: it works offline.

        Raises HatcastError: the file exists already, does not end in .html, or cannot be written.
        """
        from hatcast.agents.batch.ledger_map import page_of, page_of_ledger
        from hatcast.agents.tables.files import check_target, new_file

        check_target(Path(path), "write_map", [".html"])
        if self._ledger is None:
            page = page_of([*self.values, *self.answers.values], self.budget.values, self._settings)
        else:
            page = page_of_ledger(self._ledger, self._settings)
        with new_file(Path(path), "write_map") as file:
            file.write(page)

    def _all_values(self) -> Iterable[bytes]:
        """Return the releases of the days before too: a day's estimates use them."""
        if self._ledger is None:
            return self.values
        from hatcast.agents.batch.ledger_days import ledger_records

        return ledger_records(self._ledger)

    @classmethod
    def _plain(cls) -> type[Releases]:
        return Releases

    def __repr__(self) -> str:
        if not self._policy.method.settles_days:
            return super().__repr__()
        try:
            found = f"follow {self.estimates!r}"
        except HatcastError as error:  # a repr must not fail
            found = f"estimates follow; {error}"
        return f"{type(self).__name__}: {len(self):,} single queries of a tracker, from which {found}"

    def _repr_html_(self) -> str:
        try:
            return self.estimates._repr_html_() if self._policy.method.settles_days else super()._repr_html_()
        except HatcastError:
            return f"<pre>{escape(repr(self))}</pre>"
