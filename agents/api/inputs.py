"""Readings that a caller passes: files, frames, or Arrow tables, as the input of a run."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

from hatcast.agents.batch.run import Input, files_input
from hatcast.agents.recordings.dump_file import DUMP
from hatcast.agents.recordings.parquet import table_records
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FORMATS, Format, format_with, jsonl
from hatcast.stream.readings.recording import Recording

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


def input_of(data: Data, format_name: str | None, policy: Policy) -> Input:
    """Return the readings as an input. Raises HatcastError if they are neither files nor a table."""
    if isinstance(data, ArrowStream):
        feed = _format(format_name or jsonl.NAME, policy)
        return _table_input(table_of(data), feed)
    paths = paths_of(data)
    if format_name is None:
        raise HatcastError(f"{paths[0]}: has no format; name it as format: {', '.join((*FORMATS, DUMP.name))}")
    return files_input(paths, _format(format_name, policy))


def paths_of(data: object) -> list[Path]:
    """Return the paths of one file, or of several. Raises HatcastError if they are not."""
    if isinstance(data, str | os.PathLike):
        return [Path(data)]
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | os.PathLike) for each in data):
        return [Path(each) for each in data]
    hint = "call its collect() first" if hasattr(data, "collect") else "give a path, a frame, or an Arrow table"
    raise HatcastError(f"data is of the type {type(data).__name__}, which is neither a file nor a table: {hint}")


def _format(name: str, policy: Policy) -> Format:
    if name == DUMP.name:
        return DUMP
    if name not in FORMATS:
        raise HatcastError(f"format: {name!r} is not a format; {name_fix(name, (*FORMATS, DUMP.name))}")
    return format_with(name, policy.value_units)


def table_of(data: ArrowStream) -> "pa.Table":
    """Return a table of pyarrow; its columns share the memory of the frame. A stream, which is read once, is loaded."""
    import pyarrow as pa

    return pa.table(data)


def _table_input(table: "pa.Table", feed: Format) -> Input:
    @contextmanager
    def opened() -> Iterator[Recording]:
        yield Recording(lambda: table_records(table, _NAME, feed), _NAME)

    return Input(_NAME, feed, opened)
