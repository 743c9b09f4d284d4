"""Replay recorded days through the code of releases, with its noise: the tracker, and the papers' estimators.

The noise is that of a release, drawn by the `Noise` that the caller passes: no result has a seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hatcast.lab.days import RecordedDay
from hatcast.lab.evaluate.contenders import Contender
from hatcast.lab.evaluate.days.scores import Published
from hatcast.lab.evaluate.days.smoothed import Drawn, Key, filled, smoothed
from hatcast.stream.estimators import Estimate, Parameters, Users
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys, default_price
from hatcast.stream.tracker.query import Query
from hatcast.stream.tracker.track import HatEstimate
from hatcast.stream.tracker.tracker import Tracker
from hatcast.stream.units import NANO, nano_floor

_DEVIATIONS: Final = 1.96  # of a normal distribution, on either side: 95 %
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class TrackerDesign:
    """Division of a bus's daily limit. share: of it, for the close of an hour; objective: of all queries."""

    share: float
    objective: Objective

    def keys(self, daily_limit: float, upper_bound: float) -> TrackerKeys:
        """Return the keys of a policy with this limit (epsilon) and upper bound, its price by default."""
        return TrackerKeys(
            nano_floor(daily_limit),
            price=default_price(daily_limit, upper_bound, self.objective),
            share=self.share,
            objective=self.objective,
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """Days that are replayed, and how.

    upper_bound   U, milli-units
    runs          1 or more
    noise         that of a release
    """

    days: Sequence[RecordedDay]
    upper_bound: int
    grid: Grid
    runs: int
    noise: Noise

    def tracker(self, keys: TrackerKeys) -> tuple[Published, Published]:
        """Return a tracker's estimates of each HAT at the close of its slot, and at the end of its day.

        Runs share the queries, which depend on counts alone.
        """
        upper_bound = self.upper_bound / _MILLI
        tracker = Tracker(keys, upper_bound, self.runs)
        live: list[Published] = []
        end: list[Published] = []
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
        return _joined(live), _joined(end)

    def _release(self, tracker: Tracker, queries: Iterator[Query]) -> None:
        for query in queries:
            for track in tracker.tracks:
                track.learn(query, track.draw(query, tracker.values, self.noise))

    def estimator(self, contender: Contender, capped: Sequence[RecordedDay], epsilon: float) -> Published:
        """Return an estimator's release of each HAT, for this epsilon of each HAT.

        capped   the same days, with at most K HATs of each user

        A HAT in which no user has room counts as the mean of all values that were released before it, at first U/2:
        that is what a reader of the releases would guess. It has no interval.
        """
        return self.smoothed(contender, capped, epsilon)[0]

    def smoothed(
        self, contender: Contender, capped: Sequence[RecordedDay], epsilon: float
    ) -> tuple[Published, Published, Published]:
        """Return an estimator's releases, and the estimates from them: after each hour, and at the day's end.

        See `estimator` and `hatcast.lab.evaluate.days.smoothed`.
        """
        parameters = Parameters(
            self.upper_bound,
            self.grid,
            epsilon,
            contender.grouping,
            contender.array_length,
            contender.quantiles,
        )
        drawn: list[dict[Key, tuple[Users, Estimate]]] = [{} for _ in range(self.runs)]
        for key, users in _admitted(capped, self._keys()).items():
            for run in drawn:
                estimate = contender.estimator.estimate(users, parameters, self.noise)
                if estimate is not None:
                    run[key] = users, estimate
        estimates = smoothed(self.days, contender.estimator.name, parameters, drawn)
        return self._plain(drawn), *estimates

    def _plain(self, drawn: Sequence[Drawn]) -> Published:
        keys = self._keys()
        means, low, high = np.full((3, len(drawn), len(keys)), np.nan)
        step = float(self.grid.milli) / _MILLI
        for run, released in enumerate(drawn):
            for column, key in enumerate(keys):
                if key in released:
                    _, estimate = released[key]
                    means[run, column] = estimate.mean * step
                    low[run, column], high[run, column] = (end * step for end in estimate.interval95)
        return Published(filled(means, self.upper_bound / _MILLI / 2), low, high)

    def _keys(self) -> list[Key]:
        return [(slot.key, hat.cell) for day in self.days for slot in day.slots for hat in slot.hats]


def _admitted(capped: Sequence[RecordedDay], keys: Sequence[Key]) -> dict[Key, Users]:
    """Return the users that K admits to those of these HATs that have any, in the order of the keys."""
    found = {
        (slot.key, hat.cell): Users.sorted(hat.pseudonyms, hat.counts, hat.sums)
        for day in capped
        for slot in day.slots
        for hat in slot.hats
    }
    return {key: found[key] for key in keys if key in found}


def epsilon_of_hat(daily_limit: float, cap: int) -> float:
    """Return what each HAT may cost if a user enters K = `cap` HATs of a day: the limit over K, down to 1e-9."""
    return nano_floor(daily_limit) // cap / NANO


def _published(estimates: Sequence[Sequence[HatEstimate]], upper_bound: float) -> Published:
    """Return the HATs' means within [0, U], and intervals of 1.96 standard deviations."""
    shape = len(estimates), len(estimates[0])
    means = np.array([[each.mean.mean for each in track] for track in estimates]).reshape(shape)
    variances = np.array([[each.mean.variance for each in track] for track in estimates]).reshape(shape)
    half_widths = _DEVIATIONS * np.sqrt(variances)
    return Published(*(np.clip(each, 0, upper_bound) for each in (means, means - half_widths, means + half_widths)))


def _joined(parts: Sequence[Published]) -> Published:
    return Published(
        *(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("means", "low", "high"))
    )
