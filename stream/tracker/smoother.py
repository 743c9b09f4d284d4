"""Estimates of every cell from the plain releases of a policy.    [docs/specification/tracker.md, section 5]

Post-processing of published records: nothing else is read, so it costs no epsilon. Equal records give equal bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Literal, Self

import h3.api.basic_int as h3
import msgspec
import numpy as np

from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records import RELEASE, EstimateRecord, NormalRecord, ReleaseRecord
from hatcast.stream.tracker.calibration import ReleaseCalibration
from hatcast.stream.tracker.contributions import Hat
from hatcast.stream.tracker.model import Covariance
from hatcast.stream.tracker.released import DEVIATIONS, hat_of, hour_of, noise_variance, observation_of
from hatcast.stream.tracker.setting import Variances
from hatcast.stream.tracker.smoother_state import CityModel, SmootherState
from hatcast.stream.tracker.track import Normal, Track, hat_estimate
from hatcast.stream.units import HOUR_MS

Stage = Literal["live", "settled", "predicted"]

_MILLI = 1000
_DIGITS = 2  # so that bytes do not depend on the last bits of floats


@dataclass(frozen=True, slots=True)
class ReleasedSlot:
    """All records of one slot, in any order; a record may be there twice."""

    date: str
    start_ms: int
    records: Sequence[ReleaseRecord]


@dataclass(frozen=True, slots=True)
class _Released:
    """A HAT of the day with a release. residual_z: None for a release without noise."""

    record: ReleaseRecord
    hat: Hat
    residual_z: float | None


@dataclass(frozen=True, slots=True)
class SmootherSetting:
    """Public parameters of a smoother, from the policy.

    upper_bound   in the policy's unit
    cells         that are listed, in order; none: only those with a record are estimated
    last_slot     returns the name of the last slot of a local date, None if it is not known
    """

    name: str
    policy_id: str
    upper_bound: float
    cells: Sequence[str]
    last_slot: Callable[[str], str | None]

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the setting of a policy."""
        calendar = Calendar(policy)

        def last_slot(date: str) -> str | None:
            return max(
                ((slot.start_ms, slot.name) for slot in calendar.slots_of(date) if slot.outside is None),
                default=(0, None),
            )[1]

        cells = sorted(h3.int_to_str(cell) for cell in policy.cells or ())
        return cls(policy.name, policy.policy_id, policy.upper_bound / _MILLI, cells, last_slot)


