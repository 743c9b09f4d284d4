"""Estimates of every cell from the releases of a policy.    [docs/specification/tracker.md, section 5]

Post-processing of published records: nothing else is read, so it costs no epsilon. Equal records give equal bytes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

import h3.api.basic_int as h3
import msgspec
import numpy as np

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.records import EstimateRecord, NormalRecord, ReleaseRecord
from hatcast.stream.records.fields import release_id
from hatcast.stream.tracker.alarms import OF_RELEASES, OF_TRACKER, Alarms, Area
from hatcast.stream.tracker.counts import Floats, ModelHat
from hatcast.stream.tracker.model import SHARED, Covariance, prior_means, shared_rows
from hatcast.stream.tracker.observations import (
    DEVIATIONS,
    HatKey,
    Measurement,
    PlainReleases,
    QueryRecords,
    RecordConverter,
    ReleasedSlot,
    SlotKey,
    hour_of,
    slots_of,
)
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.state import ModelState, SmootherState
from hatcast.stream.tracker.timetable import tenths_of
from hatcast.stream.tracker.track import Normal, OwnDeviation, Track, hat_estimate
from hatcast.stream.units import HOUR_MS

Stage = Literal["live", "settled", "predicted"]

_MILLI = 1000
_DIGITS: Final = 2  # so that bytes do not depend on the last bits of floats
_USUAL_HATS: Final = 1000  # older ones fade exponentially
_LEVELS: Final = 1000  # least number of values that the digits tell apart


@dataclass(frozen=True, slots=True, eq=False)
class DayParts:
    """Estimates of all HATs of the present day, in the order in which they were added, with two parts of each error.

    The *common* part is the error of city, hour and cell: HATs of one cell share most of it. The *own* part is the
    error of the HAT's own deviation, which a smoother takes as independent of all others.
    docs/specification/continual.md, section 3
    """

    records: Sequence[ReleaseRecord]  # of each HAT
    means: Floats  # float64 [H]  of all readings of the HAT, above the policy's lower bound, not clipped
    common: Floats  # float64 [H]  standard deviation of the common part of the error
    own: Floats  # float64 [H]  variance of its own part


def day_parts(
    records: Sequence[ReleaseRecord], hats: Sequence[ModelHat], track: Track, covariance: Covariance
) -> DayParts:
    """Return the estimates of a day's HATs: those that `Track.estimate` returns one by one.

    records, hats   of each HAT of the day, in the order of their numbers
    """
    cells = np.array([hat.cell for hat in hats], np.int64)
    rows, own = covariance.slopes[cells] + shared_rows(hats), covariance.own
    means = (rows + own.slopes) @ track.means.shared + track.means.intercepts[cells] + track.means.hats

    def given(rows: Floats) -> Floats:
        return np.asarray(np.einsum("hi,ij,hj->h", rows, covariance.shared, rows, optimize=True))

    common = given(rows) + covariance.variance[cells]
    whole = (
        given(rows + own.slopes) + covariance.variance[cells] + 2 * own.with_cell + own.variance(np.arange(len(own)))
    )
    # Of a HAT that was queried itself more is known than of its cell: then it has no part of its own.
    common = np.minimum(common, whole)
    factor = track.calibration.factor
    return DayParts(records, means, np.sqrt(factor * common), factor * (whole - common))


@dataclass(slots=True)
class _DayHat:
    """A HAT of the day that the model has."""

    record: ReleaseRecord
    hat: ModelHat
    residual_z: float | None = None  # of the last released number about it; None without one


@dataclass(frozen=True, slots=True)
class SmootherSetting:
    """Public parameters of a smoother, from the policy."""

    name: str
    policy_id: str
    prior: Prior  # of the value
    cells: Sequence[str]  # that are listed, in order; none: only those with a record are estimated
    # returns the name of the last slot of a local date; None: a date ends with its settlement, or with the next one
    last_slot: Callable[[str], str | None]
    is_tracker: bool = False  # whether the records are those of a tracker
    remainders: frozenset[str] = frozenset()  # coarse cells that overlap a listed finer cell
    lower: float = 0.0  # of the value, in its unit
    unit: str = "km/h"  # of the value
    value: str | None = None  # its name; None: the speed
    speed: Literal["journey"] | None = None  # which speed, as in records

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the setting of a policy."""
        calendar, is_tracker = Calendar(policy), isinstance(policy.method, TrackerKeys)

        def last_slot(date: str) -> str | None:
            if is_tracker:
                return None
            return max(
                ((slot.start_ms, slot.name) for slot in calendar.slots_of(date) if slot.outside is None),
                default=(0, None),
            )[1]

        cells = sorted(h3.int_to_str(cell) for cell in policy.cells or ())
        rest = frozenset() if policy.fine is None else frozenset(map(h3.int_to_str, policy.fine.remainders))
        return cls(
            name=policy.name,
            policy_id=policy.policy_id,
            prior=Prior.of_policy(policy),
            cells=cells,
            last_slot=last_slot,
            is_tracker=is_tracker,
            remainders=rest,
            lower=policy.lower / _MILLI,
            unit=policy.released_value.unit,
            value=policy.value_name,
            speed=policy.speed,
        )

    @property
    def digits(self) -> int:
        """Digits of published numbers after the point: 2, and more for a value with a narrow range."""
        return max(_DIGITS, math.ceil(math.log10(_LEVELS / self.prior.width)))


