"""OPT-ARRAY-AVERAGING: ARRAY-AVERAGING with the array length that is best in the worst case.    [M V, VI], [S VI]"""

from types import MappingProxyType
from typing import Final

from hatcast.stream.estimators._interface import ARRAY_CHOICES
from hatcast.stream.estimators.array_averaging import ArrayAveraging
from hatcast.stream.policy.policy import EstimatorKeys, Relation


class OptArrayAveraging(ArrayAveraging):
    """ArrayAveraging with another default array length. Formula, sensitivity (replace: U / K), bias and proof stay.

    `minimax` minimises a bound of bias + E|noise| that assumes full arrays and one reading per place; `minimax_convex`
    minimises a convex surrogate of it. The length depends on counts and epsilon, which are public.
    """

    name = "opt_array_averaging"
    keys = EstimatorKeys(
        frozenset({Relation.REPLACE}),
        MappingProxyType({"grouping": "bestfit", "array_length": "minimax"}),
        ARRAY_CHOICES,
    )


ESTIMATOR: Final = OptArrayAveraging()
