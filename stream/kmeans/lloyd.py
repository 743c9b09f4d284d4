"""The iterations of private Lloyd's algorithm, and the mean of each cluster, of either group and of both.    [H App. E]

The means read noisy numbers only. Two departures from [H App. E], neither of which affects privacy:

- **Randomised response is inverted.** The mean of the vectors whose devices *answered* k is biased towards the mean of
  all vectors, because randomised response puts users of every cluster into each: half of them at epsilon 7, tau 5 and
  K 4. The probabilities are public: p of the true answer and q of each other one. E[sum over answers k] =
  (p - q) S_k + q S, S over all, so (sum over answers k - q S) / (p - q) estimates S_k without bias; counts likewise.
- **The noise variance of a central mean is 2 b_T^2 / N_T^2.** Line 13 prints s_T^2 = 2 b_T^2, the variance on the sum,
  but Def 5.3 is about the mean: the central group would have a weight of nearly 0 at any size.

Measured: docs/cluster.md.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.hybrid import methods
from hatcast.stream.kmeans.groups import Reports, noisy_tally
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.mechanisms import LaplaceNoise

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterMeans:
    """Noisy means of the clusters after an iteration."""

    users: Floats  # [K] noisy number of users; may be negative
    means: Floats  # [K, d] steps; not clipped to [0, top]
    variances: Floats  # [K, d] variance of the noise on `means`, steps^2


def central_means(
    vectors: Integers, centres: Integers, setting: ClusteringSetting, noise: LaplaceNoise
) -> ClusterMeans:
    """Return the means of the central users, who trust the operator. vectors [n, d]; costs `setting.central_epsilon`.

    The variance includes the noise on the count: mean' - mean is about (noise on the sum - mean x noise on the count)
    / N.
    """
    return means_of_tally(*noisy_tally(vectors, centres, setting, noise), setting)


def means_of_tally(counts: Integers, sums: Integers, setting: ClusteringSetting) -> ClusterMeans:
    """Return the means of noisy counts [K], `setting.unit` steps per user, and noisy sums [K, d]."""
    users = counts / setting.unit
    floored = np.maximum(users, 1.0)[:, None]
    means = sums / floored
    relative = np.clip(means, 0, setting.top) / setting.unit
    return ClusterMeans(users, means, 2 * (setting.central_scale / floored) ** 2 * (1 + relative**2))


def local_means(reports: Reports, centres: Integers, setting: ClusteringSetting) -> ClusterMeans:
    """Return the means of the local users, from their reports. Uses up one call of `Reports.clusters`."""
    return means_of_answers(*tally_answers(reports.clusters(centres), reports.vectors, setting), setting)


def tally_answers(answers: Integers, vectors: Integers, setting: ClusteringSetting) -> tuple[Floats, Floats]:
    """Return the number of devices that answered each cluster [K], and the sums of their noisy vectors [K, d]."""
    answered = np.bincount(answers, minlength=setting.clusters).astype(np.float64)
    sums = np.zeros((setting.clusters, setting.dimensions))
    np.add.at(sums, answers, vectors.astype(np.float64))
    return answered, sums


def means_of_answers(answered: Floats, sums: Floats, setting: ClusteringSetting) -> ClusterMeans:
    """Return the means of what `tally_answers` returns, without the bias of randomised response."""
    number, clusters = answered.sum(), setting.clusters
    e = math.exp(setting.local_epsilon)
    p, q = e / (clusters + e - 1), 1 / (clusters + e - 1)
    users = (answered - q * number) / (p - q)
    floored = np.maximum(users, 1.0)[:, None]
    means = (sums - q * sums.sum(axis=0)) / (p - q) / floored
    # A user's report has weight (1 - q) / (p - q) in the cluster of its answer and -q / (p - q) in the others.
    squares = (answered * (1 - q) ** 2 + (number - answered) * q**2) / (p - q) ** 2
    variances = 2 * setting.local_scale**2 * squares[:, None] / floored**2
    return ClusterMeans(users, means, np.broadcast_to(variances, means.shape))


def blend(central: ClusterMeans, local: ClusterMeans) -> tuple[ClusterMeans, Floats]:
    """Return the PWH blend in each cluster and dimension, and the weights [K, d] of the central means.  [H Def 5.3]"""
    # s_L^2 / ((1 - c) n) is the noise variance of the local mean, which equals one report of that variance.
    weigh = np.vectorize(lambda mine, theirs: methods.weight(1.0, mine, theirs), otypes=[np.float64])
    weights = np.asarray(weigh(central.variances, local.variances), np.float64)
    means = weights * central.means + (1 - weights) * local.means
    variances = weights**2 * central.variances + (1 - weights) ** 2 * local.variances
    return ClusterMeans(central.users + local.users, means, variances), weights


_CANDIDATES: Final = 256  # per cluster
_UNIFORM: Final = 12  # a uniform point in [0, m] has variance m^2 / 12
_OFFSET_DIVISOR: Final = 25  # a cluster restarts within m / 50 of another centre, in each coordinate


def seeds(setting: ClusteringSetting) -> Integers:
    """Return centres int64 [K, d], in steps, far from each other and from the border; a function of the setting.

    Each is the best of 256 uniform points: the one with the largest free ball, bounded by the border and by equal balls
    around the other centres. Two adjacent centres would split a cluster that one could represent [Su and others,
    CODASPY 2016].
    """
    chosen = np.empty((0, setting.dimensions), np.int64)
    for cluster in range(setting.clusters):
        points = uniform(setting, cluster)
        margins = np.minimum(points, setting.top - points).min(axis=1)
        diameters = 4 * margins**2  # squared diameters of the free balls
        for centre in chosen:
            diameters = np.minimum(diameters, ((points - centre) ** 2).sum(axis=1))
        chosen = np.vstack([chosen, points[int(diameters.argmax())]])
    return chosen


def uniform(setting: ClusteringSetting, stream: int) -> Integers:
    """Return points int64 [256, d] in [0, top], different for each stream: BLAKE2b in counter mode; not secret."""
    generated = bytearray()
    size = _CANDIDATES * setting.dimensions * 8
    while len(generated) < size:
        message = f"{setting.seed},{stream},{len(generated)}".encode()
        generated += hashlib.blake2b(message, person=b"hatcast-kmeans").digest()
    numbers = np.frombuffer(bytes(generated[:size]), ">u8") % np.uint64(setting.top + 1)
    return numbers.astype(np.int64).reshape(_CANDIDATES, setting.dimensions)


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Publishable clusters."""

    centres: Integers  # int64 [K, d], steps, in [0, top]
    users: Floats  # float64 [K] noisy number of users, 0 or more
    noise: Floats  # float64 [K, d] standard deviation of the noise on a centre, steps; 0 if `moved` is 0
    weights: Floats  # float64 [K, d] weight of the central group's mean; 0 if `moved` is 0
    moved: Integers  # int64 [K] iteration that computed the centre, from 1 on; 0: an initial position or a restart


