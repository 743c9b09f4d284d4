"""Families of a device's report, and of a clustering: one user differs, a device or one that trusts the operator.

A report has the mean of its own HAT, against everyone, the operator included. Of a clustering the operator sees the
noisy vector of each device and its answer in each round, so these count as published.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.lab.audit.hats import Claim, Family, Neighbours, RandomNumbers, Run, changed, random_share
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.hybrid import HybridParameters, report
from hatcast.stream.kmeans.groups import Devices, Reports
from hatcast.stream.kmeans.lloyd import cluster
from hatcast.stream.kmeans.setting import ClusteringSetting, slots_of_day, top_of
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import HybridKeys, Policy, Relation
from hatcast.stream.release.placed import JSON

_ENDS: Final = (Fraction(0), Fraction(1, 2), Fraction(1))
_CLUSTERS: Final = 2
_ROUNDS: Final = 2
_MOST_SLOTS: Final = 2  # coordinates: more take longer, and no claim depends on their number
_MOST_USERS: Final = 4  # of each group
Vectors = tuple[tuple[float, ...], ...]  # [users][slots] shares of the range


class ReportFamily(Family):
    """Reports of a device under a hybrid policy."""

    name = "report"

    def __init__(self, policy: Policy) -> None:
        """Args: `policy`, with devices."""
        self._parameters = HybridParameters.of(policy)
        self.claim = Claim.of_part(policy, policy.keys_of(HybridKeys).local_epsilon, policy.most_hats)

    def worst(self) -> list[Neighbours]:
        """See `Family`: the ends of the range, and means beyond them, which the device clips."""
        beyond = Fraction(3, 2)
        half_step = self._parameters.grid.milli / (2 * self._parameters.upper_bound_milli)
        pairs = ((0, 1), (-beyond, beyond), (half_step, 1 - half_step))
        return [self._neighbours(Fraction(one), Fraction(other)) for one, other in pairs]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        return self._neighbours(_share(random), _share(random))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: one of the two means."""
        one, other = neighbours.data
        return (
            self._neighbours(one, _share(random)) if random.random() < 0.5 else self._neighbours(_share(random), other)
        )

    def _neighbours(self, one: Fraction, other: Fraction) -> Neighbours:
        name = f"means of {float(one):.3g} and {float(other):.3g} of the range"
        return Neighbours(name, self._run(one), self._run(other), (one, other))

    def _run(self, share: Fraction) -> Run:
        parameters = self._parameters
        mean = share * parameters.upper_bound_milli

        def run(noise: Noise) -> list[bytes]:
            return [JSON.encode({"value": report(mean, parameters, noise)})]

        return run


def _share(random: RandomNumbers) -> Fraction:
    if random.random() < 0.5:
        return _ENDS[random.integers(0, len(_ENDS))]
    return Fraction(random.random()).limit_denominator(10**6)


@dataclass(frozen=True, slots=True)
class DeviceDay:
    """Vectors of both groups, and the first user's vector in the other input: of the devices, or of the trusting."""

    trusting: Vectors
    devices: Vectors
    other: tuple[float, ...]


class _Seen:
    """Record the messages of devices that the operator receives."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self.vectors = reports.vectors
        self.answers: list[list[int]] = []

    def clusters(self, centres: Integers) -> Integers:
        """See `Reports.clusters`."""
        answers = self._reports.clusters(centres)
        self.answers.append(answers.tolist())
        return answers


class ClusteringFamily(Family):
    """Clusterings in two rounds, at the epsilon of a release."""

    sample_divisor = 4

    def __init__(self, policy: Policy, *, device: bool) -> None:
        """Args: `device`, whether the user that differs is one."""
        self.name = "clustering, a device" if device else "clustering"
        epsilon = policy.epsilon_nano / 1e9
        self.claim = Claim(epsilon)
        self._slots = min(len(slots_of_day(policy)), _MOST_SLOTS)
        self._setting = ClusteringSetting(self._slots, top_of(policy), _CLUSTERS, _ROUNDS, epsilon)
        self._device = device

    def worst(self) -> list[Neighbours]:
        """See `Family`: from one corner to the other, alone, beside the same user, and with the other group."""
        low, high = (0.0,) * self._slots, (1.0,) * self._slots
        found = []
        for beside in ((), (low,), (high,)):
            for others in ((), ((0.5,) * self._slots,)):
                own, rest = (low, *beside), others
                found.append(DeviceDay(rest, own, high) if self._device else DeviceDay(own, rest, high))
        return [self._neighbours(day) for day in found]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        own = self._vectors(random, 1 + random.integers(0, _MOST_USERS))
        rest = self._vectors(random, random.integers(0, _MOST_USERS))
        (other,) = self._vectors(random, 1)
        return self._neighbours(DeviceDay(rest, own, other) if self._device else DeviceDay(own, rest, other))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: one coordinate of the user's other vector."""
        day: DeviceDay = neighbours.data
        share, at = random_share(random), random.integers(0, self._slots)
        return self._neighbours(replace(day, other=changed(day.other, at, share)))

    def _vectors(self, random: RandomNumbers, users: int) -> Vectors:
        return tuple(tuple(random_share(random) for _ in range(self._slots)) for _ in range(users))

    def _neighbours(self, day: DeviceDay) -> Neighbours:
        name = f"{len(day.trusting)} users and {len(day.devices)} devices, the vector of one differs"
        other = (
            replace(day, devices=(day.other, *day.devices[1:]))
            if self._device
            else replace(day, trusting=(day.other, *day.trusting[1:]))
        )
        return Neighbours(name, self._run(day), self._run(other), day)

    def _run(self, day: DeviceDay) -> Run:
        trusting, of_devices = self._steps(day.trusting), self._steps(day.devices)

        def run(noise: Noise) -> list[bytes]:
            seen = _Seen(Devices(of_devices, self._setting, noise))
            found = cluster(trusting, seen, self._setting, noise)
            numbers = (found.centres, found.users, found.noise, found.weights, found.moved)
            return [JSON.encode([seen.vectors.tolist(), seen.answers, *(each.tolist() for each in numbers)])]

        return run

    def _steps(self, vectors: Sequence[Sequence[float]]) -> Integers:
        steps = [[round(share * self._setting.top) for share in vector] for vector in vectors]
        return np.array(steps, np.int64).reshape(len(vectors), self._slots)


def clusterings_of(policy: Policy) -> list[ClusteringFamily]:
    """Return the families of the clusterings that a policy allows: with relation `replace`, without horizons."""
    if policy.relation is not Relation.REPLACE or policy.method.has_horizons:
        return []
    return [ClusteringFamily(policy, device=device) for device in (False, True)]
