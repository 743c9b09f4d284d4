"""Files of records: JSON lines, CSV, Excel, Parquet or GeoJSON, by extension.

A file gets its name when it is complete, and a name is never taken from another file. Only a file of lines that
follows a topic has its name from the start: it grows by whole lines.
"""

import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Protocol, Self

from hatcast.agents.errors.causes import require
from hatcast.agents.tables.columns import Layout, Row, Table, Type, layout_of, row_of
from hatcast.agents.tables.lines import PLAIN, CsvStyle, csv_line, feature_of
from hatcast.agents.tables.records import Place, short
from hatcast.stream.errors import HatcastError

_ROW_GROUP: Final = 10_000


class Sink(Protocol):
    """Destination of a file's bytes."""

    def write(self, data: bytes, /) -> object:
        """Write all of some bytes. Raises OSError."""


class RecordFile:
    """An open file of records."""

    def write(self, record: bytes) -> bool:
        """Write a record; return False if it is not of this table, and nothing is written. Raises OSError."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write the end of the file, which a file of lines has not. Raises OSError."""

    def abandon(self) -> None:
        """Close open resources without finishing the file."""


class _JsonLines(RecordFile):
    """The records, one a line, unchanged."""

    def __init__(self, file: Sink, _: Layout, __: CsvStyle) -> None:
        self._file = file

    def write(self, record: bytes) -> bool:
        self._file.write(record + b"\n")
        return True


class _Csv(RecordFile):
    def __init__(self, file: Sink, layout: Layout, style: CsvStyle) -> None:
        self._file, self._layout, self._style = file, layout, style
        file.write(style.header(layout))

    def write(self, record: bytes) -> bool:
        line = csv_line(self._layout, record, self._style)
        if line is not None:
            self._file.write(line)
        return line is not None


class _GeoJson(RecordFile):
    """A FeatureCollection, a feature a line."""

    def __init__(self, file: Sink, layout: Layout, _: CsvStyle) -> None:
        self._file, self._layout = file, layout
        self._before = b""
        file.write(b'{"type":"FeatureCollection","features":[\n')

    def write(self, record: bytes) -> bool:
        feature = feature_of(self._layout, record)
        if feature is not None:
            self._file.write(self._before + feature)
            self._before = b",\n"
        return feature is not None

    def finish(self) -> None:
        self._file.write(b"\n]}\n")


