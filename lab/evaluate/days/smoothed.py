"""Records of `hats.estimates` after each hour and at the end of a day, from plain releases."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from hatcast.lab.days import RecordedDay, RecordedSlot
from hatcast.lab.evaluate.days.scores import Published
from hatcast.lab.evaluate.simulation import Floats
from hatcast.stream.estimators import Estimate, Parameters, Users
from hatcast.stream.records import CountsRecord, EstimateRecord, NoiseRecord, ReleaseRecord
from hatcast.stream.records.fields import release_id
from hatcast.stream.release.counts import counts_fields
from hatcast.stream.tracker.slots import ReleasedSlot, SlotKey
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting

Key = tuple[str, str]
"""`date/slot` and cell of a HAT"""
Drawn = Mapping[Key, tuple[Users, Estimate]]
"""what one run releases, by HAT"""
_MILLI = 1000


def smoothed(
    days: Sequence[RecordedDay], estimator: str, parameters: Parameters, runs: Sequence[Drawn]
) -> tuple[Published, Published]:
    """Return the estimates of each HAT at the close of its slot, and at the end of its day.

    A HAT without a release has the estimate of the road in its cell and slot, and no interval: that of its readings is
    not published. In a cell without any release yet it counts as the mean of the estimates before it, at first U/2.
    """
    keys = {(slot.key, hat.cell): 0 for day in days for slot in day.slots for hat in slot.hats}
    columns = {key: column for column, key in enumerate(keys)}
    live, end = (np.full((3, len(runs), len(keys)), np.nan) for _ in range(2))
    upper_bound = parameters.upper_bound_milli / _MILLI
    for run, drawn in enumerate(runs):
        smoother = Smoother(SmootherSetting("", "", upper_bound, (), lambda _: None))
        for day in days:
            for slot in day.slots:
                records = [*_records(slot, drawn, estimator, parameters)]
                key = SlotKey(day.date, is_settlement=False, start_ms=slot.start_ms)
                for estimate in smoother.add(ReleasedSlot(key, records)) if records else ():
                    column = columns.get((f"{estimate.date}/{estimate.slot}", estimate.cell))
                    if column is None:
                        continue
                    end[:, run, column] = _numbers(estimate)
                    if estimate.stage != "settled":
                        live[:, run, column] = end[:, run, column]
        for estimate in smoother.settle():
            end[:, run, columns[f"{estimate.date}/{estimate.slot}", estimate.cell]] = _numbers(estimate)
    return (
        Published(filled(live[0], upper_bound / 2), *live[1:]),
        Published(filled(end[0], upper_bound / 2), *end[1:]),
    )


def _numbers(estimate: EstimateRecord) -> tuple[float, float, float]:
    """Return value, low and high."""
    if estimate.mean is None:
        return estimate.road.value, np.nan, np.nan
    return estimate.mean.value, *estimate.mean.interval95


def _records(slot: RecordedSlot, drawn: Drawn, estimator: str, parameters: Parameters) -> Iterator[ReleaseRecord]:
    """Yield the releases of a slot, with the fields that a smoother reads."""
    date, name = slot.key.split("/")
    step = float(parameters.grid.milli) / _MILLI
    for hat in slot.hats:
        released = drawn.get((slot.key, hat.cell))
        if released is None:
            continue
        users, estimate = released
        low, high = estimate.interval95
        yield ReleaseRecord(
            release_id=release_id(estimator, slot.key, hat.cell),
            policy_id="",
            status="released",
            cell=hat.cell,
            date=date,
            slot=name,
            start="",
            end="",
            raw=estimate.raw * step,
            noise=NoiseRecord(kind="laplace", scale=None if estimate.scale is None else estimate.scale * step),
            interval95=(low * step, high * step),
            counts=msgspec.convert(counts_fields(users.counts, estimator, parameters), CountsRecord),
            estimator=estimator,
            epsilon=parameters.epsilon,
            relation="replace",
            released_at="",
        )


def filled(means: Floats, middle: float) -> Floats:
    """Replace NaN in each row by the mean of the numbers before it, or by `middle` if there are none."""
    known = ~np.isnan(means)
    number = np.cumsum(known, axis=1)
    total = np.cumsum(np.where(known, means, 0.0), axis=1)
    guesses = np.where(number > 0, total / np.maximum(number, 1), middle)
    return np.where(known, means, guesses)