WeightedMeans = tuple[ClusterMeans, Floats]
"""Means of one iteration, and the weights of the central group in them [K, d]"""


def cluster(
    central: Integers | None, local: Reports | None, setting: ClusteringSetting, noise: LaplaceNoise
) -> Clusters:
    """Return K clusters, for exactly `setting.epsilon` of each user.

    central   int64 [n, d] in [0, top], steps: vectors of the users that trust the operator; None without such users
    local     reports of the other users; None without such users
    Uses the means of the one group with users, or the blend of both. Raises ValueError if neither group has users.
    """
    if local is not None and not len(local.vectors):
        local = None
    if central is None or not len(central):
        if local is None:
            raise ValueError("a clustering needs at least one user")
        return iterate(lambda centres: (local_means(local, centres, setting), np.zeros(centres.shape)), setting)
    if local is None:
        return iterate(
            lambda centres: (central_means(central, centres, setting, noise), np.ones(centres.shape)), setting
        )
    return iterate(
        lambda centres: blend(central_means(central, centres, setting, noise), local_means(local, centres, setting)),
        setting,
    )


def iterate(means_around: Callable[[Integers], WeightedMeans], setting: ClusteringSetting) -> Clusters:
    """Replace the centres tau times by the means of their clusters.

    A cluster counts as empty if its mean is useless: if it has less than one noisy user, or the noise on the mean has a
    larger variance than a uniform point of the cube. Its mean is not used, and it restarts near the centre of a large
    cluster, to split that cluster's users; after the last iteration it stays. Noisy counts and a public direction
    determine the restart, so it costs no epsilon.
    """
    centres = seeds(setting)
    shape = centres.shape
    noise, weights, moved = np.zeros(shape), np.zeros(shape), np.zeros(len(centres), np.int64)
    users = np.zeros(len(centres))
    for iteration in range(1, setting.iterations + 1):
        means, weight = means_around(centres)
        users = np.maximum(means.users, 0.0)
        useful = (means.users >= 1) & (means.variances.mean(axis=1) <= setting.top**2 / _UNIFORM)
        rows = useful[:, None]
        # Clipped before rounding: the mean of few users has wide noise and may not fit into 64 bits.
        rounded = np.rint(np.clip(means.means, 0, setting.top)).astype(np.int64)
        centres = np.where(rows, rounded, centres)
        noise = np.where(rows, np.sqrt(means.variances), noise)
        weights = np.where(rows, weight, weights)
        moved = np.where(useful, iteration, moved)
        if iteration < setting.iterations and useful.any():
            centres = _restarted(centres, users, useful, setting, iteration)
            noise, weights, moved = np.where(rows, noise, 0.0), np.where(rows, weights, 0.0), np.where(useful, moved, 0)
    return Clusters(centres, users, noise, weights, moved)


def _restarted(
    centres: Integers, users: Floats, useful: NDArray[np.bool_], setting: ClusteringSetting, iteration: int
) -> Integers:
    """Move each empty cluster near a full one (there is at least one): the first near the largest, and so on."""
    full, empty = np.flatnonzero(useful), np.flatnonzero(~useful)
    largest = full[np.argsort(-users[full], kind="stable")]
    restarted = centres.copy()
    for rank, cluster_index in enumerate(empty.tolist()):
        stream = iteration * setting.clusters + cluster_index
        offset = (uniform(setting, stream)[0] - setting.top // 2) // _OFFSET_DIVISOR
        restarted[cluster_index] = np.clip(centres[largest[rank % len(largest)]] + offset, 0, setting.top)
    return restarted
