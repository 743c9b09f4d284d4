"""Where clusters start: points spread over the cube, drawn from a public seed and from no data."""

import hashlib
from typing import Final

import numpy as np

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.setting import Setting

_CANDIDATES: Final = 256  # for each cluster


def seeds(setting: Setting) -> Integers:
    """int64 [K, d], steps: centres far from one another and from the border. The same for the same setting.

    Each is the best of 256 uniform points: the one around which there is most room, where the border takes as much of
    it as the ball of another centre. Two centres next to each other would share what one could have told [Su and
    others, CODASPY 2016].
    """
    chosen = np.empty((0, setting.dimensions), np.int64)
    for cluster in range(setting.clusters):
        points = uniform(setting, cluster)
        margins = np.minimum(points, setting.top - points).min(axis=1)
        room = 4 * margins**2  # squared, as the distance of two balls' middles
        for centre in chosen:
            room = np.minimum(room, ((points - centre) ** 2).sum(axis=1))
        chosen = np.vstack([chosen, points[int(room.argmax())]])
    return chosen


def uniform(setting: Setting, stream: int) -> Integers:
    """int64 [256, d] in [0, top], others for each stream: BLAKE2b in counter mode. No secret, and no noise."""
    drawn = bytearray()
    wanted = _CANDIDATES * setting.dimensions * 8
    while len(drawn) < wanted:
        message = f"{setting.seed},{stream},{len(drawn)}".encode()
        drawn += hashlib.blake2b(message, person=b"hatcast-kmeans").digest()
    numbers = np.frombuffer(bytes(drawn[:wanted]), ">u8") % np.uint64(setting.top + 1)
    return numbers.astype(np.int64).reshape(_CANDIDATES, setting.dimensions)
