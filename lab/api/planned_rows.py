"""Rows of a plan, in order: one sequence and one Arrow table for each kind of plan."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hatcast.agents.api.frames import Frame
from hatcast.agents.errors.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R", bound=Any)  # a dataclass: no type of the standard library says so


class PlannedRows(Frame, Generic[R]):
    """Rows of a plan, each a dataclass."""

    def __init__(self, rows: Iterable[R]) -> None:
        self._rows: Final = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> R:
        return self._rows[index]

    def to_arrow(self) -> "pa.Table":
        """Return the rows as a table."""
        require("pyarrow", "to_arrow()")
        import pyarrow as pa

        return pa.Table.from_pylist([asdict(row) for row in self._rows])
