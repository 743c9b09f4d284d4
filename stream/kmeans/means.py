"""The mean of each cluster as either group tells it, and the blend of both. From noisy numbers alone.

Two departures from [H App. E], neither of which touches privacy:

- **Answers are unmixed.** The mean of the vectors whose devices *said* k is drawn to the middle of all, as randomised
  response puts users of every cluster into each: at epsilon 7, tau 5 and K 4 half of them. Now the chances are public.
  With p of the true answer and q of each other one, E[sum of who said k] = (p - q) S_k + q S, S over all, so
  (sum of who said k - q S) / (p - q) tells S_k without bias, and counts likewise.
- **The noise on a central mean is 2 b_T^2 / N_T^2.** Line 13 prints s_T^2 = 2 b_T^2, which is that on the sum, while
  Def 5.3 is about the mean: the weight of the central group would be nearly 0 whatever its size.

Measured: docs/cluster.md.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.hybrid import pwh
from hatcast.stream.kmeans.devices import Reports
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.kmeans.tally import noisy_tally
from hatcast.stream.mechanisms import LaplaceNoise

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """What is known of the clusters after an iteration.

    users      [K] noisy, so below 0 at times
    means      [K, d] steps; not cut to [0, top]
    variances  [K, d] of the noise on `means`, steps^2
    """

    users: Floats
    means: Floats
    variances: Floats


def central_means(vectors: Integers, centres: Integers, setting: Setting, noise: LaplaceNoise) -> Means:
    """By the users that trust the operator. vectors [n, d]; costs `setting.central_epsilon`.

    The noise on the count counts too: mean' - mean is about (noise on the sum - mean x noise on the count) / N.
    """
    counts, sums = noisy_tally(vectors, centres, setting, noise)
    users = counts / setting.unit
    floored = np.maximum(users, 1.0)[:, None]
    means = sums / floored
    seen = np.clip(means, 0, setting.top) / setting.unit
    return Means(users, means, 2 * (setting.central_scale / floored) ** 2 * (1 + seen**2))


def local_means(reports: Reports, centres: Integers, setting: Setting) -> Means:
    """By the reports of those that do not. Asks them once."""
    answers, vectors = reports.clusters(centres), reports.vectors
    number, clusters = len(answers), setting.clusters
    e = math.exp(setting.local_epsilon)
    right, wrong = e / (clusters + e - 1), 1 / (clusters + e - 1)
    said = np.bincount(answers, minlength=clusters).astype(np.float64)
    sums = np.zeros((clusters, setting.dimensions))
    np.add.at(sums, answers, vectors.astype(np.float64))
    users = (said - wrong * number) / (right - wrong)
    floored = np.maximum(users, 1.0)[:, None]
    means = (sums - wrong * sums.sum(axis=0)) / (right - wrong) / floored
    # The report of each user weighs (1 - q) / (p - q) in the cluster that it said, -q / (p - q) in the others.
    squares = (said * (1 - wrong) ** 2 + (number - said) * wrong**2) / (right - wrong) ** 2
    variances = 2 * setting.local_scale**2 * squares[:, None] / floored**2
    return Means(users, means, np.broadcast_to(variances, means.shape))


def blend(central: Means, local: Means) -> tuple[Means, Floats]:
    """PWH in each cluster and dimension, and the weights [K, d] of the central means.    [H Def 5.3]"""
    # s_L^2 / ((1 - c) n) is the variance of the noise on the local mean, so one report of that variance does.
    weigh = np.vectorize(lambda mine, theirs: pwh.weight(1.0, mine, theirs), otypes=[np.float64])
    weights = np.asarray(weigh(central.variances, local.variances), np.float64)
    means = weights * central.means + (1 - weights) * local.means
    variances = weights**2 * central.variances + (1 - weights) ** 2 * local.variances
    return Means(central.users + local.users, means, variances), weights
