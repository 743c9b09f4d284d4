"""What a family is: neighbouring inputs of one part of a policy, and the code that releases them. And that of one HAT.

Random choices are of made-up neighbours and sides. They protect nothing: releases draw from
stream/mechanisms/system.py.

The mean of one HAT: every estimator and relation, devices' blends, and several values. Under `replace` the neighbours
have the same users with the same numbers of readings, and one user's sums differ. Under `add_remove` the other one has
this user no more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.hybrid import HybridParameters, report_bound
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.release.hats import Hat as ReleasedHat
from hatcast.stream.release.hats import HatChunks, Release, least_users, releases_of

Run = Callable[[Noise], list[bytes]]
"""Releases one input with this noise, and returns the bytes of all that is published, in order."""
_CHUNK: Final = 64
T = TypeVar("T")


class RandomNumbers:
    """Random numbers that choose neighbours and sides. They protect nothing, so they may have a seed."""

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
    """Two neighbouring inputs."""

    name: str  # in one line, without anything of real data: they are made up
    one: Run
    other: Run
    data: Any  # of the family, for `Family.varied`


class Family(Protocol):
    """Neighbouring inputs of one part of a policy."""

    name: str  # such as `mean`
    claim: Claim  # read from the policy, not from the code under audit
    # whether noise is requested alone and added later, so that `Shifts` compares requests. Otherwise all that depends
    # on data is a value that the noise is requested for, and `transcript.replayed` does
    is_alone: bool = False
    # releases are drawn for one of so many samples; 0: for none, as of whole days, since a bound is never above the
    # logarithm of the samples. 4 where a release has many noisy numbers: it takes longer, and each number shows little
    sample_divisor: int = 1

    def worst(self) -> Sequence[Neighbours]:
        """Return the neighbours that the proofs name: ends of the range, the busiest and the least busy user, ..."""

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """Return random neighbours."""

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """Return neighbours that differ a little from the given ones."""


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


def changed(items: Sequence[T], at: int, item: T) -> tuple[T, ...]:
    """Return the items with another one in this place."""
    return (*items[:at], item, *items[at + 1 :])


def random_share(random: RandomNumbers) -> float:
    """Return a user's mean as a share of the range: an end of the range in two of three cases."""
    return (0.0, 1.0, random.random())[random.integers(0, 3)]


ReleasesOf = Callable[[Policy, Calendar, Sequence[ReleasedHat], Noise], list[Release]]
NOW_MS: Final = 1_641_100_000_000
CELL: Final = "87608b0d2ffffff"
_MOST_COUNT: Final = 40
_MOST_USERS: Final = 14
_ENDS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class HatPair:
    """A HAT and its neighbour."""

    counts: tuple[int, ...]  # readings of each user
    shares: tuple[tuple[float, ...], ...]  # [users][values] mean of each user, as a share of the range
    user: int  # in which the neighbours differ
    other: tuple[float, ...] | None  # [values] the user's shares in the other one; None: the user is not there


