"""Standard streams of a command: a failed write to standard output is one line on standard error and exit code 1.

Python's own standard output raises an OSError like that of any other file, and tries the write again at exit.
"""

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# /dev/null as the file of a closed stream. Open for reading, it fails each write, as the closed stream would.
_IF_CLOSED: Final = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class OutputError(HatcastError):
    """Standard output cannot be written: its disk is full, or it is closed."""


class ReaderLeft(OutputError):
    """The reader of standard output closed the pipe, as in `hatcast tail | head`."""


class _StandardOutput(io.FileIO):
    """Standard output. It raises OutputError once, and discards everything that is written afterwards."""

    def __init__(self) -> None:
        super().__init__(1, "wb", closefd=False)
        self._failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some bytes and return their number. Raises OutputError."""
        if self._failed:  # the error is reported already: the flush at exit must not report it again
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            raise _output_error(error) from None


def _output_error(error: OSError) -> OutputError:
    if isinstance(error, BrokenPipeError):
        return ReaderLeft("the reader of standard output closed it")
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror
    return OutputError(f"standard output cannot be written ({reason}): the output is not complete")


def open_streams() -> None:
    """Open /dev/null for each closed standard stream, and let standard output raise OutputError instead of OSError.

    Otherwise the first file that a command opens, such as a ledger, has the descriptor of the closed stream.
    """
    for descriptor, flags in _IF_CLOSED.items():
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free descriptor: this one
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as above
    if sys.stdout is None or sys.stdout is sys.__stdout__:  # else a test captures it
        before = sys.stdout
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_StandardOutput()),
            encoding="utf-8" if before is None else before.encoding,
            errors="strict" if before is None else before.errors,
            line_buffering=before is not None and before.isatty(),
        )


def check_reader() -> None:
    """Raise ReaderLeft if the reader of standard output has closed it. For commands that wait for their next line."""
    with suppress(io.UnsupportedOperation):  # a test captures it
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            raise ReaderLeft("the reader of standard output closed it")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor, in several writes if necessary. Raises OSError.

    Unbuffered: an error is raised at once, and not again when Python exits.
    """
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def write_output(data: bytes) -> None:
    """Write all of `data` to standard output at once. Raises OutputError."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
