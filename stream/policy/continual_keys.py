"""Keys of a policy that releases running sums and means over a horizon, and its horizons.

A horizon is `horizon_days` local dates. Each cell has one running sum, from the first slot of the horizon on, and its
epsilon is for the whole horizon. So the sensitivity depends on the number of slots that one user enters in a cell, and
on the number of its cells: both are declared here and enforced by the fold (docs/specification/fold.md).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from hatcast.stream.policy.estimator_keys import EstimatorKeys, Relation
from hatcast.stream.policy.hybrid_keys import NoiseKind
from hatcast.stream.policy.query import Period

CONTINUAL: Final = "continual"
"""name of the estimator of these policies, in records and in `Policy.estimator`"""
CONTINUAL_ESTIMATOR: Final[Mapping[str, EstimatorKeys]] = MappingProxyType(
    {CONTINUAL: EstimatorKeys(frozenset({Relation.REPLACE}), MappingProxyType({}))}
)
FIRST_MONDAY: Final = date(1970, 1, 5)  # first date of a policy without one, so that weeks are Monday to Sunday


class ContinualKind(StrEnum):
    """Mechanism of a running sum.

    LAPLACE and GAUSSIAN add independent noise to each slot; the others add correlated noise.
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    TREE = "tree"
    KARY = "kary"
    TOEPLITZ = "toeplitz"
    BLT = "blt"
    WITHHOLD_RELEASE = "withhold_release"


class AtEnd(StrEnum):
    """End of a horizon: begin the next one with a new charge, or release nothing more."""

    RENEW = "renew"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class ContinualKeys:
    """Keys of `[policy.continual]` with defaults filled in.

    horizon_days    D, local dates of a horizon
    max_slots       k: most slots that a user enters in one cell of a horizon
    min_separation  b: two slots of one user in one cell are at least this many slots apart
    max_cells       most cells that a user enters in a horizon
    branching       of kind `kary`, odd; None: the one of the least maximum error, or another kind
    buffers         of kind `blt`; None for the others
    first           first local date of the first horizon
    slots           n: slots of a horizon, whatever the local clock skips
    """

    kind: ContinualKind
    noise: NoiseKind
    horizon_days: int
    max_slots: int
    min_separation: int
    max_cells: int
    branching: int | None
    buffers: int | None
    at_end: AtEnd
    first: date
    slots: int

    def horizon_of(self, day: str) -> Period | None:
        """Return the horizon that contains a local date.

        None: the date is before the first horizon, or after the last.
        """
        past = (date.fromisoformat(day) - self.first).days
        if past < 0 or (self.at_end is AtEnd.STOP and past >= self.horizon_days):
            return None
        return Period(self.first + timedelta(days=past - past % self.horizon_days), self.horizon_days)

    def horizons_in(self, days: int) -> int:
        """Return the most horizons that this many consecutive days touch."""
        return 1 if self.at_end is AtEnd.STOP else 1 + -(-(days - 1) // self.horizon_days)

    def canonical(self) -> dict[str, Any]:
        """Return the keys that are hashed into policy_id."""
        own = {"branching": self.branching, "buffers": self.buffers}
        return {
            "kind": self.kind.value,
            "noise": self.noise.value,
            "horizon_days": self.horizon_days,
            "max_slots": self.max_slots,
            "min_separation": self.min_separation,
            "max_cells": self.max_cells,
            "at_end": self.at_end.value,
            **({} if self.first == FIRST_MONDAY else {"from": self.first.isoformat()}),
            **{key: value for key, value in own.items() if value is not None},
        }


def part_of_delta(delta: float, parts: int) -> float:
    """Return the largest delta of one part, such as a HAT or a cell, with which all of them sum to at most `delta`."""
    part = delta / parts
    while Fraction(part) * parts > Fraction(delta):
        part = math.nextafter(part, 0)
    return part
