"""The fold of readings with several values.    [docs/specification/fold.md, Several values]

It is the fold of speeds; a reading that counts there adds its other values besides. So the fold of speeds does not pay
for them.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.open_slots import Contribution, OpenSlot, ValuesContribution, Vehicle
from hatcast.stream.fold.partition_fold import CACHE_SIZE
from hatcast.stream.fold.reading_fold import ReadingFold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy, ValuesKeys
from hatcast.stream.policy.value_keys import Value
from hatcast.stream.readings.caches import cache
from hatcast.stream.readings.reading import Outcome, Reading, ValuesReading, in_milli, number

V = TypeVar("V")

_MISSING: Final = -2  # no value: the record lacks one
_ACCEPTED: Final = Outcome.ACCEPTED.value


class ValuesFold(ReadingFold[V], Generic[V]):
    """Fold of readings whose policy releases several values. See ReadingFold."""

    def __init__(
        self,
        policy: Policy,
        calendar: Calendar,
        users: FoldUsers,
        decode: Callable[[V], Reading | None],
        belongs: Callable[[bytes], bool] | None,
    ) -> None:
        """Args: as of ReadingFold; `decode` returns a `ValuesReading` with each value of the policy but the speed."""
        super().__init__(policy, calendar, users, self._read, belongs)
        self._decode_values = decode
        self._others = policy.released_values[1:]
        self._clipped: list[dict[float | str, int]] = [{} for _ in self._others]
        self._milli: list[int] = []

    def _read(self, value: V) -> Reading | None:
        """Decode a record and note its other values, clipped and counted from their lower ends, in milli-units."""
        reading = self._decode_values(value)
        if not isinstance(reading, ValuesReading):
            return None
        self._milli = milli = []
        for value_keys, clipped in zip(self._others, self._clipped, strict=True):
            sent = reading.others[value_keys.name]
            try:
                milli.append(clipped[sent])
            except KeyError:
                milli.append(cache(clipped, sent, _offset(sent, value_keys), CACHE_SIZE))
        least = min(milli)
        if least == _MISSING:
            return None
        if least < 0 and self.policy.reject_above is not None:
            # Rule 5 reads all values: a value that is not a number makes the reading's speed not a number.
            return Reading(reading.vehicle, reading.time, reading.lat, reading.lon, "nan", reading.unit)
        return reading

    def _enter(self, vehicle: Vehicle, slot: OpenSlot, cell: int, step: int, milli: int) -> str:
        outcome = super()._enter(vehicle, slot, cell, step, milli)
        if outcome is _ACCEPTED and vehicle.known is not None:
            others = vehicle.known.others
            accepted = [max(offset, 0) for offset in self._milli]
            for at, offset in enumerate(accepted):
                others[at] += offset
            if self._keeps_rows:
                self._accepted[-1] = (*self._accepted[-1], *accepted)
        return outcome

    def _new_contribution(self, ordinal: int) -> Contribution:
        return ValuesContribution(0, 0, 0, 0, ordinal, [0] * len(self._others))


def reading_fold(
    policy: Policy,
    calendar: Calendar,
    users: FoldUsers,
    decode: Callable[[V], Reading | None],
    belongs: Callable[[bytes], bool] | None,
) -> ReadingFold[V]:
    """Return the empty fold of a policy's readings. Arguments as of ReadingFold and ValuesFold."""
    kind = ValuesFold if isinstance(policy.method, ValuesKeys) else ReadingFold
    return kind(policy, calendar, users, decode, belongs)


def _offset(sent: float | str, value: Value) -> int:
    """Return a number clipped to its range, minus the lower end, in milli-units.

    -1 if it is not finite, `_MISSING` if it says that there is no value.
    """
    as_number = number(sent)
    if as_number - as_number != 0.0:
        return -1
    if value.missing and in_milli(as_number) in value.missing:
        return _MISSING
    return min(max(in_milli(as_number), value.lower), value.upper) - value.lower