class Smoother:
    """Makes estimates from the releases of one policy, slot by slot.

    date       local date of the last slot; "" before the first
    taken      key of the last slot or settlement: those up to it must not be given again
    snapshot   the state at the beginning of `date`, from which another object continues
    """

    def __init__(self, setting: SmootherSetting, snapshot: SmootherState | None = None) -> None:
        """snapshot: of an object of the same policy; the next slot is the first of the snapshot's date or later."""
        self._setting = setting
        self._upper_bound, self._digits = setting.prior.width, setting.digits
        self._prior = prior_means(setting.prior)
        self._covariance = Covariance(setting.prior.variances)
        self._records: RecordConverter = (QueryRecords if setting.is_tracker else PlainReleases)(
            self._covariance, setting.lower
        )
        calibration = self._records.calibration(() if snapshot is None else snapshot.calibration)
        self._track = Track(self._prior, calibration)
        self._usual = (0.0, 0.0) if snapshot is None else snapshot.usual
        self._cells: dict[str, int] = {}
        self._day: list[_DayHat] = []
        self._hats: dict[HatKey, int] = {}
        self._alarms = self._new_alarms()
        self._alarmed: dict[HatKey, Area] = {}
        self._slot_from = 0  # number of the present slot's first HAT
        self._settled = True
        self._start_ms: int | None = None
        self.date = ""
        self.taken = SlotKey("", is_settlement=False, start_ms=0)
        if snapshot is not None:
            self._start_ms = snapshot.start_ms
            self.taken = SlotKey(snapshot.date, is_settlement=False, start_ms=0)
            self._cells.update((cell, number) for number, cell in enumerate(snapshot.model.cells))
            snapshot.model.restore(self._covariance, [self._track.means])
        else:
            self._add_cells(setting.cells)
        self.snapshot = self._state("")

    def add(self, slot: ReleasedSlot) -> list[EstimateRecord]:
        """Take the records of a slot or settlement. Return the estimates to publish, in order.

        Slots come in the order of their keys. If a date is over, the first estimates are its settled ones.
        """
        made: list[EstimateRecord] = []
        self.taken = slot.key
        if slot.key.date != self.date:
            made += self.settle()
            self._begin_day(slot.key.date, slot.records)
        distinct = {record.release_id: record for record in slot.records}
        self._slot_from = len(self._day)
        if slot.key.is_settlement:
            self._learn(list(distinct.values()))
            return made + self.settle()
        records = sorted(distinct.values(), key=lambda record: record.cell)
        self._advance(slot.key.start_ms)
        self._add_cells([record.cell for record in records])
        self._add_hats(records)
        self._learn(records)
        alarmed = self._alarms.close_slot(list(self._cells))
        self._alarmed |= {(cell, records[0].slot): area for cell, area in alarmed.items()}
        made += self._estimates(records[0])
        if self._setting.last_slot(slot.key.date) == records[0].slot:  # no later one can have a release
            made += self.settle()
        return made

    def _add_hats(self, records: Sequence[ReleaseRecord]) -> None:
        known = self._records.hats(records, self._cells)
        for number, (record, hat) in enumerate(known, len(self._day)):
            self._hats[record.cell, record.slot] = number
            self._day.append(_DayHat(record, hat))
        for _, hat in known:
            usual, hats = self._usual
            hats = min(hats + 1, _USUAL_HATS)
            self._usual = usual + (float(hat.features[1]) - usual) / hats, hats
        scheduled = {hat.cell: tenths_of(record.scheduled) for record, hat in known if record.scheduled is not None}
        self._covariance.add_scheduled(scheduled)
        self._covariance.add_hats([hat for _, hat in known])
        self._track.means.resize(self._covariance)

    def _learn(self, records: Sequence[ReleaseRecord]) -> None:
        day = [each.hat for each in self._day]
        for measured in self._records.measurements(records, self._cells, self._hats, day):
            residual_z = self._observe(measured)
            if measured.observation.is_of_one_cell:  # a pulse is of the city, and says next to nothing of each HAT
                for number in measured.observation.hats.tolist():
                    self._day[number].residual_z = residual_z

    def _observe(self, measured: Measurement) -> float:
        """Update with a released number. Return its innovation in standard deviations."""
        observation, means = measured.observation, self._track.means
        gain = self._covariance.observe(observation)
        expected = means.expected(observation, gain)
        innovation = measured.value - expected
        share = float(observation.weights[observation.hats >= self._slot_from].sum())
        if share > 0 and not self._setting.prior.variances.is_guess:  # a speed of the present slot
            variance = measured.noise + self._track.calibration.factor * (gain.variance - measured.noise)
            self._alarms.add(observation.cells, share, expected, innovation, variance)
        means.update(observation, gain, innovation)
        self._track.calibration.add(innovation, gain.variance, measured.noise)
        return innovation / float(np.sqrt(gain.variance))

    def _estimates(self, of_slot: ReleaseRecord) -> Iterator[EstimateRecord]:
        """Yield the estimates of all cells at the close of a slot. of_slot: any of its records."""
        for cell, number in sorted(self._cells.items()):
            of_day = self._hats.get((cell, of_slot.slot))
            if of_day is None:
                yield self._predicted(cell, number, of_slot)
            else:
                is_released = self._day[of_day].record.is_released
                yield self._estimate("live" if is_released else "predicted", of_day)

    def settle(self) -> list[EstimateRecord]:
        """Return the estimates of the date's HATs again, unless they were returned before: the date is over."""
        if self._settled:
            return []
        self._settled = True
        return [self._estimate("settled", number) for number in range(len(self._day))]

    def day_parts(self) -> DayParts:
        """Return the estimates of all HATs of the date so far: with the parts of their errors."""
        records = [each.record for each in self._day]
        return day_parts(records, [each.hat for each in self._day], self._track, self._covariance)

    def _estimate(self, stage: Stage, number: int) -> EstimateRecord:
        of_day = self._day[number]
        estimate = self._track.estimate(number, of_day.hat, self._covariance)
        z = of_day.residual_z
        return msgspec.structs.replace(
            self._record(stage, of_day.record, of_day.record.cell, self._normal(estimate.road)),
            mean=self._normal(estimate.mean),
            residual_z=None if z is None else _rounded(z, _DIGITS),
        )

    def _predicted(self, cell: str, number: int, of_slot: ReleaseRecord) -> EstimateRecord:
        usual = np.array([0.0, self._usual[0]])
        hat = ModelHat(number, hour_of(of_slot.slot), usual, self._covariance.variances.hat, 1.0, 0, 0)
        own = OwnDeviation(0.0, np.zeros(SHARED), 0.0, self._covariance.variances.hat)
        road = hat_estimate(hat, own, self._track, self._covariance).road
        return self._record("predicted", of_slot, cell, self._normal(road))

    def _record(self, stage: Stage, like: ReleaseRecord, cell: str, road: NormalRecord) -> EstimateRecord:
        """Return the record of a cell, without a mean. like: a release of its slot."""
        return EstimateRecord(
            estimate_id=release_id(self._setting.name, f"{like.date}/{like.slot}", cell),
            policy_id=self._setting.policy_id,
            stage=stage,
            cell=cell,
            remainder=True if cell in self._setting.remainders else None,
            date=like.date,
            slot=like.slot,
            start=like.start,
            end=like.end,
            value=self._setting.value,
            speed=self._setting.speed,
            unit=self._setting.unit,
            road=road,
            alarm=self._alarmed.get((cell, like.slot)),
        )

    def _normal(self, normal: Normal) -> NormalRecord:
        sd = float(np.sqrt(normal.variance))
        value, low, high = (
            _rounded(self._setting.lower + min(max(normal.mean + width * sd, 0.0), self._upper_bound), self._digits)
            for width in (0, -DEVIATIONS, DEVIATIONS)
        )
        return NormalRecord(value=value, sd=_rounded(sd, self._digits), interval95=(low, high))

    def _begin_day(self, date: str, records: Sequence[ReleaseRecord]) -> None:
        self._day, self._hats = [], {}
        self._alarms, self._alarmed = self._new_alarms(), {}
        self._settled = False
        scale = next((each.prior_scale for each in records if each.prior_scale is not None), None)
        if scale is not None and scale != self._covariance.prior_scale:
            self._track.means.rescale(self._covariance.rescale(scale), self._prior)
        self._track.means.begin_day(self._covariance.begin_day())
        self.date = date
        self.snapshot = self._state(date)

    def _new_alarms(self) -> Alarms:
        return Alarms(OF_TRACKER if self._setting.is_tracker else OF_RELEASES)

    def _state(self, date: str) -> SmootherState:
        return SmootherState(
            policy_id=self._setting.policy_id,
            date=date,
            model=ModelState.of(self._cells, self._covariance, self._track.means),
            start_ms=self._start_ms,
            calibration=self._track.calibration.means,
            usual=self._usual,
        )

    def _advance(self, start_ms: int) -> None:
        if self._start_ms is not None:
            self._track.means.follow(self._covariance.advance((start_ms - self._start_ms) / HOUR_MS))
        self._start_ms = start_ms

    def _add_cells(self, cells: Sequence[str]) -> None:
        new = [cell for cell in dict.fromkeys(cells) if cell not in self._cells]
        self._cells.update((cell, number) for number, cell in enumerate(new, len(self._cells)))
        self._covariance.add_cells(len(new))
        self._track.means.resize(self._covariance)


def estimates_of(policy: Policy, records: Iterable[ReleaseRecord]) -> Iterator[EstimateRecord]:
    """Yield all estimates that follow from these records of a policy, in any order."""
    smoother = Smoother(SmootherSetting.of(policy))
    for slot in slots_of(records):
        yield from smoother.add(slot)


def _rounded(value: float, digits: int) -> float:
    return round(value, digits) + 0.0  # no -0.0
