"""Dates of a policy of loads, whose buses differ by less than its prior expects, so that its scale falls."""

from functools import partial

from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.policy import read_policy
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from tests.unit.test_tracker_release import Counting, Ledger
from tests.unit.test_tracker_release import slots as slots_of

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


slots = partial(slots_of, of=POLICY, means=(18_000, 22_000))
"""Slots of a date with their HATs: a passenger or two more or less in one than in another"""


def ledger(commits: int = 10**9) -> Ledger:
    return Ledger(commits, slots)
