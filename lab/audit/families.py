"""Interface of a family: neighbouring inputs of one part of a policy, and the code that releases them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy

Run = Callable[[Noise], list[bytes]]
"""Releases one input with this noise, and returns the bytes of all that is published, in order."""


class RandomNumbers(Protocol):
    """Random numbers that choose neighbours and sides. They protect nothing, so they may have a seed."""

    def integers(self, low: int, high: int) -> int:
        """Return an integer in [low, high)."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The (epsilon, delta) promised for two neighbours: p <= exp(epsilon) q + delta for any set of outputs."""

    epsilon: float
    delta: float = 0.0

    @classmethod
    def of_part(cls, policy: Policy, epsilon: float, parts: int) -> "Claim":
        """Return the claim of one of so many HATs or cells of a user's period, whose deltas sum to the policy's.

        It is computed here, from the policy alone: the code under audit computes its own.    [docs/proofs.md]
        """
        return cls(epsilon, 0.0 if policy.is_pure else policy.delta / parts)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two neighbouring inputs.

    name   in one line, without anything of real data: they are made up
    data   of the family, for `Family.varied`
    """

    name: str
    one: Run
    other: Run
    data: Any


class Family(Protocol):
    """Neighbouring inputs of one part of a policy.

    name      such as `mean`
    claim     read from the policy, not from the code under audit
    is_alone  whether noise is requested alone and added later, so that `shifts` compares requests. Otherwise all that
              depends on data is a value that the noise is requested for, and `transcript.replayed` does
    sample_divisor   releases are drawn for one of so many samples; 0: for none, as of whole days, since a bound is
              never above the logarithm of the samples. 4 where a release has many noisy numbers: it takes longer, and
              each number shows little
    """

    name: str
    claim: Claim
    is_alone: bool
    sample_divisor: int

    def worst(self) -> Sequence[Neighbours]:
        """Return the neighbours that the proofs name: ends of the range, the busiest and the least busy user, ..."""
        ...

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """Return random neighbours."""
        ...

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """Return neighbours that differ a little from the given ones."""
        ...
