"""Hybrid K-means on synthetic data of the paper's kind, beside the result without noise.    [H 7, App. E]

Gaussian clusters in [0, 1]^d, the same number of users in each; central and local users are drawn at random. What is
measured is the paper's WCSS, of all users and by the final centres, here as a mean a user.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.agents.research.evaluate.simulation import Draws, Floats, Integers
from hatcast.stream.hybrid import pwh
from hatcast.stream.kmeans.devices import Reports
from hatcast.stream.kmeans.lloyd import Clusters, Found, cluster, iterate
from hatcast.stream.kmeans.means import Means, central_means
from hatcast.stream.kmeans.seeding import seeds
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.kmeans.tally import nearest, tally
from hatcast.stream.mechanisms import Noisy

TOP: Final = 1_000_000  # steps of a coordinate in [0, 1]
SPREAD: Final = 0.028  # of a cluster, in each coordinate    [H 7]
_MIDDLES: Final = 2**63  # seeds from here on are for where clusters are, those below for where centres start


@dataclass(frozen=True, slots=True)
class Synthetic:
    """What is drawn. users: of each cluster, 2 or more; local: the share of all that are local devices."""

    users: int
    local: float


class SimulatedNoise:
    """`LaplaceNoise` that can be drawn again. It protects nobody."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """See LaplaceNoise."""
        scale = distance / epsilon
        return Noisy(value + int(self._draws.laplace(np.array([scale]))[0]), scale)


class SimulatedDevices:
    """The reports of `Devices`, of all devices at once. tests/statistics/test_kmeans.py ties the two."""

    def __init__(self, vectors: Integers, setting: Setting, draws: Draws) -> None:
        self._true = vectors
        self._draws = draws
        e = math.exp(setting.local_epsilon)
        self._truth = (e - 1) / (setting.clusters + e - 1)  # else any cluster, the true one too
        scales = np.full(vectors.size, setting.local_scale)
        self.vectors: Integers = vectors + draws.laplace(scales).reshape(vectors.shape)

    def clusters(self, centres: Integers) -> Integers:
        """See Reports."""
        number = len(self._true)
        told = self._draws.uniform(np.full(number, 2**53)) < self._truth * 2**53
        return np.where(told, nearest(self._true, centres), self._draws.uniform(np.full(number, len(centres))))


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """The users of one run: all of them int64 [n, d], and who of them is local [n]."""

    vectors: Integers
    local: NDArray[np.bool_]
    setting: Setting
    draws: Draws

    @property
    def central(self) -> Integers:
        """Those that trust the operator."""
        return self.vectors[~self.local]

    def reports(self, *, everybody: bool = False) -> Reports:
        """Of the local users, or of all as if they were local."""
        return SimulatedDevices(self.vectors if everybody else self.vectors[self.local], self.setting, self.draws)

    @property
    def noise(self) -> SimulatedNoise:
        """For the central group."""
        return SimulatedNoise(self.draws)


def non_private(lot: Lot) -> Clusters:
    """K-means without noise, over all users, from the same start."""

    def found(centres: Integers) -> Found:
        counts, sums = tally(lot.vectors, centres)
        means = sums / np.maximum(counts, 1)[:, None]
        return Means(counts.astype(np.float64), means, np.zeros(means.shape)), np.ones(means.shape)

    return iterate(found, lot.setting)


def printed_local(reports: Reports, centres: Integers, setting: Setting) -> Means:
    """As App. E prints it: the mean of all that said k, whoever they are."""
    answers = reports.clusters(centres)
    said = np.bincount(answers, minlength=setting.clusters).astype(np.float64)
    sums = np.zeros(centres.shape)
    np.add.at(sums, answers, reports.vectors.astype(np.float64))
    floored = np.maximum(said, 1.0)[:, None]
    return Means(said, sums / floored, np.broadcast_to(2 * setting.local_scale**2 / floored, centres.shape))


def printed_hybrid(lot: Lot) -> Clusters:
    """As App. E prints it: s_T^2 of line 13 is the variance of the noise on the sum."""
    reports, noise, setting = lot.reports(), lot.noise, lot.setting

    def found(centres: Integers) -> Found:
        mine = central_means(lot.central, centres, setting, noise)
        theirs = printed_local(reports, centres, setting)
        one = np.array(
            [pwh.weight(float(each), 2 * setting.central_scale**2, 2 * setting.local_scale**2) for each in theirs.users]
        )[:, None]
        weights = np.broadcast_to(one, centres.shape)
        means = weights * mine.means + (1 - weights) * theirs.means
        variances = weights**2 * mine.variances + (1 - weights) ** 2 * theirs.variances
        return Means(mine.users + theirs.users, means, variances), weights

    return iterate(found, setting)


def printed_full_lm(lot: Lot) -> Clusters:
    """As App. E prints it, with all users local."""
    reports = lot.reports(everybody=True)
    return iterate(lambda centres: (printed_local(reports, centres, lot.setting), np.zeros(centres.shape)), lot.setting)


CONTENDERS: Final[Mapping[str, Callable[[Lot], Clusters]]] = MappingProxyType(
    {
        "non_private": non_private,
        "tcm_only": lambda lot: cluster(lot.central, None, lot.setting, lot.noise),
        "lm_only": lambda lot: cluster(None, lot.reports(), lot.setting, lot.noise),
        "full_lm": lambda lot: cluster(None, lot.reports(everybody=True), lot.setting, lot.noise),
        "pwh": lambda lot: cluster(lot.central, lot.reports(), lot.setting, lot.noise),
        "full_lm:printed": printed_full_lm,
        "pwh:printed": printed_hybrid,
    }
)

Scores = dict[str, dict[int, Floats]]
"""By contender and number of iterations: WCSS a user of each run, in units of the cube's edge squared"""


