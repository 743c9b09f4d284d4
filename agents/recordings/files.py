"""Open plain, compressed or Parquet files and pipes as one recording in arrival order."""

import hashlib
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from hatcast.agents.errors.causes import require
from hatcast.agents.recordings.containers import head_of, plain, readable, recoded, unreadable
from hatcast.agents.recordings.parquet import DIGEST_BYTES, parquet_digest, parquet_records
from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import FORMAT_NAMES, PARQUET, Format, Recorded, jsonl
from hatcast.stream.readings.magic import container_of
from hatcast.stream.readings.recording import Recording, reason_of

_DIGESTED_BYTES: Final = 1 << 20  # at once
_BEGINNING_BYTES: Final = 1 << 12  # more than a header, which files of several agencies may share
_LAYOUT: Final = b" \t\r\n\xef\xbb\xbf"  # of a text: programs that save it again change line ends, blanks and the mark

_Sources = Sequence[tuple[str, Callable[[], BinaryIO]]]
"""Name of each file, and a function that opens it at its start"""


_PACKED: Final = frozenset((".gz", ".bz2", ".xz", ".zst", ".zip"))
_EXTENSIONS: Final = {".csv": "csv", ".tsv": "csv", ".parquet": PARQUET, ".jsonl": jsonl.NAME, ".ndjson": jsonl.NAME}


def format_by_name(path: Path) -> str | None:
    """Return the format that a file's name says; None: it says none."""
    name = Path(path.name.lower())
    return _EXTENSIONS.get(Path(name.stem).suffix if name.suffix in _PACKED else name.suffix)


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
    """Open one file and yield its records."""
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
