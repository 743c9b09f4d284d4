"""Public counts of a released HAT, from which estimates are made.    [docs/specification/tracker.md, 1]

Under `replace` the users of a HAT and their numbers of readings are public, so their functions are too. Under
`add_remove` they are private and a record does not have them.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators import Parameters
from hatcast.stream.estimators._exact import weights_in
from hatcast.stream.estimators._one_draw import BeforeNoise
from hatcast.stream.estimators.array_averaging import arrays_of
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.estimators.vectors import LINEAR

_DIGITS: Final = 6  # so that a record does not depend on the order of a float sum


def counts_fields(counts: Counts, estimator: str, parameters: Parameters) -> dict[str, Any]:
    """Return the field `counts` of a released HAT.

    counts      int64 [L], 1 or more: readings of each user, in the estimators' order
    estimator   name of the estimator that the HAT was released with, and its parameters
    """
    return _fields(counts, _weights(counts, estimator, parameters))


def counts_fields_of(before: BeforeNoise, counts: Counts, estimator: str) -> dict[str, Any]:
    """Return the same as `counts_fields`, with the weights of an estimate if it has them."""
    if before.weights is None:
        return counts_fields(counts, estimator, before.parameters)
    (places, fills), whole = before.weights
    return _fields(counts, places / fills / whole)


def _fields(counts: Counts, weights: NDArray[np.float64] | None) -> dict[str, Any]:
    shares = counts / counts.sum()
    shift = 0.0 if weights is None else float(np.sum((weights - shares) ** 2))
    return {
        "users": len(counts),
        "readings": int(counts.sum()),
        "squares": round(float(np.sum(shares**2)), _DIGITS),
        "shift": round(shift, _DIGITS),
    }


def _weights(counts: Counts, estimator: str, parameters: Parameters) -> NDArray[np.float64] | None:
    """Return the weight of each user's mean in the estimator, float64 [L]; None for that of the plain mean.

    For an estimator that clips, that of the value before clipping.
    """
    if estimator in LINEAR:
        (places, fills), whole = LINEAR[estimator].weights(counts, parameters)
    elif parameters.grouping is not None:
        arrays = arrays_of(counts, parameters)
        (places, fills), whole = weights_in(counts, arrays), arrays.number
    else:
        return None
    return places / fills / whole
