"""Running means that cost nothing more (`hats.running`), of a policy with the same cost of a day.

A continual policy books its whole horizon, max_cells x epsilon, on every date of it. A policy of releases or a tracker
with this daily limit costs a user's day as much. Its guarantee is for a day: the days of a horizon add up.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hatcast.lab.plan.continual.kinds import Errors, Spread, Stream, errors_of
from hatcast.lab.plan.continual.users import Users, run_of
from hatcast.lab.plan.counts import Counts
from hatcast.lab.plan.forecast import Forecast
from hatcast.stream.continual import KINDS
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.hybrid_keys import NoiseKind
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys, default_price, rounded_price
from hatcast.stream.units import nano_floor


def daily_cost(stream: Stream) -> float:
    """Return the epsilon that a horizon costs a user, which each of its dates books."""
    return stream.participation.max_cells * stream.epsilon


def release_epsilon(stream: Stream) -> float:
    """Return the epsilon of a HAT at the same cost of a day: a user's day enters as many HATs as are declared."""
    return stream.epsilon / stream.day_participations


def release_errors(stream: Stream, users: Users) -> Errors:
    """Return the errors of running means of releases, if each user has one value in a HAT.

    The noise of each HAT is independent, as that of kind `laplace`, for a user in one slot.
    """
    one = replace(stream.participation, max_slots=1, min_separation=1)
    of_hats = replace(stream, participation=one, epsilon=release_epsilon(stream))
    noise = run_of(KINDS[ContinualKind.LAPLACE](of_hats.setting(NoiseKind.LAPLACE)), users)
    return errors_of(noise, users, stream.bound)


def tracker_errors(stream: Stream, counts: Counts, progress: Callable[[int], None]) -> Spread:
    """Return upper bounds of the errors of running means of a tracker's estimates, over the HATs of the horizon.

    The days of `counts` are repeated. Errors of estimates are correlated, and the deviation of a weighted mean is at
    most the weighted mean of the deviations. Estimates of a date are those at the close of each slot, and on later
    dates those at its end. Calls `progress` with 1 after each day.
    """
    limit = daily_cost(stream)
    price = rounded_price(default_price(limit, stream.bound, Objective.CELLS))
    forecast = Forecast(TrackerKeys(nano_floor(limit), price), stream.bound, counts)
    settled: dict[int, float] = defaultdict(float)  # by cell: users times deviation, of the dates before
    running: dict[int, int] = defaultdict(int)
    found = []
    for day, (live, end) in enumerate(forecast.deviations(stream.days, ())):
        slots = counts.days[day % len(counts.days)]
        today = settled.copy()
        for slot, deviations in zip(slots, live, strict=True):
            for hat, deviation in zip(slot.hats, deviations[0], strict=True):
                running[hat.cell] += len(hat.buses)
                today[hat.cell] += len(hat.buses) * deviation
                found.append(today[hat.cell] / running[hat.cell])
        for hat, deviation in zip((hat for slot in slots for hat in slot.hats), end[0], strict=True):
            settled[hat.cell] += len(hat.buses) * deviation
        progress(1)
    return Spread.of(np.array(found))
