"""The iterations of private Lloyd's algorithm.    [H App. E]"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.groups import Reports
from hatcast.stream.kmeans.means import ClusterMeans, Floats, blend, central_means, local_means
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.mechanisms import LaplaceNoise

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
    """Publishable clusters.

    centres   int64 [K, d], steps, in [0, top]
    users     float64 [K] noisy number of users, 0 or more
    noise     float64 [K, d] standard deviation of the noise on a centre, steps; 0 if `moved` is 0
    weights   float64 [K, d] weight of the central group's mean; 0 if `moved` is 0
    moved     int64 [K] iteration that computed the centre, from 1 on; 0: an initial position or a restart
    """

    centres: Integers
    users: Floats
    noise: Floats
    weights: Floats
    moved: Integers


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