def compare_clusters(
    setting: Setting,
    synthetic: Synthetic,
    runs: int,
    lengths: Sequence[int],
    progress: Callable[[int], None] = lambda _: None,
) -> Scores:
    """All contenders on the same users, with each of these numbers of iterations. `progress` is told of each run.

    `setting.seed` decides where clusters are and where centres start, and all that is drawn.
    """
    draws = Draws(setting.seed)
    middles = seeds(replace(setting, top=TOP, seed=_MIDDLES + setting.seed))
    scores: dict[str, dict[int, list[float]]] = {name: {each: [] for each in lengths} for name in CONTENDERS}
    for _ in range(runs):
        vectors = _vectors(middles, synthetic.users, draws)
        local = _local_ones(len(vectors), synthetic.local, draws)
        for length in lengths:
            lot = Lot(vectors, local, replace(setting, top=TOP, iterations=length), draws)
            for name, contender in CONTENDERS.items():
                scores[name][length].append(wcss(vectors, contender(lot).centres))
        progress(1)
    return {name: {each: np.array(found) for each, found in row.items()} for name, row in scores.items()}


def _local_ones(number: int, share: float, draws: Draws) -> NDArray[np.bool_]:
    """[n] any of them, as many as the share says, but neither nobody nor everybody."""
    order = np.argsort(draws.uniform(np.full(number, 2**53)), kind="stable")
    local = np.zeros(number, np.bool_)
    local[order[: min(max(round(share * number), 1), number - 1)]] = True
    return local


def wcss(vectors: Integers, centres: Integers) -> float:
    """The mean over users of the squared distance to the nearest centre, in units of the cube's edge squared."""
    away = vectors - centres[nearest(vectors, centres)]
    return float((away.astype(np.float64) ** 2).sum(axis=1).mean()) / TOP**2


def _vectors(middles: Integers, users: int, draws: Draws) -> Integers:
    """[K users, d]: around each middle; what falls out of the cube is cut."""
    clusters, dimensions = middles.shape
    normal = draws.normal(clusters * users, dimensions)
    drawn = np.repeat(middles, users, axis=0) + SPREAD * TOP * normal
    return np.rint(np.clip(drawn, 0, TOP)).astype(np.int64)
