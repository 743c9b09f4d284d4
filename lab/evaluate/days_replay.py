"""Replay recorded days through the code of releases, with its noise: the tracker, and the papers' estimators.

Of the papers' estimators there are the releases, and the records of `hats.estimates` after each hour and at the end of
a day. The noise is that of a release, drawn by the `Noise` that the caller passes: no result has a seed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from hatcast.lab.days import RecordedDay, RecordedSlot
from hatcast.lab.evaluate.contenders import Contender
from hatcast.lab.evaluate.simulation import Floats, Integers
from hatcast.lab.processes import step
from hatcast.stream.estimators import Estimate, Parameters, Users
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys, default_price
from hatcast.stream.records import CountsRecord, EstimateRecord, NoiseRecord, ReleaseRecord
from hatcast.stream.records.fields import release_id
from hatcast.stream.release.hats import counts_fields
from hatcast.stream.tracker.observations import ReleasedSlot, SlotKey
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.track import HatEstimate
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import NANO, nano_floor

MANY_USERS: Final = 10  # a HAT with so many users counts as a large one
_MILLI: Final = 1000
Key = tuple[str, str]  # `date/slot` and cell of a HAT
Drawn = Mapping[Key, tuple[Users, Estimate]]  # what one run releases, by HAT
_DEVIATIONS: Final = 1.96  # of a normal distribution, on either side: 95 %


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Scored HATs, in the order of release."""

    means: Floats  # float64 [H]  of all readings, in the policy's unit
    users: Integers  # int64 [H]
    cells: Integers  # int64 [H]  number of each HAT's cell

    @classmethod
    def of(cls, days: Sequence[RecordedDay]) -> Self:
        """Return the truth of all HATs of these days."""
        hats = hats_of(days)
        _, cells = np.unique([hat.cell for hat in hats], return_inverse=True)
        return cls(
            np.array([hat.sums.sum() / hat.counts.sum() / _MILLI for hat in hats]),
            np.array([len(hat.counts) for hat in hats], np.int64),
            cells.astype(np.int64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PublishedRuns:
    """Values of each HAT as published, in several runs."""

    means: Floats  # float64 [R, H]  within [0, U], in the policy's unit
    # low, high: float64 [R, H]  ends of 95 % intervals, within [0, U]; NaN where nothing was released
    low: Floats
    high: Floats

    @property
    def released(self) -> float:
        """Share of the HATs of which something was released."""
        return float(1 - np.isnan(self.low).mean())


@dataclass(frozen=True, slots=True)
class Score:
    """One column of a result: its mean over runs, and the standard error of that mean; None for one run."""

    value: float
    standard_error: float | None


Scores = dict[str, Score]  # by column, as `scores_of` names them; only columns that have a value


def hats_of(days: Sequence[RecordedDay]) -> list[HatUsers]:
    """Return all HATs, in the order of release."""
    return [hat for day in days for slot in day.slots for hat in slot.hats]


def scores_of(published: PublishedRuns, truth: Truth) -> Scores:
    """Score published values.

    mae          mean absolute error, each HAT alike
    by_users     the same, each HAT weighted by its users
    ge10         the same, over HATs of `MANY_USERS` users or more
    coverage     share of the HATs with an interval whose interval has the mean of all readings
    half_width   mean half width of the intervals
    """
    columns = _errors(published.means, truth)
    has_interval = ~np.isnan(published.low)
    if has_interval.any(axis=1).all():
        inside = (published.low <= truth.means) & (truth.means <= published.high)
        half_widths = (published.high - published.low) / 2
        columns["coverage"] = np.mean(inside, axis=1, where=has_interval)
        columns["half_width"] = np.mean(half_widths, axis=1, where=has_interval)
    return {name: _score(runs) for name, runs in columns.items()}


def constant_scores(truth: Truth, upper_bound: float) -> dict[str, Scores]:
    """Score constants that cost nothing: U/2, and two that are known only afterwards.

    city   the mean of all scored HATs' means
    cell   for each cell, the mean of its HATs' means over all days
    """
    by_cell = np.bincount(truth.cells, truth.means) / np.bincount(truth.cells)
    constants = {
        "half_bound": np.full(len(truth.means), upper_bound / 2),
        "city": np.full(len(truth.means), truth.means.mean()),
        "cell": by_cell[truth.cells],
    }
    return {
        name: {column: _score(runs) for column, runs in _errors(values[None], truth).items()}
        for name, values in constants.items()
    }


def _errors(means: Floats, truth: Truth) -> dict[str, Floats]:
    """Return [R] errors by column."""
    errors = np.abs(means - truth.means)
    columns = {"mae": errors.mean(axis=1), "by_users": errors @ (truth.users / truth.users.sum())}
    large: NDArray[np.bool_] = truth.users >= MANY_USERS
    if large.any():
        columns["ge10"] = errors[:, large].mean(axis=1)
    return columns


def _score(runs: Floats) -> Score:
    spread = float(runs.std(ddof=1)) / len(runs) ** 0.5 if len(runs) > 1 else None
    return Score(float(runs.mean()), spread)


def smoothed(
    days: Sequence[RecordedDay], setting: SmootherSetting, estimator: str, parameters: Parameters, runs: Sequence[Drawn]
) -> tuple[PublishedRuns, PublishedRuns]:
    """Return the estimates of each HAT at the close of its slot, and at the end of its day.

    A HAT without a release has the estimate of the road in its cell and slot, and no interval: that of its readings is
    not published. In a cell without any release yet it counts as the mean of the estimates before it, at first U/2.
    """
    keys = {(slot.key, hat.cell): 0 for day in days for slot in day.slots for hat in slot.hats}
    columns = {key: column for column, key in enumerate(keys)}
    live, end = (np.full((3, len(runs), len(keys)), np.nan) for _ in range(2))
    for run, drawn in enumerate(runs):
        smoother = Smoother(setting)
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
            step()
        for estimate in smoother.settle():
            end[:, run, columns[f"{estimate.date}/{estimate.slot}", estimate.cell]] = _numbers(estimate)
    return (
        PublishedRuns(filled(live[0], setting.prior.width / 2), *live[1:]),
        PublishedRuns(filled(end[0], setting.prior.width / 2), *end[1:]),
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


@dataclass(frozen=True, slots=True)
class TrackerDesign:
    """Division of a bus's daily limit. share: of it, for the close of an hour; objective: of all queries."""

    share: float
    objective: Objective

    def keys(self, daily_limit: float, reference_width: float) -> TrackerKeys:
        """Return the keys of a policy with this limit (epsilon) and width as in `Prior`, its price by default."""
        return TrackerKeys(
            nano_floor(daily_limit),
            price=default_price(daily_limit, reference_width, self.objective),
            share=self.share,
            objective=self.objective,
        )


@dataclass(frozen=True, slots=True)
class DaysReplay:
    """Days that are replayed, and how."""

    days: Sequence[RecordedDay]
    upper_bound: int  # U, milli-units
    grid: Grid
    runs: int  # 1 or more
    noise: Noise  # that of a release
    prior: Prior  # of the value; the days' values are above its lower bound
    min_users: int = 1  # least number of buses of a tracker's query of a whole slot
    timetable: Timetable | None = None

    def tracker(self, keys: TrackerKeys) -> tuple[PublishedRuns, PublishedRuns]:
        """Return a tracker's estimates of each HAT at the close of its slot, and at the end of its day.

        Runs share the queries, which depend on counts alone; of a guessed prior also on its scale, which is that of the
        mean of their evidence.
        """
        upper_bound = self.upper_bound / _MILLI
        tracker = Tracker(keys, self.prior, self.runs, min_users=self.min_users)
        tracker.timetable = self.timetable
        live: list[PublishedRuns] = []
        end: list[PublishedRuns] = []
        for day in self.days:
            tracker.begin_day()
            first = 0
            for slot in day.slots:
                self._release(tracker, tracker.close_slot(slot.start_ms, slot.hour, slot.hats))
                last = first + len(slot.hats)
                live.append(_published(tracker.estimates(range(first, last)), upper_bound))
                first = last
            self._release(tracker, tracker.settle())
            end.append(_published(tracker.estimates(range(first)), upper_bound))
            tracker.end_day()
            step()
        return _joined(live), _joined(end)

    def _release(self, tracker: Tracker, queries: Iterator[ResidualQuery]) -> None:
        for query in queries:
            for track in tracker.tracks:
                track.learn(query, track.draw(query, tracker.values, self.noise))

    def smoothed(
        self, contender: Contender, capped: Sequence[RecordedDay], epsilon: float
    ) -> tuple[PublishedRuns, PublishedRuns, PublishedRuns]:
        """Return an estimator's releases, and the estimates from them: after each hour, and at the day's end.

        capped    the same days, with at most K HATs of each user
        epsilon   of each HAT

        A HAT in which no user has room counts as the mean of all values that were released before it, at first U/2:
        that is what a reader of the releases would guess. It has no interval.
        """
        parameters = Parameters(
            self.upper_bound,
            self.grid,
            epsilon,
            contender.grouping,
            contender.array_length,
            contender.quantiles,
            gamma=contender.gamma,
        )
        drawn: list[dict[Key, tuple[Users, Estimate]]] = [{} for _ in range(self.runs)]
        admitted = {
            (slot.key, hat.cell): Users.sorted(hat.pseudonyms, hat.counts, hat.sums)
            for day in capped
            for slot in day.slots
            for hat in slot.hats
        }
        for key in filter(admitted.__contains__, self._keys()):
            users = admitted[key]
            for run in drawn:
                estimate = contender.estimator.estimate(users, parameters, self.noise)
                if estimate is not None:
                    run[key] = users, estimate
        setting = SmootherSetting("", "", self.prior, (), lambda _: None)
        estimates = smoothed(self.days, setting, contender.estimator.name, parameters, drawn)
        return self._plain(drawn), *estimates

    def _plain(self, drawn: Sequence[Drawn]) -> PublishedRuns:
        keys = self._keys()
        means, low, high = np.full((3, len(drawn), len(keys)), np.nan)
        step = float(self.grid.milli) / _MILLI
        for run, released in enumerate(drawn):
            for column, key in enumerate(keys):
                if key in released:
                    _, estimate = released[key]
                    means[run, column] = estimate.mean * step
                    low[run, column], high[run, column] = (end * step for end in estimate.interval95)
        return PublishedRuns(filled(means, self.upper_bound / _MILLI / 2), low, high)

    def _keys(self) -> list[Key]:
        return [(slot.key, hat.cell) for day in self.days for slot in day.slots for hat in slot.hats]


def epsilon_of_hat(daily_limit: float, cap: int) -> float:
    """Return what each HAT may cost if a user enters K = `cap` HATs of a day: the limit over K, down to 1e-9."""
    return nano_floor(daily_limit) // cap / NANO


def _published(estimates: Sequence[Sequence[HatEstimate]], upper_bound: float) -> PublishedRuns:
    """Return the HATs' means within [0, U], and intervals of 1.96 standard deviations."""
    shape = len(estimates), len(estimates[0])
    means = np.array([[each.mean.mean for each in track] for track in estimates]).reshape(shape)
    variances = np.array([[each.mean.variance for each in track] for track in estimates]).reshape(shape)
    half_widths = _DEVIATIONS * np.sqrt(variances)
    return PublishedRuns(*(np.clip(each, 0, upper_bound) for each in (means, means - half_widths, means + half_widths)))


def _joined(parts: Sequence[PublishedRuns]) -> PublishedRuns:
    return PublishedRuns(
        *(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("means", "low", "high"))
    )
