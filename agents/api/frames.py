"""Frames: results for pyarrow, polars, pandas and DuckDB, through the Arrow PyCapsule interface."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hatcast.agents.errors.extras import missing_extra
from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_SHOWN: Final = 10  # rows of a frame's repr


class Frame(ABC):
    """A table of results. Any library of the Arrow PyCapsule interface takes it: `polars.DataFrame(frame)`."""

    SHOWN: ClassVar[tuple[str, ...]] = ()
    """Columns of its repr; none: all"""

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
        """Return the rows as a frame of pandas, dates as timestamps. Raises HatcastError if it is not installed."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        frame: pd.DataFrame = self.to_arrow().to_pandas(date_as_object=False)
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
        more = [f".. {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []
        return "\n".join([f"{type(self).__name__}: {len(self):,} rows", *_aligned(rows), *more])

    def _shown(self) -> list[list[str]]:
        """Return the first rows as texts, below their names."""
        table = self.to_arrow()
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


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
