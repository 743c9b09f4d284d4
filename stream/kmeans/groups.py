"""The two groups of users: the central one, whose vectors the operator has, and devices.    [H App. E]

The central group: users are assigned to clusters, and the clusters' counts and sums get noise.

Sensitivity (replace). Two inputs are neighbours if they have the same users and one user j has another vector in
[0, M]^d, M the `top` in steps. The centres are the same for both: the initial ones are public, and all later ones are
computed from noisy numbers that are paid for.

- A user is assigned to the cluster whose centre is nearest to its vector, the first on ties: a function of that vector
  and the centres. So all users except j are in the same cluster in both inputs and add the same to its sum.
- If j stays in its cluster: no count moves, and one sum moves by ||x_j - x_j'||_1 <= M d.
- If j moves from cluster a to b: the counts of a and b move by one each. The sum of a loses x_j and that of b gains
  x_j'; both are within [0, M]^d, so these sums move by at most M d each.
- With a count on the grid as `unit` steps per user, all K counts and K sums together move by at most
  2 unit + 2 M d = 2 (m d + 1) unit in l1, m = M / unit. Up to one step this is reached: j at (M, .., M), and a step
  away on the other side of a border. The paper's (m d + 1) is half of it: a user that joins a cluster leaves another.

All numbers are integers, vectors and centres too. So nothing is rounded after the vectors, no distance has to be
increased for rounding, and ties and sums do not depend on the order of users or on the machine.

Privacy. Each of the K (d + 1) integers gets independent discrete Laplace noise of a scale of at least
2 (m d + 1) unit / (epsilon / tau). By the triangle inequality their losses add up to at most epsilon / tau, as in
`hatcast.stream.estimators.vectors`; tau iterations, each on published centres of the previous one, cost epsilon.

The local group: a device that does not trust the operator sends messages. Each costs epsilon / (tau + 1), against the
operator too:

- its vector, once: two vectors in [0, M]^d are at most M d steps apart in l1, and each coordinate gets discrete Laplace
  noise of a scale of at least M d / (epsilon / (tau + 1));
- the cluster nearest to its vector, in each of tau iterations, by randomised response: the true one with probability
  e / (K + e - 1), each other one with 1 / (K + e - 1), e = exp(epsilon / (tau + 1)). So the probability of any answer
  changes by a factor of at most e for any two vectors. `Noise.choose` draws it: cost 0 for the true cluster and 1 for
  all others, so the normalising sum, 1 + (K - 1) / e, is the same for all vectors.

The answers use the true vector instead of the noisy one, so its noise does not blur the clusters.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.mechanisms import LaplaceNoise, Noise


def nearest(vectors: Integers, centres: Integers) -> Integers:
    """Return int64 [n]: the index of the centre nearest to each vector [n, d] (Euclidean), the least on ties."""
    best = np.zeros(len(vectors), np.int64)
    smallest = np.full(len(vectors), np.iinfo(np.int64).max)
    for cluster, centre in enumerate(centres):
        distances = ((vectors - centre) ** 2).sum(axis=1)
        closer = distances < smallest
        best[closer] = cluster
        smallest[closer] = distances[closer]
    return best


def tally(vectors: Integers, centres: Integers) -> tuple[Integers, Integers]:
    """Return the number of users of each cluster [K] and the sum of their vectors [K, d]. Private."""
    clusters = nearest(vectors, centres)
    sums = np.zeros_like(centres)
    np.add.at(sums, clusters, vectors)
    return np.bincount(clusters, minlength=len(centres)).astype(np.int64), sums


def checked(vectors: Integers, setting: ClusteringSetting) -> Integers:
    """Return the vectors if they are int64 [n, d] in [0, top], as the sensitivity requires.

    Raises ValueError otherwise; the message contains no data.
    """
    if vectors.dtype != np.int64 or vectors.ndim != 2 or vectors.shape[1] != setting.dimensions:
        raise ValueError("vectors must be an int64 array with one row per user and one column per dimension")
    if bool(np.any((vectors < 0) | (vectors > setting.top))):
        raise ValueError("a vector is outside the cube of the upper bound")
    return vectors


def noisy_tally(
    vectors: Integers, centres: Integers, setting: ClusteringSetting, noise: LaplaceNoise
) -> tuple[Integers, Integers]:
    """Return noisy counts [K], in `unit` steps per user, and noisy sums [K, d], for exactly `setting.central_epsilon`.

    Raises ValueError unless the vectors are inside the cube.
    """
    counts, sums = tally(checked(vectors, setting), centres)
    table = np.column_stack([counts * setting.unit, sums])
    distance, epsilon = setting.central_distance, setting.central_epsilon
    noisy = np.array(
        [[noise.laplace(value, distance, epsilon).value for value in row] for row in table.tolist()], np.int64
    )
    return noisy[:, 0], noisy[:, 1:]


class Reports(Protocol):
    """Messages of the local group: all that the operator sees of it.

    vectors   int64 [L, d], steps: noisy, so possibly outside of [0, M]
    """

    @property
    def vectors(self) -> Integers:
        """Noisy vectors."""

    def clusters(self, centres: Integers) -> Integers:
        """Return the answers of an iteration, int64 [L]. To be called once per iteration, tau times in total."""


def noisy_vector(vector: Sequence[int], setting: ClusteringSetting, noise: LaplaceNoise) -> list[int]:
    """Return a vector in [0, top]^d with noise in each coordinate, in steps, for `setting.local_epsilon`."""
    distance, epsilon = setting.local_distance, setting.local_epsilon
    return [noise.laplace(value, distance, epsilon).value for value in vector]


def randomised_cluster(true_cluster: int, setting: ClusteringSetting, noise: Noise) -> int:
    """Return the index of a cluster by randomised response around the true one, for `setting.local_epsilon`."""
    weights, costs = np.ones(setting.clusters, np.int64), np.ones(setting.clusters, np.int64)
    costs[true_cluster] = 0
    return noise.choose(weights, costs, Fraction(setting.local_epsilon))


class Devices:
    """The local users, with vectors int64 [L, d] in [0, top]. Raises ValueError for other vectors."""

    def __init__(self, vectors: Integers, setting: ClusteringSetting, noise: Noise) -> None:
        self._true = checked(vectors, setting)
        self._noise = noise
        self._setting = setting
        self._left = setting.iterations
        noisy = [noisy_vector(row, setting, noise) for row in vectors.tolist()]
        self.vectors: Integers = np.array(noisy, np.int64).reshape(vectors.shape)

    def clusters(self, centres: Integers) -> Integers:
        """Return what `Reports` does. Raises ValueError after `setting.iterations` calls: epsilon is for that many."""
        if not self._left:
            raise ValueError("devices answer once per iteration, and no more")
        self._left -= 1
        true = nearest(self._true, centres).tolist()
        return np.array([randomised_cluster(each, self._setting, self._noise) for each in true], np.int64)
