"""Recordings on disk: plain, gzip or Parquet files, and pipes, as one recording in arrival order."""

import gzip
import io
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from hatcast.agents.recordings.parquet import PARQUET_MAGIC, is_parquet, parquet_records
from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Feed, Recorded
from hatcast.stream.readings.recording import Recording

_GZIP_MAGIC: Final = b"\x1f\x8b"


@contextmanager
def open_recording(paths: Sequence[str | Path], feed: Feed) -> Iterator[Recording]:
    """Files of one format as one recording: concatenated in the order given, taken in arrival order.

    A pipe is copied to a temporary file first, since a recording is read more than once.
    Raises RecordingError: a file that is missing, a directory, unreadable, broken gzip, or of another format.
    """
    with open_records(paths, feed) as read:
        yield Recording(read, ", ".join(map(str, paths)))


@contextmanager
def open_records(paths: Sequence[str | Path], feed: Feed) -> Iterator[Callable[[], Iterator[Recorded]]]:
    """The same files in the order in which they stand. Yields a function that reads them from the start."""
    with ExitStack() as held:
        sources = [(str(path), _source(Path(path), held)) for path in paths]

        def read() -> Iterator[Recorded]:
            for name, reopen in sources:
                yield from _records(name, reopen, feed)

        yield read


def _source(path: Path, held: ExitStack) -> Callable[[], BinaryIO]:
    """A function that opens the file from its start."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise RecordingError(str(path), "is a directory", "name the files in it")
        if stat.S_ISREG(kind):
            return lambda: path.open("rb")
        copy = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="hatcast-"))) / "recording"
        with path.open("rb") as pipe, copy.open("wb") as file:
            shutil.copyfileobj(pipe, file)
    except FileNotFoundError:
        raise RecordingError(str(path), "is missing", "check the path") from None
    except OSError as error:
        raise _unreadable(str(path), error) from None
    return lambda: copy.open("rb")


def _records(name: str, reopen: Callable[[], BinaryIO], feed: Feed) -> Iterator[Recorded]:
    """The records of one file, opened anew."""
    try:
        with reopen() as file:
            yield from parquet_records(file, name, feed) if is_parquet(file) else feed.records(_plain(file, name), name)
    except EOFError:
        raise RecordingError(name, "is cut off: its gzip stream has no end", "fetch it again") from None
    except (gzip.BadGzipFile, zlib.error):
        raise RecordingError(name, "is no valid gzip file", "fetch it again") from None
    except OSError as error:
        raise _unreadable(name, error) from None


def _plain(file: BinaryIO, name: str) -> BinaryIO:
    """The file's bytes, unpacked if its first two bytes are those of gzip."""
    magic = file.read(len(_GZIP_MAGIC))
    file.seek(0)
    if magic != _GZIP_MAGIC:
        return file
    # Buffered, because GzipFile runs Python code for each line it gives.
    unpacked = io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 18)
    if unpacked.peek().startswith(PARQUET_MAGIC):
        raise RecordingError(name, "is Parquet inside gzip, which is read from its end", "unpack it first")
    return unpacked


def _unreadable(name: str, error: OSError) -> RecordingError:
    return RecordingError(name, f"cannot be read ({error.strerror or error})", "check the file and its permissions")
