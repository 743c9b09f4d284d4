"""Alarms of `hats.estimates`: how many are false, and how many incidents they find. No services.

Counts are those of five days of Capital Metro. Speeds are those of the tracker's own model, of another city in each
run, or the recorded ones; the noise is simulated. An incident: for three hours buses go at half their speed, in one
hexagon, in a hexagon and its neighbours, or in the whole city. It is found if a hexagon of it has an alarm at the close
of its first hour or of its second. tests/statistics/test_alarms.py holds the figures to their limits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

import click
import h3.api.basic_str as h3
import numpy as np

from bench.figures import Figure, say, show
from hatcast.lab.days import RecordedDay, RecordedSlot
from hatcast.lab.evaluate.days_replay import TrackerDesign
from hatcast.lab.evaluate.simulation import Floats
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.records import CountsRecord, NoiseRecord, ReleaseRecord
from hatcast.stream.tracker.alarms import AREAS, OF_TRACKER, Alarms, Area
from hatcast.stream.tracker.counts import DayCounts, HatCounts, Integers
from hatcast.stream.tracker.model import CITY, DAY, HOURS, Covariance, prior_means, shared_rows
from hatcast.stream.tracker.observations import ReleasedSlot, SlotKey
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import ResidualQuery
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting
from hatcast.stream.tracker.track import Track
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import HOUR_MS
from tests.statistics.five_days import POLICY, seeded
from tests.statistics.five_days import days as recorded_days

_LASTS: Final = 3  # slots of an incident
_WITHIN: Final = 2  # slots after whose first it has to be found
_SPEED: Final = 30.0  # km/h, of a simulated city
_UPPER_BOUND: Final = POLICY.upper_bound / 1000
_PRIOR: Final = Prior.of(_UPPER_BOUND)
_MONTH: Final = 30  # days
_MOST_A_MONTH: Final = 2.0  # false alarms under the model: about one is meant, and a few are seen here
_LEARNT: Final = 5  # first days, whose alarms and incidents do not count: the model knows the city too little
_MIN_USERS: Final = 3
_WATCH_SHARE: Final = 0.5  # the default


class _Incident(NamedTuple):
    """cells: that are slow; first: position of its first slot in the day."""

    cells: frozenset[str]
    first: int

    def slows(self, slot: int) -> bool:
        return self.first <= slot < self.first + _LASTS


_NONE: Final = _Incident(frozenset(), 0)


class Plan(NamedTuple):
    """runs: each with noise of its own; days: that count; learnt: days before, whose alarms do not count."""

    runs: int
    days: int
    learnt: int = _LEARNT
    seed: int = 1


@dataclass(slots=True)
class Found:
    """Numbers of all runs together.

    days        that count, over all runs
    alarms      hours with an alarm after one without
    incidents   of which `found` are found
    """

    days: int = 0
    alarms: int = 0
    incidents: int = 0
    found: int = 0

    @property
    def a_month(self) -> float:
        """Beginnings of alarms in 30 days."""
        return self.alarms * _MONTH / self.days

    @property
    def share(self) -> float:
        """Part of the incidents that is found."""
        return self.found / self.incidents

    def count(self, incident: _Incident, alarms: Sequence[Mapping[str, Area]]) -> None:
        """Count a day. alarms: after each slot, by cell."""
        self.days += 1
        self.alarms += sum(bool(after) and not before for before, after in pairwise([{}, *alarms]))
        if incident.cells:
            self.incidents += 1
            seen = alarms[incident.first : incident.first + _WITHIN]
            self.found += any(not incident.cells.isdisjoint(of_slot) for of_slot in seen)


class _City:
    """A city of the tracker's model: speeds of roads and of buses, at random."""

    def __init__(self, random: np.random.Generator) -> None:
        self._variances, self._random = _PRIOR.variances, random
        self._shared = random.multivariate_normal(prior_means(_PRIOR), Covariance(self._variances).shared)
        self._shared[CITY] = _SPEED
        self._cells: Floats = np.empty(0)
        self._buses: Floats = np.empty(0)

    def begin_day(self) -> None:
        self._shared[DAY] = self._normal(self._variances.day)
        self._shared[CITY] += self._normal(HOURS * self._variances.city_drift)
        self._cells = self._cells + self._normal(np.full(len(self._cells), HOURS * self._variances.cell_drift))
        self._buses = np.empty(0)

    def values(self, day: DayCounts, first: int) -> Floats:
        """Return the mean of each contribution to HATs from number `first` on."""
        hats, variances = day.hats[first:], self._variances
        contributions = slice(hats[0].first, None)
        bus, of_hat = day.bus[contributions], day.hat[contributions] - first
        cells = np.array([hat.cell for hat in hats])
        self._cells = self._longer(self._cells, cells, variances.cell)
        self._buses = self._longer(self._buses, bus, variances.bus)
        own = self._normal(np.full(len(hats), variances.hat))
        roads = shared_rows(hats) @ self._shared + self._cells[cells] + own
        chance: Floats = self._normal(variances.bus_hat + variances.reading / day.readings[contributions])
        return np.asarray(np.clip(roads[of_hat] + self._buses[bus] + chance, 0, _UPPER_BOUND))

    def _longer(self, known: Floats, numbers: Integers, variance: float) -> Floats:
        return np.concatenate((known, self._normal(np.full(max(0, int(numbers.max()) + 1 - len(known)), variance))))

    def _normal(self, variances: Floats | float) -> Any:
        return self._random.normal(0, np.sqrt(variances))


