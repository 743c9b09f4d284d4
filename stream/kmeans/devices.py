"""The local group: messages of a device that does not trust the operator.    [H App. E]

Each message costs epsilon / (tau + 1), against the operator too:

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
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.kmeans.tally import checked, nearest
from hatcast.stream.mechanisms import LaplaceNoise, Noise


class Reports(Protocol):
    """Messages of the local group: all that the operator sees of it.

    vectors   int64 [L, d], steps: noisy, so possibly outside of [0, M]
    """

    @property
    def vectors(self) -> Integers:
        """Noisy vectors."""
        ...

    def clusters(self, centres: Integers) -> Integers:
        """Return the answers of an iteration, int64 [L]. To be called once per iteration, tau times in total."""
        ...


def noisy_vector(vector: Sequence[int], setting: Setting, noise: LaplaceNoise) -> list[int]:
    """Return a vector in [0, top]^d with noise in each coordinate, in steps, for `setting.local_epsilon`."""
    distance, epsilon = setting.local_distance, setting.local_epsilon
    return [noise.laplace(value, distance, epsilon).value for value in vector]


def randomised_cluster(true_cluster: int, setting: Setting, noise: Noise) -> int:
    """Return the index of a cluster by randomised response around the true one, for `setting.local_epsilon`."""
    weights, costs = np.ones(setting.clusters, np.int64), np.ones(setting.clusters, np.int64)
    costs[true_cluster] = 0
    return noise.choose(weights, costs, Fraction(setting.local_epsilon))


class Devices:
    """The local users, with vectors int64 [L, d] in [0, top]. Raises ValueError for other vectors."""

    def __init__(self, vectors: Integers, setting: Setting, noise: Noise) -> None:
        self._true = checked(vectors, setting)
        self._noise = noise
        self._setting = setting
        self._left = setting.iterations
        noisy = [noisy_vector(row, setting, noise) for row in vectors.tolist()]
        self.vectors: Integers = np.array(noisy, np.int64).reshape(vectors.shape)

    def clusters(self, centres: Integers) -> Integers:
        """See Reports. Raises ValueError after `setting.iterations` calls, because epsilon is split for that many."""
        if not self._left:
            raise ValueError("devices answer once per iteration, and no more")
        self._left -= 1
        true = nearest(self._true, centres).tolist()
        return np.array([randomised_cluster(each, self._setting, self._noise) for each in true], np.int64)
