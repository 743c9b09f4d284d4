"""Initial centres: points spread over the cube, drawn from a public seed without reading data."""

import hashlib
from typing import Final

import numpy as np

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.setting import Setting

_CANDIDATES: Final = 256  # per cluster


def seeds(setting: Setting) -> Integers:
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


def uniform(setting: Setting, stream: int) -> Integers:
    """Return points int64 [256, d] in [0, top], different for each stream: BLAKE2b in counter mode; not secret."""
    generated = bytearray()
    size = _CANDIDATES * setting.dimensions * 8
    while len(generated) < size:
        message = f"{setting.seed},{stream},{len(generated)}".encode()
        generated += hashlib.blake2b(message, person=b"hatcast-kmeans").digest()
    numbers = np.frombuffer(bytes(generated[:size]), ">u8") % np.uint64(setting.top + 1)
    return numbers.astype(np.int64).reshape(_CANDIDATES, setting.dimensions)
