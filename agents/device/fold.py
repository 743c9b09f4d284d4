"""A device's mean in each HAT, by the operator's fold.    [docs/specification/fold.md, rules 1 to 13]"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import attrgetter
from typing import Final

from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.fold.reading_fold import ReadingFold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid import HybridParameters
from hatcast.stream.policy.policy import HybridKeys, Policy
from hatcast.stream.readings.reading import Outcome, Reading
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from hatcast.stream.units import nano_ceil

LATENESS_MIN_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class OwnHat:
    """A device's readings in one HAT. Private: the mean is perturbed once; docs/device.md lists the stored data."""

    vehicle: str  # canonical id
    slot: Slot
    cell: int  # H3 index
    count: int  # number of readings
    total: int  # their sum, milli-units, of values clipped to [0, U]

    @property
    def mean(self) -> Fraction:
        """The mean, milli-units."""
        return Fraction(self.total, self.count)


class Rules:
    """A policy's parameters for a device."""

    def __init__(self, policy: Policy, most_hats: int | None) -> None:
        """Args: `most_hats`, the device's choice. Raises HatcastError if the policy does not take reports."""
        keys = policy.method
        if not (isinstance(keys, HybridKeys) and keys.takes_reports):
            raise HatcastError(
                f"policy {policy.name!r} takes no reports: its estimator is {policy.estimator}; choose a hybrid one"
                " that reads reports, such as pwh (docs/hybrid.md)"
            )
        if policy.lateness_ms < LATENESS_MIN_MS:
            raise SettingError(
                "policy.lateness", "is too short for reports, which are sent after a slot's end", 'use "5m"'
            )
        self.policy = policy
        self.calendar = Calendar(policy)
        self.parameters = HybridParameters.of(policy)  # noise parameters
        self.cost_nano = nano_ceil(keys.local_epsilon)  # charge of one report, in 1e-9 epsilon
        self.limit_nano = policy.daily_limit_nano  # daily limit of the charges, in 1e-9 epsilon
        fits = self.limit_nano // self.cost_nano
        # most reports a day: the least of the policy's cap, what the limit allows, and the device's choice
        self.most_hats = min(policy.max_hats_per_day, fits, fits if most_hats is None else most_hats)
        # Half of the lateness is for late readings, the other half for the delivery of the report.
        self.own_policy = replace(policy, lateness_ms=policy.lateness_ms // 2, max_hats_per_day=self.most_hats)


class _PlainIds(Pseudonyms):
    """Vehicle ids without pseudonyms: a device's data is its own and never leaves it."""

    def of(self, vehicle: str, date: str | None) -> bytes:
        return vehicle.encode()


class OwnMeans:
    """Open HATs of one device, or of a fleet whose vehicles are folded separately."""

    def __init__(self, rules: Rules) -> None:
        users = FoldUsers(_PlainIds(bytes(KEY_BYTES)))
        self._fold = ReadingFold[Reading](rules.own_policy, rules.calendar, users, lambda reading: reading, None)

    def add(self, now_ms: int, arrival_ms: int, reading: Reading) -> None:
        """Fold a reading with its arrival time (ms UTC). A reading that arrived far ahead of `now_ms` is rejected."""
        self._fold.apply(now_ms, (arrival_ms,), (reading,))

    @property
    def due_ms(self) -> int | None:
        """Time (ms UTC) at which the next slot with readings is due; None if none is open."""
        return min((slot.closes_ms for slot in self._fold.slots.values() if slot.hats), default=None)

    @property
    def outcomes(self) -> dict[str, int]:
        """Readings by outcome, without zeros."""
        return {outcome: readings for outcome, readings in self._fold.outcomes.items() if readings}

    def close(self, now_ms: int, watermark_ms: int) -> Iterator[OwnHat]:
        """Yield the HATs of all slots that are final at a watermark (ms UTC), in each device's order of entry.

        They are deleted after the last one is yielded.
        """
        fold = self._fold
        fold.apply(now_ms, (watermark_ms,), (None,))
        fold.outcomes[Outcome.HEARTBEAT.value] = 0  # this device's heartbeat, not the source's
        for slot in sorted(fold.slots.values(), key=attrgetter("closes_ms")):
            if slot.closes_ms > watermark_ms:
                break
            for cell, hat in slot.hats.items():
                for vehicle, sums in hat.users.items():
                    yield OwnHat(vehicle.decode(), slot.slot, cell, sums.count, sums.total)
        fold.take_changed()
        for period in fold.periods.values():
            period.over = fold.is_over(period.name)
        fold.drop_closed()
