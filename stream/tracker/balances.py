"""Individual accounting: balance of each bus of a day.    [docs/specification/tracker.md, section 2]"""

from typing import Final

import numpy as np

from hatcast.stream.tracker.contributions import Integers

_INITIAL: Final = 64


class Balances:
    """Balances of the buses of one date, in 1e-9 epsilon. Every bus begins with the daily limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._spent = np.zeros(_INITIAL, np.int64)

    def left(self, buses: Integers, reserve: int = 0) -> Integers:
        """Return what each of these buses has left beyond a reserve, 0 or more."""
        self._grow(buses)
        return np.maximum(self.limit - reserve - self._spent[buses], 0)

    def charge(self, buses: Integers, charges: Integers) -> None:
        """Charge these buses, each once. Raises ValueError, and charges none, if one has less left."""
        if bool(np.any(charges > self.left(buses))):
            raise ValueError("a charge is larger than what the bus has left")
        self._spent[buses] += charges

    def spent(self, number: int) -> Integers:
        """Return what each of the first `number` buses has spent."""
        self._grow(np.array([max(number - 1, 0)]))
        return self._spent[:number].copy()

    def _grow(self, buses: Integers) -> None:
        needed = int(buses.max(initial=-1)) + 1
        if needed > len(self._spent):
            grown = np.zeros(max(needed, 2 * len(self._spent)), np.int64)
            grown[: len(self._spent)] = self._spent
            self._spent = grown
