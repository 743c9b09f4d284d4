"""Random choices of neighbours and sides. They protect nothing: releases draw from stream/mechanisms/system.py."""

import numpy as np
from numpy.typing import NDArray


class SeededNumbers:
    """Random numbers, with a seed or without: see `hatcast.lab.audit.families.RandomNumbers`."""

    def __init__(self, seed: int | None) -> None:
        self._generator = np.random.default_rng(seed)  # simulation: never noise of a release

    def integers(self, low: int, high: int) -> int:
        """Return an integer in [low, high)."""
        return int(self._generator.integers(low, high))

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return float(self._generator.random())

    def coins(self, number: int) -> NDArray[np.bool_]:
        """Return [number] flips of a fair coin."""
        return np.asarray(self._generator.integers(0, 2, number), np.bool_)
