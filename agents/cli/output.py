"""Bytes to a descriptor, past Python's buffer: what fails is told at once and is not tried again at exit."""

import os


def write_all(descriptor: int, data: bytes) -> None:
    """All of `data`: a pipe takes what fits. Raises OSError, BrokenPipeError among them."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