class _Run:
    """One sequence of released numbers, with its alarms. city: None for recorded speeds."""

    def __init__(self, track: Track, city: _City | None) -> None:
        self.track, self._city = track, city
        self._values: Floats = np.empty(0)
        self._alarms = Alarms(OF_TRACKER)
        self.incident = _NONE

    def begin_day(self, incident: _Incident) -> None:
        self._values, self._alarms, self.incident = np.empty(0), Alarms(OF_TRACKER), incident
        if self._city is not None:
            self._city.begin_day()

    def add(self, slot: int, cells: Sequence[str], first: int, tracker: Tracker) -> None:
        """Add the speeds of a slot. cells: of its HATs; first: number of its first HAT."""
        day = tracker.schedule.day
        start = day.hats[first].first
        values = tracker.values[start:] if self._city is None else self._city.values(day, first)
        slow = np.array([cell in self.incident.cells for cell in cells]) & self.incident.slows(slot)
        self._values = np.concatenate((self._values, np.where(slow[day.hat[start:] - first], values / 2, values)))

    def learn(self, query: ResidualQuery, noise: Noise) -> tuple[float, float]:
        """Release a query. Return what was expected of it, and its innovation."""
        observation, means = query.observation, self.track.means
        expected = means.expected(observation, query.gain)
        z = self.track.learn(query, self.track.draw(query, self._values, noise))
        return expected, z * query.gain.variance**0.5

    def release(self, query: ResidualQuery, first: int, noise: Noise) -> None:
        """Release a query of the present slot. first: number of the slot's first HAT."""
        observation, factor = query.observation, self.track.calibration.factor
        expected, innovation = self.learn(query, noise)
        share = float(observation.weights[observation.hats >= first].sum())
        variance = factor * (query.gain.variance - query.noise) + query.noise
        self._alarms.add(observation.cells, share, expected, innovation, variance)

    def close_slot(self, names: Sequence[str]) -> dict[str, Area]:
        return self._alarms.close_slot(names)


def watch_list() -> list[str]:
    """Return the hexagon with most users of which all six neighbours have HATs on each day, and these."""
    users = Counter[str]()
    of_days: list[set[str]] = []
    for day in recorded_days():
        hats = [hat for slot in day.slots for hat in slot.hats]
        users.update({hat.cell: 0 for hat in hats})
        for hat in hats:
            users[hat.cell] += len(hat.counts)
        of_days.append({hat.cell for hat in hats})
    always = set.intersection(*of_days)
    centre = next(cell for cell, _ in users.most_common() if always.issuperset(h3.grid_disk(cell, 1)))
    return [centre, *h3.grid_ring(centre, 1)]


