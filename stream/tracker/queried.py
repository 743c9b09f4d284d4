"""A tracker's published queries as observations.    [docs/specification/tracker.md, section 5]

A record has all of a query that the tracker's own model has, so a model that is updated with records is that of the
tracker. The observation is of `raw`, which contains the tracker's prediction: so it is right also for a model that has
seen other records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hatcast.stream.records import ReleaseRecord, ResidualQueryRecord
from hatcast.stream.records.fields import Status
from hatcast.stream.tracker.calibration import Calibration
from hatcast.stream.tracker.contributions import Hat, features_of
from hatcast.stream.tracker.model import SHARED, Observation
from hatcast.stream.tracker.released import HatKey, Measurement, hat_of, hour_of
from hatcast.stream.tracker.setting import Variances

_MODELLED = (Status.RELEASED, Status.DEFERRED)  # HATs that a tracker's own model has


class QueryRecords:
    """Converter of a tracker's records to HATs and observations of the model."""

    def __init__(self, variances: Variances, lower: float = 0.0) -> None:
        """lower: of the value, in its unit: the model is of distances from it."""
        self._variances, self._lower = variances, lower

    @staticmethod
    def calibration(means: Sequence[float]) -> Calibration:
        """Return the calibration that goes with these records. means: of an earlier one; none at the beginning."""
        return Calibration((means[0], means[1])) if means else Calibration()

    def hat(self, record: ReleaseRecord, cell: int) -> Hat | None:
        """Return the HAT of a record; None if the model does not have it. cell: its number."""
        counts = record.counts
        if counts is None or record.status not in _MODELLED:
            return None
        features = features_of(counts.users, counts.readings)
        return replace(hat_of(record, cell, self._variances), features=features)

    def measurements(
        self, records: Sequence[ReleaseRecord], cells: Mapping[str, int], hats: Mapping[HatKey, int]
    ) -> Iterator[Measurement]:
        """Yield the released numbers of a slot or settlement, in the order in which the queries were made."""
        queried = [(record.query, record) for record in records if record.query is not None]
        for query, record in sorted(queried, key=lambda each: each[0].number):
            # A query about a HAT whose record is not there cannot be understood: it is left out.
            if record.raw is not None and all((record.cell, slot) in hats for slot, _, _ in query.hats):
                observation = _observation_of(query, record.cell, cells, hats)
                yield Measurement(observation, record.raw - self._lower, query.noise_variance)


def _observation_of(
    query: ResidualQueryRecord, cell: str, cells: Mapping[str, int], hats: Mapping[HatKey, int]
) -> Observation:
    row = np.zeros(SHARED)
    for slot, weight, _ in query.hats:
        row[0] += weight
        row[1 + hour_of(slot)] += weight
    row[25:] = query.features
    return Observation(
        cells[cell],
        row,
        np.array([hats[cell, slot] for slot, _, _ in query.hats]),
        np.array([weight for _, weight, _ in query.hats]),
        np.array([beta for _, _, beta in query.hats]),
        query.variance,
    )