class Smoother:
    """Makes estimates from the releases of one policy, slot by slot.

    date       local date of the last slot; "" before the first
    start_ms   its start, ms UTC
    snapshot   the state at the beginning of `date`, from which another object continues
    """

    def __init__(self, setting: SmootherSetting, snapshot: SmootherState | None = None) -> None:
        """snapshot: of an object of the same policy; the next slot is the first of the snapshot's date or later."""
        self._setting = setting
        self._upper_bound = setting.upper_bound
        self._variances = Variances.of(self._upper_bound)
        self._covariance = Covariance(self._variances)
        self._calibration = ReleaseCalibration() if snapshot is None else ReleaseCalibration(snapshot.calibration)
        self._track = Track(self._upper_bound / 2, calibration=self._calibration)
        self._cells: dict[str, int] = {}
        self._model = CityModel(self._covariance, self._track.means, self._cells)
        self._day: list[_Released] = []
        self._settled = True
        self.date = ""
        self.start_ms: int | None = None
        if snapshot is not None:
            self.start_ms = snapshot.start_ms
            snapshot.restore(self._model)
        else:
            self._add_cells(setting.cells)
        self.snapshot = self._state("")

    def add(self, slot: ReleasedSlot) -> list[EstimateRecord]:
        """Take the records of a slot. Return the estimates to publish, in order.

        A slot must not start before the one before it. If a date is over, the first estimates are its settled ones.
        """
        made: list[EstimateRecord] = []
        if slot.date != self.date:
            made += self.settle()
            self._begin_day(slot.date)
        self._advance(slot.start_ms)
        records = {record.cell: record for record in slot.records}
        ordered = [records[cell] for cell in sorted(records)]
        self._add_cells([record.cell for record in ordered])
        made += self._estimates(ordered[0], self._learn(ordered))
        if self._is_last(ordered[0]):
            made += self.settle()
        return made

    def _learn(self, records: Sequence[ReleaseRecord]) -> dict[str, int]:
        """Update with the releases of a slot. Return their numbers in the day, by cell."""
        first = len(self._day)
        released = [record for record in records if record.status == "released"]
        hats = [hat_of(record, self._cells[record.cell], self._variances) for record in released]
        self._covariance.add_hats(hats)
        self._track.means.resize(self._covariance)
        for number, (record, hat) in enumerate(zip(released, hats, strict=True), first):
            self._day.append(_Released(record, hat, self._observe(record, hat, number)))
        return {record.cell: number for number, record in enumerate(released, first)}

    def _observe(self, record: ReleaseRecord, hat: Hat, number: int) -> float | None:
        """Update with a release. Return its innovation in standard deviations; None for a release without noise."""
        noise = noise_variance(record)
        if noise is None or record.raw is None:
            return None
        covariance, track = self._covariance, self._track
        expected = track.means.predict(covariance.row_of(hat.cell, hat.hour, hat.features), hat.cell)
        innovation = record.raw - expected
        observation = observation_of(record, hat, number, noise, self._variances)
        gain = covariance.observe(observation)
        track.means.update(observation, gain, innovation)
        track.calibration.add(innovation, gain.variance, noise)
        return innovation / float(np.sqrt(gain.variance))

    def _estimates(self, of_slot: ReleaseRecord, numbers: dict[str, int]) -> Iterator[EstimateRecord]:
        """Yield the estimates of all cells at the close of a slot. of_slot: any of its records."""
        for cell, number in sorted(self._cells.items()):
            if cell in numbers:
                yield self._estimate("live", self._day[numbers[cell]], numbers[cell])
            else:
                yield self._predicted(cell, number, of_slot)

    def settle(self) -> list[EstimateRecord]:
        """Return the estimates of the date's HATs again, unless they were returned before: the date is over."""
        if self._settled:
            return []
        self._settled = True
        return [self._estimate("settled", released, number) for number, released in enumerate(self._day)]

    def _estimate(self, stage: Stage, released: _Released, number: int) -> EstimateRecord:
        own = Normal(float(self._track.means.hats[number]), float(self._covariance.hats[number]))
        estimate = hat_estimate(released.hat, own, self._track, self._covariance)
        z = released.residual_z
        return self._record(
            stage,
            released.record,
            released.record.cell,
            road=self._normal(estimate.road),
            mean=self._normal(estimate.mean),
            residual_z=None if z is None else _rounded(z),
        )

    def _predicted(self, cell: str, number: int, of_slot: ReleaseRecord) -> EstimateRecord:
        hat = Hat(number, hour_of(of_slot), np.zeros(2), self._variances.hat, 1.0, 0, 0)
        own = Normal(0.0, self._variances.hat)
        road = hat_estimate(hat, own, self._track, self._covariance).road
        return self._record("predicted", of_slot, cell, road=self._normal(road))

    def _record(
        self,
        stage: Stage,
        like: ReleaseRecord,
        cell: str,
        road: NormalRecord,
        mean: NormalRecord | None = None,
        residual_z: float | None = None,
    ) -> EstimateRecord:
        """Return the record of a cell. like: a release of its slot."""
        return EstimateRecord(
            estimate_id=f"{self._setting.name}/{like.date}T{like.slot}/{cell}",
            policy_id=self._setting.policy_id,
            stage=stage,
            cell=cell,
            date=like.date,
            slot=like.slot,
            start=like.start,
            end=like.end,
            unit="km/h",
            road=road,
            mean=mean,
            residual_z=residual_z,
        )

    def _normal(self, normal: Normal) -> NormalRecord:
        sd = float(np.sqrt(normal.variance))
        value, low, high = (
            _rounded(min(max(normal.mean + width * sd, 0.0), self._upper_bound))
            for width in (0, -DEVIATIONS, DEVIATIONS)
        )
        return NormalRecord(value=value, sd=_rounded(sd), interval95=(low, high))

    def _begin_day(self, date: str) -> None:
        self._day = []
        self._settled = False
        self._covariance.begin_day()
        self._track.means.begin_day()
        self.date = date
        self.snapshot = self._state(date)

    def _state(self, date: str) -> SmootherState:
        return SmootherState.of(self._setting.policy_id, date, self.start_ms, self._calibration.ratio, self._model)

    def _advance(self, start_ms: int) -> None:
        if self.start_ms is not None:
            self._track.means.follow(self._covariance.advance((start_ms - self.start_ms) / HOUR_MS))
        self.start_ms = start_ms

    def _add_cells(self, cells: Sequence[str]) -> None:
        new = [cell for cell in cells if cell not in self._cells]
        self._cells.update((cell, number) for number, cell in enumerate(new, len(self._cells)))
        self._covariance.add_cells(len(new))
        self._track.means.resize(self._covariance)

    def _is_last(self, record: ReleaseRecord) -> bool:
        """Return whether no later slot of the record's date can have a release."""
        return self._setting.last_slot(record.date) == record.slot


def read_release(value: bytes, policy: Policy) -> ReleaseRecord | None:
    """Decode a record of `hats.means`; None if it is not a release of this policy."""
    try:
        record = RELEASE.decode(value)
    except msgspec.DecodeError:
        return None
    return record if record.policy_id == policy.policy_id and record.release_id.startswith(f"{policy.name}/") else None


def start_of(record: ReleaseRecord) -> int:
    """Return the start of a record's slot, ms UTC."""
    return round(datetime.fromisoformat(record.start).timestamp() * _MILLI)


def end_of(record: ReleaseRecord) -> int:
    """Return the end of a record's slot, ms UTC."""
    return round(datetime.fromisoformat(record.end).timestamp() * _MILLI)


def slots_of(records: Iterable[ReleaseRecord]) -> Iterator[ReleasedSlot]:
    """Group records by slot, in the order in which a smoother takes them."""
    for start_ms, group in groupby(sorted(records, key=start_of), start_of):
        slot = list(group)
        yield ReleasedSlot(slot[0].date, start_ms, slot)


def estimates_of(policy: Policy, records: Iterable[ReleaseRecord]) -> Iterator[EstimateRecord]:
    """Yield all estimates that follow from these records of a policy, in any order."""
    smoother = Smoother(SmootherSetting.of(policy))
    for slot in slots_of(records):
        yield from smoother.add(slot)


def _rounded(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # no -0.0