class MeanFamily(Family):
    """Means of a HAT under one policy."""

    name = "mean"

    def __init__(self, policy: Policy, release: ReleasesOf = releases_of) -> None:
        """Args: `release`, the code under audit."""
        self.policy = policy
        # A central user of a hybrid policy is in the operator's mean alone: devices have a family of their own.
        self.claim = Claim.of_part(policy, policy.epsilon_nano / 1e9, policy.most_hats)
        self._release = release
        self._calendar = Calendar(policy)
        self._slot = slot_of(self._calendar)
        self._widths = [value.width for value in policy.released_values]
        self._least = max(least_users(policy), 1)

    def worst(self) -> list[Neighbours]:
        """See `Family`: 0 and U of the largest and the smallest user, beside users at 0, in the middle, and at U."""
        users = max(self._least, 5)
        shapes = [tuple(range(users + 2, 2, -1)), (4,) * users, (_MOST_COUNT, *(3,) * (users - 1)), (1,) * self._least]
        low, high = (0.0,) * len(self._widths), (1.0,) * len(self._widths)
        found = []
        for counts in shapes:
            for rest in (0.5, 0.0, 1.0):
                for user in sorted({0, len(counts) // 2, len(counts) - 1}):
                    shares = changed([(rest,) * len(low)] * len(counts), user, low)
                    found.append(self._neighbours(HatPair(counts, shares, user, high)))
        return found if self.policy.relation is Relation.REPLACE else [self._removed(each.data) for each in found]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        users = random.integers(self._least, max(self._least + 1, _MOST_USERS))
        most = 2 if random.random() < 0.3 else _MOST_COUNT
        counts = tuple(random.integers(1, most + 1) for _ in range(users))
        shares = tuple(self._point(random) for _ in counts)
        hat = HatPair(counts, shares, random.integers(0, users), self._point(random))
        return self._neighbours(hat) if self.policy.relation is Relation.REPLACE else self._removed(hat)

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: one count, one share, or the user."""
        hat: HatPair = neighbours.data
        at, way = random.integers(0, len(hat.counts)), random.random()
        if way < 0.3:
            count = max(1, hat.counts[at] + random.integers(-2, 3))
            hat = replace(hat, counts=changed(hat.counts, at, count))
        elif way < 0.7:
            hat = replace(hat, shares=changed(hat.shares, at, self._point(random)))
        elif way < 0.9 and hat.other is not None:
            hat = replace(hat, other=self._point(random))
        else:
            hat = replace(hat, user=at)
        return self._neighbours(hat)

    def _point(self, random: RandomNumbers) -> tuple[float, ...]:
        def share() -> float:
            return random.random() if random.random() < 0.3 else _ENDS[random.integers(0, len(_ENDS))]

        return tuple(share() for _ in self._widths)

    def _removed(self, hat: HatPair) -> Neighbours:
        return self._neighbours(replace(hat, other=None))

    def _neighbours(self, hat: HatPair) -> Neighbours:
        counts, shares = list(hat.counts), list(hat.shares)
        one = self._run(counts, shares)
        if hat.other is None:
            name = f"{len(counts)} users, without the one of {counts[hat.user]} readings"
            del counts[hat.user], shares[hat.user]
        else:
            name = f"{len(counts)} users, the one of {counts[hat.user]} readings moved"
            shares[hat.user] = hat.other
        return Neighbours(name, one, self._run(counts, shares), hat)

    def _run(self, counts: Sequence[int], shares: Sequence[Sequence[float]]) -> Run:
        sums = [
            [int(Fraction(share) * width * count) for share, width in zip(of_user, self._widths, strict=True)]
            for count, of_user in zip(counts, shares, strict=True)
        ]
        users = [(at + 1, count, total[0]) for at, (count, total) in enumerate(zip(counts, sums, strict=True))]
        others = [tuple(total[1:]) for total in sums] if len(self._widths) > 1 else ()
        reports = reports_of_devices(self.policy)
        chunks = HatChunks(chunks_of(users, others) if users else [], reports)

        def run(noise: Noise) -> list[bytes]:
            releases = self._release(self.policy, self._calendar, [(self._slot, CELL, chunks)], noise)
            return [numbered(release.record(NOW_MS), 1) for release in releases]

        return run


def slot_of(calendar: Calendar) -> str:
    """Return the key of the first slot that counts, of the first date from 2022 on that has one."""
    for day in range(2, 30):
        for slot in calendar.slots_of(f"2022-01-{day:02}"):
            if slot.outside is None:
                return slot.key
    raise ValueError("the policy has no slot in January 2022")


def reports_of_devices(policy: Policy) -> list[bytes]:
    """Return the packed reports of some devices that a blend needs; they are the same for neighbours."""
    if not policy.takes_reports:
        return []
    parameters = HybridParameters.of(policy)
    steps = parameters.grid.floor(parameters.upper_bound_milli) // 2 + report_bound(parameters)
    return chunks_of([(1000 + at, 1, steps) for at in range(max(policy.min_users, 3))])
