"""The central group's part: who is in which cluster, and how many and how much that is.

Sensitivity (replace). Two inputs are neighbours if they have the same users and one of these, j, has another vector
in [0, M]^d, M the `top` in steps. The centres are the same for both: the first ones are public, and all later ones are
computed from noisy numbers that have been paid for.

- A user is put into the cluster whose centre is nearest to its own vector, the first on ties: a function of that vector
  and the centres. So all but j are in the same cluster in both inputs, and all but j add the same to its sum.
- j stays in its cluster: no count moves, and one sum by ||x_j - x_j'||_1 <= M d.
- j goes from cluster a to b: the counts of a and b move by one each. The sum of a loses x_j and that of b gains x_j';
  both are within [0, M]^d, so these move by at most M d each.
- With a count put onto the grid as `unit` steps a user, all K counts and K sums together move by at most
  2 unit + 2 M d = 2 (m d + 1) unit in l1, m = M / unit. Up to a step it is reached: j at (M, .., M), and a step away on
  the other side of a border. The paper's (m d + 1) is half of it: who goes to one cluster leaves another.

All of it is in integers, vectors and centres too, so that nothing is rounded after vectors were and no distance has to
be widened; what a tie or a sum comes to does not depend on the order of users or on the machine.

Privacy. Each of the K (d + 1) integers gets discrete Laplace noise of its own, of a scale of at least
2 (m d + 1) unit / (epsilon / tau). By the triangle inequality their losses add up to epsilon / tau at most, as in
`hatcast.stream.estimators.vectors`; tau iterations, each on centres that the one before has published, cost epsilon.
"""

import numpy as np

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.mechanisms import LaplaceNoise


def nearest(vectors: Integers, centres: Integers) -> Integers:
    """int64 [n]: the index of the centre nearest to each vector [n, d] (Euclid), the least on ties. All in steps."""
    best = np.zeros(len(vectors), np.int64)
    least = np.full(len(vectors), np.iinfo(np.int64).max)
    for cluster, centre in enumerate(centres):
        away = ((vectors - centre) ** 2).sum(axis=1)
        closer = away < least
        best[closer] = cluster
        least[closer] = away[closer]
    return best


def tally(vectors: Integers, centres: Integers) -> tuple[Integers, Integers]:
    """Users of each cluster [K] and the sum of their vectors [K, d]. Private."""
    mine = nearest(vectors, centres)
    sums = np.zeros_like(centres)
    np.add.at(sums, mine, vectors)
    return np.bincount(mine, minlength=len(centres)).astype(np.int64), sums


def checked(vectors: Integers, setting: Setting) -> Integers:
    """Themselves, int64 [n, d] in [0, top]. Raises ValueError for others, without data: no promise covers them."""
    if vectors.dtype != np.int64 or vectors.ndim != 2 or vectors.shape[1] != setting.dimensions:
        raise ValueError("vectors are a table of int64 with a row a user and a column a dimension")
    if bool(np.any((vectors < 0) | (vectors > setting.top))):
        raise ValueError("a vector is outside the cube of the upper bound")
    return vectors


def noisy_tally(
    vectors: Integers, centres: Integers, setting: Setting, noise: LaplaceNoise
) -> tuple[Integers, Integers]:
    """Counts [K], `unit` steps a user, and sums [K, d]; both with noise. For exactly `setting.central_epsilon`.

    Raises ValueError unless the vectors are inside the cube.
    """
    counts, sums = tally(checked(vectors, setting), centres)
    whole = np.column_stack([counts * setting.unit, sums])
    distance, epsilon = setting.central_distance, setting.central_epsilon
    noisy = np.array(
        [[noise.laplace(each, distance, epsilon).value for each in row] for row in whole.tolist()], np.int64
    )
    return noisy[:, 0], noisy[:, 1:]
