"""Published records as observations of the model, in the order in which a smoother takes them.

docs/specification/tracker.md, section 5
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Final, NamedTuple, Self

import numpy as np

from hatcast.stream.errors import readable
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records import RELEASE, ReleaseRecord, ResidualQueryRecord
from hatcast.stream.records.fields import Status, is_settlement
from hatcast.stream.tracker.counts import ModelHat, centre_of, features_of
from hatcast.stream.tracker.model import CITY, DAY, SHARED, Covariance, Observation, hour_part, shared_rows
from hatcast.stream.tracker.prior import Variances
from hatcast.stream.tracker.track import Calibration, ReleaseCalibration

DEVIATIONS: Final = 1.96  # of a normal distribution, on either side: 95 %
_UNKNOWN: Final = (5, 7.5, 0.2)  # users, readings and squares of a HAT whose counts are not published
_MODELLED = (Status.RELEASED, Status.DEFERRED)  # HATs that a tracker's own model has
_MILLI = 1000


class SlotKey(NamedTuple):
    """Place of a group in the order in which a smoother takes them: the settlement of a date is its last."""

    date: str
    is_settlement: bool
    start_ms: int  # ms UTC; 0 for a settlement

    @classmethod
    def of(cls, record: ReleaseRecord) -> Self:
        """Return the key of a record's group."""
        settles = is_settlement(record.release_id)
        return cls(record.date, settles, 0 if settles else start_of(record))


@dataclass(frozen=True, slots=True)
class ReleasedSlot:
    """All records of one slot, or of the settlement of a date; in any order, and a record may be there twice."""

    key: SlotKey
    records: Sequence[ReleaseRecord]


def read_release(value: bytes, policy: Policy) -> ReleaseRecord | None:
    """Decode a record of `hats.means`; None if it is not of this policy, or is a running sum."""
    record = readable(RELEASE.decode, value)
    if record is None or record.policy_id != policy.policy_id or record.running is not None:
        return None
    return record if record.release_id.startswith(f"{policy.name}/") else None


def start_of(record: ReleaseRecord) -> int:
    """Return the start of a record's slot, ms UTC."""
    return round(datetime.fromisoformat(record.start).timestamp() * _MILLI)


def end_of(record: ReleaseRecord) -> int:
    """Return the end of a record's slot, ms UTC."""
    return round(datetime.fromisoformat(record.end).timestamp() * _MILLI)


def slots_of(records: Iterable[ReleaseRecord]) -> Iterator[ReleasedSlot]:
    """Group records, in the order in which a smoother takes them."""
    for key, group in groupby(sorted(records, key=SlotKey.of), SlotKey.of):
        yield ReleasedSlot(key, list(group))


HatKey = tuple[str, str]  # cell and slot of a HAT of the day
Records = Sequence[ReleaseRecord]  # of one slot, or of the settlement of a date


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A released number, as the model sees it."""

    observation: Observation
    value: float  # above the policy's lower bound, in its unit: the number that was observed
    noise: float  # the part of the observation's variance that is noise


class RecordConverter(ABC):
    """Converter of one kind of policy's records to HATs and observations of the model."""

    def __init__(self, covariance: Covariance, lower: float = 0.0) -> None:
        """Args:
        covariance: of the model, whose variances are those of the present date
        lower: of the value, in its unit: the model is of distances from it
        """
        self._covariance, self._lower = covariance, lower

    @staticmethod
    @abstractmethod
    def calibration(means: Sequence[float]) -> Calibration | ReleaseCalibration:
        """Return the calibration that goes with these records. means: of an earlier one; none at the beginning."""

    @abstractmethod
    def hats(self, records: Records, cells: Mapping[str, int]) -> list[tuple[ReleaseRecord, ModelHat]]:
        """Return the HATs of a slot's records that the model has. cells: their numbers."""

    @abstractmethod
    def measurements(
        self, records: Records, cells: Mapping[str, int], numbers: Mapping[HatKey, int], day: Sequence[ModelHat]
    ) -> Iterator[Measurement]:
        """Yield the released numbers of a slot or settlement, in the order in which the model takes them.

        cells     numbers of cells
        numbers   of the HATs of the day, which are in `day`
        """


class PlainReleases(RecordConverter):
    """Converter of plain releases: one observation for each HAT.

    All of it follows from published records: `counts` are public under `replace`, and absent under `add_remove`. Counts
    are those of the users that K admits, so they are not features of the HAT: estimates were worse with them.
    """

    @staticmethod
    def calibration(means: Sequence[float]) -> ReleaseCalibration:
        return ReleaseCalibration(*means)

    def hats(self, records: Records, cells: Mapping[str, int]) -> list[tuple[ReleaseRecord, ModelHat]]:
        return [
            (each, hat_of(each, cells[each.cell], self._covariance.variances)) for each in records if each.is_released
        ]

    def measurements(
        self, records: Records, cells: Mapping[str, int], numbers: Mapping[HatKey, int], day: Sequence[ModelHat]
    ) -> Iterator[Measurement]:
        for record in sorted(records, key=lambda each: each.cell):
            noise = noise_variance(record)
            if record.is_released and noise is not None and record.raw is not None:
                cell, number = cells[record.cell], numbers[record.cell, record.slot]
                observation = _release_observation(record, cell, number, noise, self._covariance.variances)
                yield Measurement(observation, record.raw - self._lower, noise)


