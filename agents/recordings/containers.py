"""Unpack compressed recordings: gzip, bzip2, xz, zstd and zip, recognised by their first bytes, not their names."""

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from hatcast.agents.errors.causes import require
from hatcast.stream.errors import RecordingError, as_option
from hatcast.stream.readings.magic import HEAD_BYTES, container_of, foreign

_BUFFER: Final = 1 << 18
_ENCRYPTED: Final = 1  # bit of a zip entry's flags
_WORKBOOK: Final = frozenset(("[Content_Types].xml", "content.xml"))
_DAMAGED: Final = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)
# the last is zipfile's error for a compression that it does not know


def head_of(file: BinaryIO) -> bytes:
    """Return the first bytes of a file, whose position is at the start afterwards."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    return head


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn an error about a file's container, or of the disk, into a RecordingError."""
    try:
        yield
    except EOFError:
        raise RecordingError(name, "is cut off: its compressed stream has no end", "fetch it again") from None
    except _DAMAGED:
        raise RecordingError(name, "is not a valid compressed file", "fetch it again") from None
    except OSError as error:
        if error.errno is None:  # of bz2 and pyarrow, about what they read
            raise RecordingError(name, "is not a valid compressed file", "fetch it again") from None
        raise unreadable(name, error) from None


def unreadable(name: str, error: OSError) -> RecordingError:
    """Return the error for a file that the system does not let us read."""
    return RecordingError(
        name, f"cannot be read ({error.strerror or type(error).__name__})", "check the file and its permissions"
    )


def plain(file: BinaryIO, name: str) -> BinaryIO:
    """Return the content of a file, unpacked. Raises RecordingError if its first bytes are not a recording's."""
    head = head_of(file)
    container = container_of(head) or ""
    opened = _OPENERS.get(container)
    if opened is None:
        _check(head, name)
        return file
    # Buffered, because these readers run Python code for each line.
    unpacked = io.BufferedReader(opened(file, name), _BUFFER)
    inner = unpacked.peek()[:HEAD_BYTES]
    if (within := container_of(inner)) is not None:
        raise RecordingError(name, f"is {within} inside {container}", "unpack it first")
    _check(inner, name)
    return unpacked


def recoded(stream: BinaryIO, encoding: str, name: str) -> BinaryIO:
    """Return a text of another encoding in UTF-8. Reading it raises RecordingError if it cannot have that encoding."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")

    def chunks() -> Iterator[bytes]:
        try:
            while part := stream.read(_BUFFER):
                yield decoder.decode(part).encode(errors="replace")
            yield decoder.decode(b"", final=True).encode(errors="replace")
        except UnicodeError:  # such as UTF-16 without the mark that says which of the two it is
            raise RecordingError(
                name, f"is not {encoding}", "name another with `--encoding`, such as utf-16-le"
            ) from None

    return io.BufferedReader(Chunks(chunks()), _BUFFER)


def _check(head: bytes, name: str) -> None:
    found = foreign(head)
    if found is not None:
        raise RecordingError(name, f"is {found[0]}", found[1])


def _zip_member(file: BinaryIO, name: str) -> Any:
    archive = zipfile.ZipFile(file)
    entries = [each for each in archive.infolist() if not each.is_dir()]
    if any(each.filename in _WORKBOOK for each in entries):
        raise RecordingError(name, "is a workbook of Excel or LibreOffice", "export it as CSV")
    # Not what an operating system adds: __MACOSX/a/._b.csv, a/.DS_Store.
    entries = [each for each in entries if not each.filename.rpartition("/")[2].startswith(".")]
    if any(each.filename.rpartition("/")[2] == "stop_times.txt" for each in entries):
        options = " or ".join(as_option(each, "FILE") for each in ("gtfs", "timetable"))
        raise RecordingError(name, "is a GTFS timetable", f"give it as {options}, or name a recording")
    if len(entries) != 1:
        raise RecordingError(name, f"is a zip file of {len(entries)} files", "unpack it, and name them")
    if entries[0].flag_bits & _ENCRYPTED:
        raise RecordingError(name, "is encrypted", "unpack it")
    return archive.open(entries[0])


def _zstd(file: BinaryIO, name: str) -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdFile(file)
    require("pyarrow", name)
    import pyarrow as pa

    unpacked = pa.CompressedInputStream(file, "zstd")
    return Chunks(iter(lambda: bytes(unpacked.read(_BUFFER)), b""))


class Chunks(io.RawIOBase):
    """A stream of the concatenated chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]  # typeshed: any writable buffer
        """Read into a buffer; return the number of bytes, 0 at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


_OPENERS: Final[Mapping[str, Callable[[BinaryIO, str], Any]]] = {
    "gzip": lambda file, _: gzip.GzipFile(fileobj=file),
    "bzip2": lambda file, _: bz2.BZ2File(file),
    "xz": lambda file, _: lzma.LZMAFile(file),  # noqa: SIM115 - the reader of the recording closes its file
    "zstd": _zstd,
    "zip": _zip_member,
}
