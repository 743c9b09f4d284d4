"""Readings that a caller passes: files, frames, or Arrow tables, as the input of a run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, get_args, runtime_checkable

from hatcast.agents.batch.run import Input, files_input
from hatcast.agents.errors.extras import require
from hatcast.agents.recordings.dump_file import DUMP
from hatcast.agents.recordings.parquet import table_digest, table_records
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FORMAT_NAMES, PARQUET, Columns, DeriveSpeed, Format, FormatChoice, jsonl
from hatcast.stream.readings.recording import Contents, Recording, reason_of

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class ArrowStream(Protocol):
    """A table of the Arrow PyCapsule interface, such as a frame of polars or pandas, or a table of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of an Arrow stream."""


Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Data: TypeAlias = Paths | ArrowStream
"""Readings: a file, several files that are one recording, or a table."""

_NAME: Final = "data"  # of a table, in error messages
_FAILED: Final = "Conversion failed for "  # how pyarrow begins to name a column
_EXTENSIONS: Final = {".csv": "csv", ".tsv": "csv", ".parquet": PARQUET, ".jsonl": jsonl.NAME, ".ndjson": jsonl.NAME}


@dataclass(frozen=True, slots=True)
class Reading:
    """The arguments of `hatcast.batch` for reading data."""

    format: str | None = None
    columns: Mapping[str, str] | Columns | None = None
    unit: str | None = None
    derive_speed: DeriveSpeed | None = None

    def input(self, data: Data, policy: Policy) -> Input:
        """Return the readings as an input. Raises HatcastError if they are neither files nor a table."""
        if isinstance(data, ArrowStream):
            table = table_of(data)
            # A record with its unit is canonical; all other tables are read by the names of their columns.
            canonical = "unit" in table.column_names and self._columns() is None
            choice = self._choice(self.format or (jsonl.NAME if canonical else PARQUET))
            return _table_input(table, self._feed(choice, policy), choice)
        paths = paths_of(data)
        name = self.format or _EXTENSIONS.get(Path(paths[0].name.removesuffix(".gz")).suffix)
        if name is None:
            raise HatcastError(f"{paths[0]}: has no format; name it as format: {', '.join((*FORMAT_NAMES, DUMP.name))}")
        choice = self._choice(name)
        return files_input(paths, self._feed(choice, policy), choice)

    def _choice(self, name: str) -> FormatChoice:
        return FormatChoice(name, self._columns(), self.derive_speed)

    def _feed(self, choice: FormatChoice, policy: Policy) -> Format:
        name = choice.name
        if choice == FormatChoice(DUMP.name):
            return DUMP
        if self.derive_speed not in (None, *get_args(DeriveSpeed)):
            raise HatcastError(f"derive_speed: {self.derive_speed!r} is unknown; use missing or always")
        if name not in FORMAT_NAMES:
            raise HatcastError(f"format: {name!r} is not a format; {name_fix(name, (*FORMAT_NAMES, DUMP.name))}")
        return policy_format(choice, policy)

    def _columns(self) -> Columns | None:
        columns = self.columns
        if columns is not None and not isinstance(columns, Columns):
            columns = Columns(dict(columns))
        return columns if self.unit is None else replace(columns or Columns(), unit=self.unit)


def paths_of(data: object) -> list[Path]:
    """Return the paths of one file, or of several. Raises HatcastError if they are not."""
    if isinstance(data, str) and "\n" in data:
        raise HatcastError("data is a text of several lines, which is no path: write it to a file, and give its path")
    if isinstance(data, str | os.PathLike):
        return [Path(data)]
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | os.PathLike) for each in data):
        return [Path(each) for each in data]
    hint = "call its collect() first" if hasattr(data, "collect") else "give a path, a frame, or an Arrow table"
    raise HatcastError(f"data is of the type {type(data).__name__}, which is neither a file nor a table: {hint}")


def table_of(data: ArrowStream) -> "pa.Table":
    """Return a table of pyarrow; its columns share the memory of the frame. A stream, which is read once, is loaded.

    Raises HatcastError, without any of the data: they cannot be converted.
    """
    require("pyarrow", _NAME)
    import pyarrow as pa

    try:
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:  # its text quotes values of the data
        column = next((each for each in error.args[1:] if isinstance(each, str) and each.startswith(_FAILED)), None)
        where = "" if column is None else f": {column[len(_FAILED) :]} has values of several types"
    raise HatcastError(
        f"{_NAME} cannot be converted to an Arrow table{where}; give each column one type, such as text, number or time"
    )


def _table_input(table: "pa.Table", feed: Format, choice: FormatChoice) -> Input:
    def contents() -> Contents:
        digest = table_digest(table)
        return [] if digest is None else [(_NAME, digest)]

    @contextmanager
    def opened() -> Iterator[Recording]:
        yield Recording(
            lambda: table_records(table, _NAME, feed),
            _NAME,
            derivation=feed.derivation,
            contents=contents,
            why=reason_of(feed),
        )

    return Input(_NAME, feed, choice, opened)
