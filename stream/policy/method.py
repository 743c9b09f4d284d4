"""Methods of a policy: means, tracker, continual sums, hybrid means. Each is one type with its own keys and file.

A question about every policy is a member of `MethodKeys`, with the answer for a mean of each HAT. Where the answer is
code of a higher room, that room has a `match` over the types of `Method` (hatcast.stream.policy.policy).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

NEVER: Final = "9999-99-99"  # after every local date


class NoiseKind(StrEnum):
    """Distribution of the operator's and of the devices' noise."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


class MethodCost(NamedTuple):
    """Cost that a method reserves for each user before a local date's first release: `places` x `epsilon_nano`."""

    name: str
    places: int
    epsilon_nano: int

    @property
    def amount(self) -> int:
        """Reserved cost in 1e-9."""
        return self.places * self.epsilon_nano


class Hashed(NamedTuple):
    """Keys that are hashed into policy_id, of [policy.privacy], of [policy.estimator], and of [policy] itself."""

    privacy: Mapping[str, Any] = {}
    estimator: Mapping[str, Any] = {}
    policy: Mapping[str, Any] = {}


class MethodKeys:
    """Keys of a method, with defaults filled in. The members say what any policy may be asked."""

    __slots__ = ()

    @property
    def is_pure(self) -> bool:
        """Whether charges are pure epsilon. If not, the charges of a day hold together with `delta`."""
        return True

    @property
    def takes_reports(self) -> bool:
        """Whether releases use devices' reports."""
        return False

    @property
    def settles_days(self) -> bool:
        """Whether a date is settled when it is over, so a HAT has several releases, and readers see estimates."""
        return False

    @property
    def has_horizons(self) -> bool:
        """Whether the privacy unit is a user's horizon, so releases charge nothing beyond its reservation."""
        return False

    def charged(self, epsilon: float) -> float:
        """Return the epsilon that one release charges; epsilon: of [policy.privacy]."""
        return epsilon

    def reserved(self, _epsilon: float, _date: str | None = None) -> MethodCost | None:
        """Return the cost that a local date reserves, None for nothing. date: None for any date with releases."""
        return None

    def dates(self, from_date: str | None) -> tuple[str, str]:
        """Return the first local date that counts, and the first date after the last. from_date: `policy.from`."""
        return from_date or "", NEVER

    def hashed(self) -> Hashed:
        """Return the keys that are hashed into policy_id. An optional key at its default is left out."""
        return Hashed()