def simulate(
    total: float,
    plan: Plan,
    *,
    is_recorded: bool,
    watch: Sequence[str] = (),
    kinds: Sequence[Area | None] = (None, *AREAS),
) -> dict[Area | None, Found]:
    """Replay the days for each area with an incident in each run and day that counts, and for None without any.

    All of them share the queries, which depend on counts alone.

    total         epsilon of a bus and day
    is_recorded   whether speeds are the recorded ones, not those of a model city in each run
    watch         the watch list; incidents are then in its hexagons, those of neighbours in all of them
    """
    days = recorded_days()
    random = np.random.default_rng(plan.seed)
    noise = seeded(plan.seed)
    kinds = [each for each in kinds for _ in range(plan.runs)]
    keys = TrackerDesign(0.3, Objective.CELLS).keys(total, _UPPER_BOUND)
    keys = replace(keys, watch=frozenset(watch), watch_share=_WATCH_SHARE if watch else 0.0)
    tracker = Tracker(keys, _PRIOR, len(kinds), min_users=_MIN_USERS)
    runs = [_Run(track, None if is_recorded else _City(random)) for track in tracker.tracks]
    found, names = {kind: Found() for kind in kinds}, dict[str, int]()
    for number in range(plan.learnt + plan.days):
        day, counts = days[number % len(days)], number >= plan.learnt
        tracker.begin_day()
        for run, kind in zip(runs, kinds, strict=True):
            run.begin_day(_NONE if kind is None or not counts else _incident(day, kind, watch, random))
        alarms = list(_slots_of(number, day, tracker, runs, names, noise))
        for query in tracker.settle():
            for run in runs:
                run.learn(query, noise)
        if counts:
            for run, kind, of_run in zip(runs, kinds, zip(*alarms, strict=True), strict=True):
                found[kind].count(run.incident, of_run)
    return found


def simulate_releases(
    epsilon: float, plan: Plan, kinds: Sequence[Area | None] = (None, *AREAS)
) -> dict[Area | None, Found]:
    """Simulate model cities of which each HAT has a release with this epsilon: records that go through the smoother.

    Their noise is about that of `array_averaging`: of scale U / users / epsilon.
    """
    random = np.random.default_rng(plan.seed)
    found = {kind: Found() for kind in kinds}
    setting = SmootherSetting("city", "", Prior.of(_UPPER_BOUND), (), lambda _: None)
    for kind in [each for each in kinds for _ in range(plan.runs)]:
        city, smoother, cells = _City(random), Smoother(setting), dict[str, int]()
        for number in range(plan.learnt + plan.days):
            day = recorded_days()[number % len(recorded_days())]
            counts = number >= plan.learnt
            incident = _NONE if kind is None or not counts else _incident(day, kind, (), random)
            alarms = []
            for slot, means in _means_of(day, city, incident, cells):
                records = [
                    _release(f"day {number:05}", slot.hour, hat, mean, epsilon, random)
                    for hat, mean in zip(slot.hats, means.tolist(), strict=True)
                ]
                key = SlotKey(records[0].date, is_settlement=False, start_ms=(number * HOURS + slot.hour) * HOUR_MS)
                made = smoother.add(ReleasedSlot(key, records))
                alarms.append({each.cell: each.alarm for each in made if each.alarm and each.date == key.date})
            if counts:
                found[kind].count(incident, alarms)
    return found


def _means_of(
    day: RecordedDay, city: _City, incident: _Incident, cells: dict[str, int]
) -> Iterator[tuple[RecordedSlot, Floats]]:
    """Yield each slot with the mean of all readings of its HATs. cells: numbers of the cells so far."""
    city.begin_day()
    counted, buses = DayCounts(_PRIOR.variances), dict[int, int]()
    for position, slot in enumerate(day.slots):
        numbers = counted.add(
            [
                HatCounts(
                    cells.setdefault(hat.cell, len(cells)),
                    slot.hour,
                    np.array([buses.setdefault(each, len(buses)) for each in hat.pseudonyms.tolist()]),
                    hat.counts,
                )
                for hat in slot.hats
            ]
        )
        start = counted.hats[numbers.start].first
        weighted = city.values(counted, numbers.start) * counted.weight[start:]
        means = np.bincount(counted.hat[start:] - numbers.start, weighted)
        slow = np.array([hat.cell in incident.cells for hat in slot.hats]) & incident.slows(position)
        yield slot, np.where(slow, means / 2, means)


