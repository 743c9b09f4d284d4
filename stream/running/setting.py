"""Public parameters of running means, from the policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.running_keys import Running, RunningOf
from hatcast.stream.running.inputs import Weights
from hatcast.stream.tracker.smoother import SmootherSetting


@dataclass(frozen=True, slots=True)
class RunningSetting:
    """Public parameters of running means, from the policy.

    means   the running means of the policy
    value   range and unit of the value, its digits, and the policy's name and id
    """

    means: Sequence[Running]
    value: SmootherSetting
    weights: Weights
    calendar: Calendar

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the setting of a policy."""
        return cls(policy.running, SmootherSetting.of(policy), Weights.of(policy), Calendar(policy))

    @property
    def kinds(self) -> frozenset[RunningOf]:
        """Kinds of inputs that are read."""
        return frozenset(running.of for running in self.means)

    @property
    def days(self) -> int:
        """Number of local dates up to the present one whose inputs are kept."""
        return max((running.days for running in self.means), default=0)
