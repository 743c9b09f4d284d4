"""Horizons of a policy with `[policy.continual]`, and the place of a slot in its horizon. Pure.

A horizon is named by its first local date. Its n slots are numbered by the local clock: the day of the horizon times
the slots of a day, plus the position of the slot's local start among the day's. So n is the same for every horizon: the
number of an hour that the clock skips is not used, and a repeated hour is one slot.
"""

from datetime import date

from hatcast.stream.policy.policy import ContinualKeys, Policy
from hatcast.stream.policy.query import Period
from hatcast.stream.units import HOUR_MS, MINUTE_MS


def horizon_of(keys: ContinualKeys, day: str) -> Period:
    """Return the horizon that contains a local date. Raises ValueError for a date outside of all horizons."""
    horizon = keys.horizon_of(day)
    if horizon is None:
        raise ValueError(f"{day} is not in a horizon of the policy")
    return horizon


def horizon_name(keys: ContinualKeys, day: str) -> str:
    """Return the name of the horizon that contains a local date: its first date. Raises ValueError as `horizon_of`."""
    return horizon_of(keys, day).first.isoformat()


class SlotIndex:
    """Number of each slot of a policy in its horizon, 0 to n - 1. Raises ValueError for a policy without horizons."""

    def __init__(self, policy: Policy) -> None:
        self._keys = policy.keys_of(ContinualKeys)
        self._minutes = policy.slot_length_ms // MINUTE_MS
        self._first = -(-policy.hours[0] * HOUR_MS // policy.slot_length_ms)  # of the slots of a whole day
        self._slots_of_day = self._keys.slots // self._keys.horizon_days

    def of(self, day: str, name: str) -> int:
        """Return the number of the slot with this local date and start. Raises ValueError if it is not released."""
        hour, _, minute = name.partition(":")
        step, rest = divmod(int(hour) * 60 + int(minute), self._minutes)
        place = step - self._first
        if rest or not 0 <= place < self._slots_of_day:
            raise ValueError(f"{day}/{name} is not a slot within the policy's hours")
        past = date.fromisoformat(day) - horizon_of(self._keys, day).first
        return past.days * self._slots_of_day + place
