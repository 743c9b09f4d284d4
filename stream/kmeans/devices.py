"""The local group's part: what a device sends that does not trust the operator.    [H App. E]

Each message costs epsilon / (tau + 1) against everybody, the operator included:

- its vector, once: two vectors in [0, M]^d are M d steps apart in l1 at most, and each coordinate gets discrete Laplace
  noise of a scale of at least M d / (epsilon / (tau + 1));
- the cluster nearest to its vector, in each of tau iterations, by randomised response: the true one with a chance of
  e / (K + e - 1), each other one with 1 / (K + e - 1), e = exp(epsilon / (tau + 1)). So the chance of any answer
  changes by a factor of e at most, whatever the vectors. `Noise.choose` draws it: cost 0 for the true one and 1 for all
  others, so that what it divides by, 1 + (K - 1) / e, is the same for all vectors.

The answers are about the true vector, not about what was sent of it, so that clusters are not blurred by its noise.
"""

from fractions import Fraction
from typing import Protocol

import numpy as np

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.kmeans.tally import checked, nearest
from hatcast.stream.mechanisms import Noise


class Reports(Protocol):
    """All that is ever seen of the local group.

    vectors   int64 [L, d], steps: with noise on them, so outside of [0, M] too
    """

    @property
    def vectors(self) -> Integers:
        """See above."""
        ...

    def clusters(self, centres: Integers) -> Integers:
        """int64 [L]: the answers of an iteration. To be asked once an iteration, tau times in all."""
        ...


class Devices:
    """The local users, int64 [L, d] in [0, top]. Raises ValueError for others."""

    def __init__(self, vectors: Integers, setting: Setting, noise: Noise) -> None:
        self._true = checked(vectors, setting)
        self._noise = noise
        self._setting = setting
        self._left = setting.iterations
        distance, epsilon = setting.local_distance, setting.local_epsilon
        self.vectors: Integers = np.array(
            [[noise.laplace(each, distance, epsilon).value for each in row] for row in vectors.tolist()], np.int64
        ).reshape(vectors.shape)

    def clusters(self, centres: Integers) -> Integers:
        """See Reports. Raises ValueError when asked more often than epsilon was split for."""
        if not self._left:
            raise ValueError("a device answers once an iteration, and no more")
        self._left -= 1
        rate = Fraction(self._setting.local_epsilon)
        weights, costs = np.ones(len(centres), np.int64), np.ones(len(centres), np.int64)
        answers = []
        for own in nearest(self._true, centres).tolist():
            costs[own] = 0
            answers.append(self._noise.choose(weights, costs, rate))
            costs[own] = 1
        return np.array(answers, np.int64)
