"""Unbuffered writes to a file descriptor: an error is raised at once and not repeated when Python exits."""

import os


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, in several writes if necessary. Raises OSError, such as BrokenPipeError."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