def hour_of(slot: str) -> int:
    """Return the hour of the local clock in which a slot starts. slot: its name."""
    return int(slot[:2])


def hat_of(release: ReleaseRecord, cell: int, variances: Variances) -> ModelHat:
    """Return the HAT of a release. cell: its number."""
    counts = release.counts
    users, readings, squares = _UNKNOWN if counts is None else (counts.users, counts.readings, counts.squares)
    sampling = (variances.bus + variances.bus_hat) * squares + variances.reading / readings
    own = variances.hat + sampling
    return ModelHat(cell, hour_of(release.slot), np.zeros(2), own, variances.hat / own, users, 0)


def noise_variance(release: ReleaseRecord) -> float | None:
    """Return the variance of a release's noise, in squared units.

    None if the record has no noisy value of the HAT: it is not released, or it has no noise and depends on no reading.
    """
    noise = release.noise
    if release.raw is None or release.interval95 is None or noise is None or noise.scale == 0:
        return None
    if noise.scale is not None:
        return 2 * noise.scale**2
    # The interval is clipped to [0, U], so the end that is farther from the unclipped value has the width.
    return (max(abs(end - release.raw) for end in release.interval95) / DEVIATIONS) ** 2


def _release_observation(
    release: ReleaseRecord, cell: int, hat: int, noise: float, variances: Variances
) -> Observation:
    """Return the observation of a release: y = the HAT's mean + the estimator's other weights of buses + noise."""
    shift = 0.0 if release.counts is None else release.counts.shift or 0.0
    row = np.zeros(SHARED)
    row[[CITY, DAY, hour_part(hour_of(release.slot))]] = 1
    rest = noise + (variances.bus + variances.bus_hat) * shift
    return Observation(np.array([cell]), np.ones(1), row, np.array([hat]), np.ones(1), np.ones(1), rest)


class QueryRecords(RecordConverter):
    """Converter of a tracker's records to HATs and observations of the model.

    Records have all of a query that the tracker's own model has, so a model that is updated with records is that of the
    tracker. The observation is of `raw`, which contains the tracker's prediction: so it is right also for a model that
    has seen other records.
    """

    @staticmethod
    def calibration(means: Sequence[float]) -> Calibration:
        return Calibration((means[0], means[1])) if means else Calibration()

    def hats(self, records: Records, cells: Mapping[str, int]) -> list[tuple[ReleaseRecord, ModelHat]]:
        counted = [(each, each.counts) for each in records if each.counts is not None and each.status in _MODELLED]
        centre = centre_of((counts.users, counts.readings) for _, counts in counted)
        return [
            (
                record,
                replace(
                    hat_of(record, cells[record.cell], self._covariance.variances),
                    features=features_of(counts.users, counts.readings, centre),
                ),
            )
            for record, counts in counted
        ]

    def measurements(
        self, records: Records, cells: Mapping[str, int], numbers: Mapping[HatKey, int], day: Sequence[ModelHat]
    ) -> Iterator[Measurement]:
        queried = [(record.query, record) for record in records if record.query is not None]
        for query, record in sorted(queried, key=lambda each: each[0].number):
            of_cells = [record.cell] * len(query.hats) if query.cells is None else query.cells
            keys = zip(of_cells, (slot for slot, _, _ in query.hats), strict=False)
            about = [numbers[key] for key in keys if key in numbers]
            # A query about a HAT whose record is not there cannot be understood: it is left out.
            if record.raw is not None and len(of_cells) == len(query.hats) == len(about):
                observation = _query_observation(query, record.cell, cells, about, day)
                yield Measurement(observation, record.raw - self._lower, query.noise_variance)


def _query_observation(
    query: ResidualQueryRecord, cell: str, cells: Mapping[str, int], about: Sequence[int], day: Sequence[ModelHat]
) -> Observation:
    hats = np.array(about, np.int64)
    weights, betas = np.array([[weight, beta] for _, weight, beta in query.hats]).T
    row = weights @ shared_rows([day[number] for number in about])
    if query.cells is None:
        return Observation(np.array([cells[cell]]), np.ones(1), row, hats, weights, betas, query.variance)
    return Observation(
        np.array([cells[each] for each in query.cells]), weights, row, hats, weights, betas, query.variance
    )
