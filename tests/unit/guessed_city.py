"""Dates of a policy of loads, whose buses differ by less than its prior expects, so that its scale falls."""

from collections.abc import Iterator

import numpy as np

from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.policy import read_policy
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from hatcast.stream.tracker.tracker import HatUsers
from tests.unit.test_tracker_release import CELLS, Counting, Ledger

UPPER = 120.0
DATES = ("2022-01-02", "2022-01-03", "2022-01-04", "2022-01-05")
POLICY = read_policy(
    {
        "name": "loads",
        "value": {"name": "load", "unit": "passengers", "lower": 0.0, "upper": UPPER},
        "timezone": "Asia/Kolkata",
        "privacy": {"daily_limit": 10.0},
        "estimator": {"name": "tracker"},
    },
    {**ESTIMATOR_KEYS, **TRACKER_ESTIMATOR},
    lambda _: "",
)


class Constant(Counting):
    """Noise that is the same in each draw: a run that goes on after a crash makes the numbers of one without."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        self.draws += 1
        return Noisy(value + 1_000, distance / epsilon)


def hat(cell: str, users: int, seed: int) -> HatUsers:
    """The buses of a HAT, with a passenger or two more or less than others."""
    made = np.random.default_rng(seed)
    counts = made.integers(5, 60, users)
    return HatUsers(cell, np.arange(100, 100 + users, dtype=np.uint64), counts, counts * made.integers(18_000, 22_000))


def slots(date: str) -> Iterator[tuple[Slot, list[HatUsers]]]:
    for number, slot in enumerate(Calendar(POLICY).slots_of(date)):
        if slot.outside is None:
            yield slot, [hat(cell, 2 + 5 * at, 10 * number + at) for at, cell in enumerate(CELLS)]


def ledger(commits: int = 10**9) -> Ledger:
    return Ledger(commits, slots)
