"""Readings that successive polls repeat: a vehicle whose time has not changed."""

from collections import OrderedDict
from typing import Final

KEPT_MS: Final = 3_600_000  # since the last poll that had the vehicle
VEHICLES_MAX: Final = 300_000  # as many as the vehicles of the largest poll
_PURGE_MS: Final = 60_000


class Repetitions:
    """The time of each vehicle's last reading.

    Whether a reading is repeated depends on readings of its own vehicle alone, as presence requires that is hidden
    (docs/proofs.md): a vehicle is dropped an hour after its own last poll, never because others need its room.
    """

    def __init__(self, vehicles_max: int = VEHICLES_MAX) -> None:
        self._vehicles_max = vehicles_max
        self._last: OrderedDict[bytes, tuple[str | int | float, int]] = OrderedDict()  # time, arrival
        self._next_purge_ms = 0

    def is_repeated(self, vehicle: bytes, time: str | int | float, arrived_ms: int) -> bool:
        """Return whether the vehicle's last reading, at most an hour ago, has the same time; store this one."""
        if arrived_ms >= self._next_purge_ms:
            self._purge(arrived_ms)
        last = self._last.get(vehicle)
        if last is not None or len(self._last) < self._vehicles_max:
            self._last[vehicle] = time, arrived_ms
            self._last.move_to_end(vehicle)
        return last is not None and last[0] == time and arrived_ms - last[1] <= KEPT_MS

    def _purge(self, arrived_ms: int) -> None:
        """Drop the vehicles whose next reading is none that is repeated, whatever it is."""
        last = self._last
        while last and arrived_ms - next(iter(last.values()))[1] > KEPT_MS:
            last.popitem(last=False)
        self._next_purge_ms = arrived_ms + _PURGE_MS
