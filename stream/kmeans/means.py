"""The mean of each cluster, estimated from either group, and the blend of both. Reads noisy numbers only.

Two departures from [H App. E], neither of which affects privacy:

- **Randomised response is inverted.** The mean of the vectors whose devices *answered* k is biased towards the mean of
  all vectors, because randomised response puts users of every cluster into each: half of them at epsilon 7, tau 5 and
  K 4. The probabilities are public: p of the true answer and q of each other one. E[sum over answers k] =
  (p - q) S_k + q S, S over all, so (sum over answers k - q S) / (p - q) estimates S_k without bias; counts likewise.
- **The noise variance of a central mean is 2 b_T^2 / N_T^2.** Line 13 prints s_T^2 = 2 b_T^2, the variance on the sum,
  but Def 5.3 is about the mean: the central group would have a weight of nearly 0 at any size.

Measured: docs/cluster.md.
"""

import math
from dataclasses import dataclass

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
    """Noisy means of the clusters after an iteration.

    users      [K] noisy number of users; may be negative
    means      [K, d] steps; not clipped to [0, top]
    variances  [K, d] variance of the noise on `means`, steps^2
    """

    users: Floats
    means: Floats
    variances: Floats


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
