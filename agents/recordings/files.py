"""Open plain, compressed or Parquet files and pipes as one recording in arrival order."""

import hashlib
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from hatcast.agents.errors.causes import require
from hatcast.agents.recordings.containers import head_of, plain, readable, recoded, unreadable
from hatcast.agents.recordings.parquet import DIGEST_BYTES, parquet_digest, parquet_names, parquet_records
from hatcast.stream.errors import RecordingError, as_option
from hatcast.stream.readings.formats import (
    CSV,
    FORMAT_NAMES,
    Columns,
    Format,
    FormatChoice,
    Recorded,
    format_of,
    format_of_table,
)
from hatcast.stream.readings.magic import container_of
from hatcast.stream.readings.recording import Recording, reason_of

_DIGESTED_BYTES: Final = 1 << 20  # at once
_BEGINNING_BYTES: Final = 1 << 12  # more than a header, which files of several agencies may share
_LAYOUT: Final = b" \t\r\n\xef\xbb\xbf"  # of a text: programs that save it again change line ends, blanks and the mark

_Sources = Sequence[tuple[str, Callable[[], BinaryIO]]]  # name of each file, and a function that opens it at its start

_FORMAT: Final = as_option("format", "NAME")
_SHOWING_BYTES: Final = 1 << 16  # more than a header or a record has


def recognised(
    paths: Sequence[str | Path], columns: Columns | None = None, also: Sequence[Format] = ()
) -> FormatChoice:
    """Return the format of recordings. Their contents show it, not their file names.

    columns   named ones, by which tables are read
    also      further formats
    Raises RecordingError: a file cannot be read or is a pipe, or two of them have different formats.
    """
    read = [(path, _recognised(Path(path), columns, also)) for path in paths]
    first, *others = [(path, choice) for path, choice in read if choice is not None] or [
        (paths[0], FormatChoice(CSV, columns))
    ]
    for path, choice in others:
        if choice != first[1]:
            both = f"is read with {shlex.join(choice.words)}, and {first[0]} with {shlex.join(first[1].words)}"
            raise RecordingError(str(path), both, f"read them in several runs, or name one with {_FORMAT}")
    return first[1]


def _recognised(path: Path, columns: Columns | None, also: Sequence[Format]) -> FormatChoice | None:
    """Return the format of a file; None if it is empty, which a file of any format may be."""
    name = str(path)
    with readable(name):
        is_read_once = path.is_fifo() or path.is_char_device()
    if is_read_once:
        raise RecordingError(name, "can be read only once", f"name its format with {_FORMAT}")
    with ExitStack() as stack, readable(name), _source(path, stack)() as file:
        if container_of(head_of(file)) == "Parquet":
            return format_of_table(parquet_names(file, name), columns)
        head = plain(file, name).read(_SHOWING_BYTES)
        return format_of(head, name, columns, also) if head.strip() else None


@contextmanager
def open_recording(paths: Sequence[str | Path], feed: Format) -> Iterator[Recording]:
    """Open files of one format as one recording: concatenated in the given order, read in arrival order.

    A pipe is copied to a temporary file first, because a recording is read more than once.
    Raises RecordingError: a file is missing, a directory, unreadable, damaged, or of another format.
    """
    with ExitStack() as stack:
        sources = _sources(paths, stack)
        yield Recording(
            lambda: _all_records(sources, feed),
            ", ".join(map(str, paths)),
            derivation=feed.derivation,
            why=reason_of(feed) if feed.name in FORMAT_NAMES else None,
            contents=lambda: [(name, digest) for name, reopen in sources for digest in _digests(name, reopen)],
        )


@contextmanager
def open_records(paths: Sequence[str | Path], feed: Format) -> Iterator[Callable[[], Iterator[Recorded]]]:
    """Open files of one format, and yield a function that reads their records from the start, in file order."""
    with ExitStack() as stack:
        sources = _sources(paths, stack)
        yield lambda: _all_records(sources, feed)


def _sources(paths: Sequence[str | Path], stack: ExitStack) -> _Sources:
    return [(str(path), _source(Path(path), stack)) for path in paths]


def _all_records(sources: _Sources, feed: Format) -> Iterator[Recorded]:
    for name, reopen in sources:
        yield from _records(name, reopen, feed)


def _source(path: Path, stack: ExitStack) -> Callable[[], BinaryIO]:
    """Return a function that opens the file at its start.

    Raises HatcastError before anything is read if it is Parquet, which cannot be read here.
    """
    source = path
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise RecordingError(str(path), "is a directory", "name the files in it")
        if not stat.S_ISREG(kind):
            source = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hatcast-"))) / "recording"
            with path.open("rb") as pipe, source.open("wb") as file:
                shutil.copyfileobj(pipe, file)
        with source.open("rb") as opened:
            if container_of(head_of(opened)) == "Parquet":
                require("pyarrow", str(path))
    except FileNotFoundError:
        raise RecordingError(str(path), "is missing", "check the path") from None
    except OSError as error:
        raise unreadable(str(path), error) from None
    return lambda: source.open("rb")


def _records(name: str, reopen: Callable[[], BinaryIO], feed: Format) -> Iterator[Recorded]:
    with readable(name), reopen() as file:
        if container_of(head_of(file)) == "Parquet":
            yield from parquet_records(file, name, feed)
            return
        text = plain(file, name)
        yield from feed.records(text if feed.encoding is None else recoded(text, feed.encoding, name), name)


def _digests(name: str, reopen: Callable[[], BinaryIO]) -> list[bytes]:
    """Return digests of a file's content, decompressed, without its layout: of all, and of its beginning.

    A file that has grown begins as before. Of Parquet the one of its rows; none if the file is empty.
    """
    with readable(name), reopen() as file:
        if container_of(head_of(file)) == "Parquet":
            rows = parquet_digest(file, name)
            return [] if rows is None else [rows]
        content, beginning, whole = plain(file, name), b"", hashlib.blake2b(digest_size=DIGEST_BYTES)
        while part := content.read(_DIGESTED_BYTES):
            text = part.translate(None, _LAYOUT)
            beginning += text[: _BEGINNING_BYTES - len(beginning)]
            whole.update(text)
    if len(beginning) < _BEGINNING_BYTES:
        return [whole.digest()] if beginning else []
    return [whole.digest(), hashlib.blake2b(beginning, digest_size=DIGEST_BYTES).digest()]
