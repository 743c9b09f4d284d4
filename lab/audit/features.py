"""Published records as a table of numbers: one row a sample, one column for each field of each record."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
"""[samples, columns]; texts are numbered in the order in which they are met, and a missing field is `MISSING`"""
MISSING: Final = -(2.0**70)  # no record has this number
_ALIKE: Final = 0.9  # correlation of ranks from which on two columns say the same, such as `raw` and `mean`


def table_of(samples: Sequence[Sequence[bytes]]) -> Table:
    """Return the fields of the records of each sample; only columns that vary, none of two that say the same.

    The first half of the samples decides which these are, as it decides the event.
    """
    columns: dict[str, dict[int, float]] = {}
    texts: dict[Any, float] = {}
    for row, records in enumerate(samples):
        for number, record in enumerate(records):
            for name, value in _fields(f"{number}", msgspec.json.decode(record)):
                known = value if isinstance(value, float) else texts.setdefault(value, float(len(texts)))
                columns.setdefault(name, {})[row] = known
    found = [_column(column, len(samples)) for column in columns.values()]
    return _distinct(found, len(samples))


def _column(values: dict[int, float], rows: int) -> NDArray[np.float64]:
    column = np.full(rows, MISSING)
    column[np.fromiter(values.keys(), np.int64, len(values))] = np.fromiter(values.values(), np.float64, len(values))
    return column


def _fields(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, number or text) of each field of a decoded record. Of an interval, its width and its start."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(f"{name}.{key}", inner)
    elif isinstance(value, list):
        if len(value) == 2 and all(isinstance(each, int | float) for each in value):
            yield f"{name}.width", float(value[1] - value[0])
        for at, inner in enumerate(value):
            yield from _fields(f"{name}.{at}", inner)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        yield name, value
    else:
        yield name, float(value)


def _distinct(columns: list[NDArray[np.float64]], rows: int) -> Table:
    """Drop each column that ranks the samples almost as another one does: it would count twice.

    Of two the one with more different numbers stays: `raw`, and not `mean`, which is clipped.
    """
    kept: list[NDArray[np.float64]] = []
    ranks: list[NDArray[np.float64]] = []
    ranked = [np.unique(column[: rows // 2], return_inverse=True)[1] for column in columns]
    for column, rank in sorted(zip(columns, ranked, strict=True), key=lambda each: -int(each[1].max())):
        if not rank.any():
            continue
        centred = rank - rank.mean()
        centred /= np.sqrt((centred**2).sum())
        if all(abs(float(centred @ each)) < _ALIKE for each in ranks):
            kept.append(column)
            ranks.append(centred)
    return np.column_stack(kept) if kept else np.empty((rows, 0))