class _Parquet(RecordFile):
    """Row groups of `_ROW_GROUP` records, so that memory is bounded."""

    def __init__(self, file: Sink, layout: Layout, _: CsvStyle) -> None:
        import pyarrow.parquet as pq

        from hatcast.agents.tables.arrow import schema_of

        self._layout = layout
        sink: Any = file  # an open file
        self._writer = pq.ParquetWriter(sink, schema_of(layout), compression="zstd")
        self._rows: list[Row] = []

    def write(self, record: bytes) -> bool:
        row = row_of(self._layout, record)
        if row is not None:
            self._rows.append(row)
            if len(self._rows) >= _ROW_GROUP:
                self._flush()
        return row is not None

    def finish(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        with suppress(OSError):  # of a full disk, again
            self._writer.close()
        self._writer.is_open = False  # else it is closed once more when it is deleted

    def _flush(self) -> None:
        from hatcast.agents.tables.arrow import table_of_rows

        self._writer.write_table(table_of_rows(self._layout, self._rows))
        self._rows = []


class _Xlsx(RecordFile):
    """A sheet with a header that stays in sight, and a filter. Numbers are numbers, dates are dates."""

    def __init__(self, file: Sink, layout: Layout, _: CsvStyle) -> None:
        import xlsxwriter

        self._layout, self._row = layout, 0
        self._folder = tempfile.TemporaryDirectory(prefix="hatcast-")  # rows are not kept in memory
        options = {"constant_memory": True, "tmpdir": self._folder.name, "strings_to_formulas": False}
        self._book = xlsxwriter.Workbook(file, options)
        self._sheet = self._book.add_worksheet()
        self._date = self._book.add_format({"num_format": "yyyy-mm-dd"})
        bold = self._book.add_format({"bold": True})
        self._sheet.freeze_panes(1, 0)
        for column, each in enumerate(layout.columns):
            self._sheet.set_column(column, column, max(10, len(each.name) + 2))
            self._sheet.write_string(0, column, each.name, bold)

    def write(self, record: bytes) -> bool:
        row = row_of(self._layout, record)
        if row is None:
            return False
        self._row += 1
        for column, each in enumerate(self._layout.columns):
            value = row[each.name]
            if value is None:
                continue
            if each.type is Type.DATE:
                self._sheet.write_datetime(self._row, column, value, self._date)
            elif each.type in (Type.NUMBER, Type.COUNT):
                self._sheet.write_number(self._row, column, value)
            elif each.type is Type.FLAG:
                self._sheet.write_boolean(self._row, column, value)
            else:
                self._sheet.write_string(self._row, column, str(value))
        return True

    def finish(self) -> None:
        from xlsxwriter.exceptions import FileCreateError

        self._sheet.autofilter(0, 0, self._row, len(self._layout.columns) - 1)
        try:
            self._book.close()
        except FileCreateError as error:  # of an OSError
            raise error.args[0] from None
        self._folder.cleanup()

    def abandon(self) -> None:
        self._book.fileclosed = True  # else it warns when it is deleted
        self._sheet.row_data_fh.close()
        self._folder.cleanup()


FORMATS: Final[Mapping[str, Callable[[Sink, Layout, CsvStyle], RecordFile]]] = MappingProxyType(
    {".jsonl": _JsonLines, ".csv": _Csv, ".xlsx": _Xlsx, ".parquet": _Parquet, ".geojson": _GeoJson}
)
"""By extension. GeoJSON, the last, needs the column of cells."""
_PACKAGES: Final[Mapping[str, str]] = MappingProxyType({".parquet": "pyarrow", ".xlsx": "xlsxwriter"})
APART: Final = (".csv", ".xlsx", ".geojson")  # formats with one kind of record in a file, by default as the short table

EXTENSIONS: Final = (*FORMATS,)
WITHOUT_PLACES: Final = EXTENSIONS[:-1]
_LINES: Final = (".jsonl", ".csv")


def check_target(path: Path, option: str = "-o", known: Sequence[str] = EXTENSIONS) -> None:
    """Raise HatcastError unless a new file of this name can be written: call it before a long computation.

    known   the endings that it may have: `WITHOUT_PLACES` if its rows have no column `cell`, which GeoJSON needs
    """
    suffix = path.suffix.lower()
    if suffix not in known:
        reason = "has no known format" if suffix not in EXTENSIONS else "would have no place on a map"
        raise HatcastError(f"{option}: {path} {reason}; name a file that ends in {_listed(known)}")
    if suffix in _PACKAGES:
        require(_PACKAGES[suffix], f"{option}: {path}")
    if path.exists():
        raise HatcastError(f"{option}: {path} exists already; name another file, or remove it")
    if not path.parent.is_dir():
        raise HatcastError(f"{option}: folder {path.parent} does not exist; create it, or name another")


def _listed(extensions: Sequence[str]) -> str:
    return " or ".join([", ".join(extensions[:-1]), extensions[-1]] if len(extensions) > 1 else extensions)


@contextmanager
def open_file(path: Path, layout: Layout, option: str = "-o", style: CsvStyle = PLAIN) -> Iterator[RecordFile]:
    """Open a new file for records; it gets its name at the end of the block, and not if the block fails.

    Raises HatcastError if it exists already or cannot be written.
    """
    _check(path, layout, option)
    with new_file(path, option) as raw:
        file = _Checked(path, layout, raw, option, style)
        try:
            yield file
            file.finish()
        except BaseException:
            file.abandon()
            raise


@contextmanager
def new_file(path: Path, option: str = "-o") -> Iterator[io.BufferedWriter]:
    """Open a file that gets its name at the end of the block, and not if the block fails.

    Raises HatcastError if it exists already or cannot be written.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with _opened(part, path, option) as raw:
            yield raw
        with _write_errors(path, option):
            _name(part, path, option)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def open_growing_file(path: Path, layout: Layout, option: str = "-o", style: CsvStyle = PLAIN) -> Iterator[RecordFile]:
    """Open a new file for the records of a topic that is followed.

    A file of lines can be read while it grows. Another format is complete at the end of the block, also if the block
    fails for another reason than this file, since its records were read.
    Raises HatcastError if it exists already or cannot be written.
    """
    if path.suffix.lower() in _LINES:
        _check(path, layout, option)
        with _write_errors(path, option):
            raw = path.open("xb", buffering=0)
        with raw:
            yield _Checked(path, layout, _WholeLines(raw), option, style)
        return
    failure: BaseException | None = None
    with open_file(path, layout, option, style) as file:
        try:
            yield file
        except WriteError:
            raise
        except BaseException as error:  # raised again below, when the file is complete
            failure = error
    if failure is not None:
        raise failure


@contextmanager
def _opened(part: Path, path: Path, option: str) -> Iterator[io.BufferedWriter]:
    """Open a file, and close it durably. After an error in the block, its own errors are of no interest."""
    with _write_errors(path, option):
        raw = part.open("wb")
    try:
        yield raw
        with _write_errors(path, option):
            raw.flush()
            os.fsync(raw.fileno())
    finally:
        with suppress(OSError):  # what a full disk did not take is tried again
            raw.close()


def _check(path: Path, layout: Layout, option: str) -> None:
    has_places = any(each.name in ("cell", "hexagon") for each in layout.columns)
    check_target(path, option, EXTENSIONS if has_places else WITHOUT_PLACES)


@dataclass(frozen=True, slots=True)
class Written:
    """Options of the files that tables are written to."""

    style: CsvStyle = PLAIN  # of CSV
    # whether CSV, Excel and GeoJSON have every field and the record itself, in place of the short table
    whole: bool = False
    place: Place | None = None  # names the places of cells, for the short table; None: nobody does


def files_of(path: Path, tables: Sequence[Table]) -> list[Path]:
    """Return the names of the files of some tables."""
    others = tables[1:] if path.suffix.lower() in APART else ()
    return [path, *(path.with_suffix(f".{each.name}{path.suffix}") for each in others)]


class FilesOf:
    """Records of one or several tables.

    JSON lines and Parquet have all of them in one file. Of the other formats each table has its own: FILE.csv is that
    of the first, FILE.answers.csv that of answers, from its first record on.
    """

    def __init__(
        self,
        path: Path,
        tables: Sequence[Table],
        written: Written,
        opened: Callable[[Path, Layout, str, CsvStyle], AbstractContextManager[RecordFile]] = open_file,
        option: str = "-o",
    ) -> None:
        """Args: `opened`, `open_file` or `open_growing_file`. Raises HatcastError if a file exists already."""
        self._opened, self._option, self._style = opened, option, written.style
        self._stack = ExitStack()
        self._files: dict[Path, RecordFile] = {}
        self.rows: Final = dict[Path, int]()
        self.left_out = 0
        names = files_of(path, tables)
        if path.suffix.lower() in APART:
            made = tables if written.whole else [short(each, written.place) for each in tables]
            self._layouts: dict[Path, Layout] = dict(zip(names, made, strict=True))
        else:
            self._layouts = {path: layout_of(tables)}
        for name, layout in self._layouts.items():
            _check(name, layout, option)

    def __enter__(self) -> Self:
        self._open(next(iter(self._layouts)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def write(self, record: bytes) -> bool:
        """Write a record; return False if it is of none of the tables. Raises HatcastError."""
        for name, layout in self._layouts.items():
            if name not in self._files and layout.values(record) is None:
                continue
            if self._open(name).write(record):
                self.rows[name] += 1
                return True
        self.left_out += 1
        return False

    def _open(self, name: Path) -> RecordFile:
        if name not in self._files:
            opened = self._opened(name, self._layouts[name], self._option, self._style)
            self._files[name] = self._stack.enter_context(opened)
            self.rows[name] = 0
        return self._files[name]


class WriteError(HatcastError):
    """The file cannot be written: its disk is full, for example."""


@contextmanager
def _write_errors(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise WriteError(f"{option}: {path} exists already; name another file, or remove it") from None
    except OSError as error:
        raise WriteError(
            f"{option}: {path} cannot be written ({error.strerror or type(error).__name__}): make room, or name"
            " another file"
        ) from None


class _Checked(RecordFile):
    """A file of records whose errors name it."""

    def __init__(self, path: Path, layout: Layout, raw: Sink, option: str, style: CsvStyle) -> None:
        self._path, self._option = path, option
        with _write_errors(path, option):
            self._file = FORMATS[path.suffix.lower()](raw, layout, style)

    def write(self, record: bytes) -> bool:
        with _write_errors(self._path, self._option):
            return self._file.write(record)

    def finish(self) -> None:
        with _write_errors(self._path, self._option):
            self._file.finish()

    def abandon(self) -> None:
        self._file.abandon()


class _WholeLines:
    """Sink that a reader never finds with half a line, unless the machine fails."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw

    def write(self, data: bytes) -> None:
        """Write all of some lines, or none of them. Raises OSError."""
        start, remaining = self._raw.tell(), memoryview(data)
        try:
            while remaining:
                remaining = remaining[self._raw.write(remaining) or 0 :]
        except OSError:
            with suppress(OSError):
                self._raw.truncate(start)
            raise


def _name(part: Path, path: Path, option: str) -> None:
    """Give a complete file its name, unless another file has it by now."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # the file system has no hard links
        check_target(path, option, [path.suffix.lower()])
        part.replace(path)
