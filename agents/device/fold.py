"""What a device knows of itself: its mean in each HAT, by the operator's own fold.    [fold.md, rules 1 to 13]"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import attrgetter
from typing import Final

from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.fold.contributions import FoldOf
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.hybrid import HybridParameters
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.pseudonyms import KEY_BYTES, Pseudonyms
from hatcast.stream.readings.reading import Reading
from hatcast.stream.units import nano

LATENESS_MIN_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class OwnHat:
    """A device's own mean in one HAT. Private: it is drawn upon once, and then forgotten.

    vehicle  canonical id
    cell     H3 index
    mean     milli-units, of values each cut to [0, U]
    """

    vehicle: str
    slot: Slot
    cell: int
    mean: Fraction


class Rules:
    """What a policy asks of a device.

    parameters   of its noise
    cost_nano    what a report costs it, in 1e-9 epsilon
    limit_nano   what its day may cost
    most_hats    reports that it sends a day at most: the policy's cap, what fits into the limit, and its own choice
    """

    def __init__(self, policy: Policy, most_hats: int | None) -> None:
        """Args: `most_hats`, the device's own choice. Raises HatcastError where the policy takes no reports."""
        if policy.hybrid is None or not policy.hybrid.use.local:
            raise HatcastError(
                f"policy {policy.name!r} takes no reports: its estimator is {policy.estimator}, and devices need one of"
                " the hybrid model that reads them, such as pwh (docs/hybrid.md)"
            )
        if policy.lateness_ms < LATENESS_MIN_MS:
            raise SettingError(
                "policy.lateness", "is too short for reports, which are sent after a slot's end", 'use "5m"'
            )
        self.policy = policy
        self.calendar = Calendar(policy)
        self.parameters = HybridParameters.of(policy)
        self.cost_nano = nano(policy.hybrid.local_epsilon)
        self.limit_nano = policy.daily_limit_nano
        fits = self.limit_nano // self.cost_nano
        self.most_hats = min(policy.max_hats_per_day, fits, fits if most_hats is None else most_hats)
        # Half of the lateness is for readings that come late, the other half for the report's own way.
        self.own_policy = replace(policy, lateness_ms=policy.lateness_ms // 2, max_hats_per_day=self.most_hats)

    def closes_ms(self, slot: Slot) -> int:
        """The clock (ms UTC) from which the operator takes no more reports of a slot."""
        return closes_at(slot, self.policy)


class _Names(Pseudonyms):
    """Users by their own ids: what a device holds is about itself, and nobody else reads it."""

    def of(self, vehicle: str, date: str | None) -> bytes:
        return vehicle.encode()


def _itself(reading: Reading) -> Reading:
    return reading


class OwnMeans:
    """The open HATs of one device, or of a fleet: vehicles never meet in them."""

    def __init__(self, rules: Rules) -> None:
        self._fold = FoldOf[Reading](rules.own_policy, rules.calendar, _Names(bytes(KEY_BYTES)), _itself, None)

    def read(self, now_ms: int, arrival_ms: int, reading: Reading) -> None:
        """Count a reading that arrived then (ms UTC). `now_ms`: what arrived far ahead of it does not count."""
        self._fold.apply(now_ms, (arrival_ms,), (reading,))

    @property
    def due_ms(self) -> int | None:
        """When (ms UTC) the next slot with readings is to be reported; None: none is open."""
        return min((slot.closes_ms for slot in self._fold.slots.values() if slot.hats), default=None)

    @property
    def outcomes(self) -> dict[str, int]:
        """Readings by what became of them; only those that occur."""
        return {outcome: readings for outcome, readings in self._fold.outcomes.items() if readings}

    def close(self, now_ms: int, clock_ms: int) -> Iterator[OwnHat]:
        """The HATs of all slots that a time base (ms UTC) has closed, each device's in the order in which it came.

        They are forgotten when the last one was taken.
        """
        fold = self._fold
        fold.apply(now_ms, (clock_ms,), (None,))
        fold.outcomes["tick"] = 0  # ours, not the source's
        for slot in sorted(fold.slots.values(), key=attrgetter("closes_ms")):
            if slot.closes_ms > clock_ms:
                break
            for cell, hat in slot.hats.items():
                for vehicle, own in hat.users.items():
                    yield OwnHat(vehicle.decode(), slot.slot, cell, Fraction(own.total, own.count))
        fold.take_changed()
        for day in fold.days.values():
            day.over = fold.is_over(day.date)
        fold.forget_closed()
