"""The iterations.    [H App. E]"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.devices import Reports
from hatcast.stream.kmeans.means import Floats, Means, blend, central_means, local_means
from hatcast.stream.kmeans.seeding import seeds, uniform
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.mechanisms import LaplaceNoise

_UNIFORM: Final = 12  # the variance of a point anywhere in [0, m] is m^2 / 12
_ASIDE: Final = 25  # of the cube: a cluster starts anew within m / 50 of another one's centre, in each coordinate


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """What may be published.

    centres   int64 [K, d], steps, in [0, top]
    users     float64 [K] noisy, 0 or more
    noise     float64 [K, d] standard deviation of the noise on a centre, steps; 0 where `moved` is
    weights   float64 [K, d] of the central group's mean in it; 0 where `moved` is
    moved     int64 [K] the iteration whose mean it is, from 1 on; 0: it stands where it started, at first or anew
    """

    centres: Integers
    users: Floats
    noise: Floats
    weights: Floats
    moved: Integers


Found = tuple[Means, Floats]
"""Of one iteration: means, and what the central group weighs in them [K, d]"""


def cluster(central: Integers | None, local: Reports | None, setting: Setting, noise: LaplaceNoise) -> Clusters:
    """K centres for exactly `setting.epsilon` of each user.

    central   int64 [n, d] in [0, top], steps: the vectors of those that trust the operator; None: nobody does
    local     the reports of the others; None: there are none
    With one group alone its means are taken, with both their blend. A group without users is none. Raises ValueError
    without anybody.
    """
    if local is not None and not len(local.vectors):
        local = None
    if central is None or not len(central):
        if local is None:
            raise ValueError("a clustering needs somebody")
        return iterate(lambda centres: (local_means(local, centres, setting), np.zeros(centres.shape)), setting)
    if local is None:
        return iterate(
            lambda centres: (central_means(central, centres, setting, noise), np.ones(centres.shape)), setting
        )
    return iterate(
        lambda centres: blend(central_means(central, centres, setting, noise), local_means(local, centres, setting)),
        setting,
    )


def iterate(found: Callable[[Integers], Found], setting: Setting) -> Clusters:
    """tau times: from centres to the means around them, which are the next centres.

    A cluster is taken for empty where its mean tells nothing: where less than one user seems to be in it, or where the
    noise on the mean is wider than a point anywhere in the cube would be. Its mean is not used. It starts anew, beside
    the centre of a large cluster, to part that one's users; after the last iteration it stays where it is. Noisy counts
    and a public direction decide where to, so that this costs nothing.
    """
    centres = seeds(setting)
    shape = centres.shape
    noise, weights, moved = np.zeros(shape), np.zeros(shape), np.zeros(len(centres), np.int64)
    users = np.zeros(len(centres))
    for iteration in range(1, setting.iterations + 1):
        after, weight = found(centres)
        users = np.maximum(after.users, 0.0)
        tells = (after.users >= 1) & (after.variances.mean(axis=1) <= setting.top**2 / _UNIFORM)
        at = tells[:, None]
        # Cut before it is rounded: a mean of few users is anywhere, and may not fit into 64 bits.
        rounded = np.rint(np.clip(after.means, 0, setting.top)).astype(np.int64)
        centres = np.where(at, rounded, centres)
        noise = np.where(at, np.sqrt(after.variances), noise)
        weights = np.where(at, weight, weights)
        moved = np.where(tells, iteration, moved)
        if iteration < setting.iterations and tells.any():
            centres = _restarted(centres, users, tells, setting, iteration)
            noise, weights, moved = np.where(at, noise, 0.0), np.where(at, weights, 0.0), np.where(tells, moved, 0)
    return Clusters(centres, users, noise, weights, moved)


def _restarted(
    centres: Integers, users: Floats, tells: NDArray[np.bool_], setting: Setting, iteration: int
) -> Integers:
    """With each empty cluster beside a full one (there is one): the first beside the largest, and so on."""
    full, empty = np.flatnonzero(tells), np.flatnonzero(~tells)
    largest = full[np.argsort(-users[full], kind="stable")]
    restarted = centres.copy()
    for at, each in enumerate(empty.tolist()):
        aside = (uniform(setting, iteration * setting.clusters + each)[0] - setting.top // 2) // _ASIDE
        restarted[each] = np.clip(centres[largest[at % len(largest)]] + aside, 0, setting.top)
    return restarted