def _release(
    date: str, hour: int, hat: HatUsers, mean: float, epsilon: float, random: np.random.Generator
) -> ReleaseRecord:
    """Return a release, with the fields that a smoother reads."""
    weights = hat.counts / hat.counts.sum()
    scale = _UPPER_BOUND / len(weights) / epsilon
    return ReleaseRecord(
        release_id=f"city/{date}T{hour:02}:00/{hat.cell}",
        policy_id="",
        status="released",
        cell=hat.cell,
        date=date,
        slot=f"{hour:02}:00",
        start="",
        end="",
        raw=mean + float(random.laplace(0, scale)),
        noise=NoiseRecord(kind="laplace", scale=scale),
        interval95=(0.0, _UPPER_BOUND),
        counts=CountsRecord(
            users=len(weights), readings=int(hat.counts.sum()), squares=float(weights @ weights), shift=0.0
        ),
        estimator="array_averaging",
        epsilon=epsilon,
        relation="replace",
        released_at="",
    )


def _slots_of(
    number: int, day: RecordedDay, tracker: Tracker, runs: Sequence[_Run], names: dict[str, int], noise: Noise
) -> Iterator[list[dict[str, Area]]]:
    """Yield the alarms of each run after each slot. names: of the cells so far, in the order of their numbers."""
    first = 0
    for position, slot in enumerate(day.slots):
        cells = [hat.cell for hat in slot.hats]
        names.update((cell, len(names)) for cell in cells if cell not in names)
        queries = tracker.close_slot((number * HOURS + slot.hour) * HOUR_MS, slot.hour, slot.hats)
        for run in runs:
            run.add(position, cells, first, tracker)
        listed = list(names)
        for query in queries:
            for run in runs:
                run.release(query, first, noise)
        yield [run.close_slot(listed) for run in runs]
        first += len(cells)


def _incident(day: RecordedDay, area: Area, watch: Sequence[str], random: np.random.Generator) -> _Incident:
    """Return an incident whose middle has a HAT in each of its hours: any other cannot be seen."""
    cells = [{hat.cell for hat in slot.hats} for slot in day.slots]
    hours = [slot.hour for slot in day.slots]
    places = [
        (first, cell)
        for first in range(len(day.slots) - _LASTS + 1)
        if hours[first + _LASTS - 1] - hours[first] == _LASTS - 1
        for cell in sorted(set.intersection(*cells[first : first + _LASTS]))
        if not watch or cell in (watch[:1] if area == "neighbours" else watch)
    ]
    first, centre = places[random.integers(len(places))]
    around = set().union(*cells) if area == "city" else h3.grid_disk(centre, 1) if area == "neighbours" else {centre}
    return _Incident(frozenset(around), first)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--totals", default="2,5,10", show_default=True, help="Epsilons of a bus and day.")
@click.option("--runs", default=16, show_default=True, type=click.IntRange(1, 1000), help="Cities, and noise.")
@click.option("--days", default=15, show_default=True, type=click.IntRange(1, 1000), help="Of a model city.")
@click.option("--seed", default=1, show_default=True)
def command(as_json: bool, totals: str, runs: int, days: int, seed: int) -> int:  # noqa: FBT001 - click's way
    """Measure false alarms a month, and the share of incidents that are found within two hours."""
    worlds = {"model": Plan(runs, days, seed=seed), "recorded": Plan(runs, len(recorded_days()), 0, seed)}
    lists = {"": [], "_watched": watch_list()}
    figures = list(_figures("releases", simulate_releases(1, worlds["model"]), _MOST_A_MONTH))
    for total, (world, plan), (suffix, watch) in product(totals.split(","), worlds.items(), lists.items()):
        name = f"{world}_{total}{suffix}"
        found = simulate(float(total), plan, is_recorded=world == "recorded", watch=watch)
        say(f"{name}: {found[None].days} days without incidents")
        figures += _figures(name, found, None if world == "recorded" else _MOST_A_MONTH)
    return show(f"alarms: {runs} runs of {days} days, and of the recorded days", figures, as_json=as_json)


def _figures(name: str, found: Mapping[Area | None, Found], most: float | None) -> Iterator[Figure]:
    yield Figure(f"{name}_alarms", found[None].a_month, "a month", most=most)
    yield from (Figure(f"{name}_found_{area}", found[area].share, "of incidents") for area in AREAS)
