"""The central group: assignment of users to clusters, and the clusters' counts and sums.

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
"""

import numpy as np

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.mechanisms import LaplaceNoise


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


def checked(vectors: Integers, setting: Setting) -> Integers:
    """Return the vectors if they are int64 [n, d] in [0, top], as the sensitivity requires.

    Raises ValueError otherwise; the message contains no data.
    """
    if vectors.dtype != np.int64 or vectors.ndim != 2 or vectors.shape[1] != setting.dimensions:
        raise ValueError("vectors must be an int64 array with one row per user and one column per dimension")
    if bool(np.any((vectors < 0) | (vectors > setting.top))):
        raise ValueError("a vector is outside the cube of the upper bound")
    return vectors


def noisy_tally(
    vectors: Integers, centres: Integers, setting: Setting, noise: LaplaceNoise
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
