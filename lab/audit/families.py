"""Interface of a family: neighbouring inputs of one part of a policy, and the code that releases them.

Random choices are of made-up neighbours and sides. They protect nothing: releases draw from
stream/mechanisms/system.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.fold.packing import Row, pack, strip
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy

Run = Callable[[Noise], list[bytes]]
"""Releases one input with this noise, and returns the bytes of all that is published, in order."""
_CHUNK: Final = 64


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


def chunks_of(users: Sequence[tuple[int, int, int]], others: Sequence[tuple[int, ...]] = ()) -> list[bytes]:
    """Pack users into chunks.

    users    (pseudonym, readings, sum in milli-units) of each
    others   sums of the further values of each, of a policy with several
    """
    rows = [
        Row(
            pseudonym.to_bytes(8, "big"),
            count,
            total,
            -(-total // count),
            (1 << min(count, _CHUNK)) - 1,
            others[at] if others else (),
        )
        for at, (pseudonym, count, total) in enumerate(users)
    ]
    return [pack(rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK)]


def random_share(random: RandomNumbers) -> float:
    """Return a user's mean as a share of the range: an end of the range in two of three cases."""
    return (0.0, 1.0, random.random())[random.integers(0, 3)]


def stripped(chunks: Sequence[bytes]) -> list[bytes]:
    """Return the part of chunks that is retained for queries."""
    return [strip(chunk) for chunk in chunks]


class SeededNumbers:
    """Random numbers, with a seed or without: see `hatcast.lab.audit.families.RandomNumbers`."""

    def __init__(self, seed: int | None) -> None:
        self._generator = np.random.default_rng(seed)  # simulation: never noise of a release

    def integers(self, low: int, high: int) -> int:
        """Return an integer in [low, high)."""
        return int(self._generator.integers(low, high))

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return float(self._generator.random())

    def coins(self, number: int) -> NDArray[np.bool_]:
        """Return [number] flips of a fair coin."""
        return np.asarray(self._generator.integers(0, 2, number), np.bool_)
