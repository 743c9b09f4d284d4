"""Stopwatch of a contender: wall and CPU time from its first record to its last. No imports of hatcast."""

import time
from typing import Any

from bench.process import cpu_s, peak_mb


class Stopwatch:
    """Stopwatch from the first record to the end. Later starts change nothing."""

    def __init__(self) -> None:
        self._from: tuple[float, float] | None = None
        self._to: tuple[float, float] | None = None

    def start(self) -> None:
        """Start at the first record."""
        if self._from is None:
            self._from = (time.monotonic(), cpu_s())

    def stop(self) -> None:
        """Stop when all records are folded."""
        self._to = (time.monotonic(), cpu_s())

    def result(self) -> dict[str, Any]:
        """Return wall seconds, CPU seconds and peak memory of the process."""
        if self._from is None or self._to is None:
            raise RuntimeError("the stopwatch did not run")
        return {"seconds": self._to[0] - self._from[0], "cpu_s": self._to[1] - self._from[1], "peak_mb": peak_mb()}
