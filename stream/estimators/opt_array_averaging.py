"""OPT-ARRAY-AVERAGING: ARRAY-AVERAGING with the array length that is best in the worst case.    [M V, VI], [S VI]"""

from types import MappingProxyType
from typing import Final

from hatcast.stream.estimators._interface import ARRAY_CHOICES
from hatcast.stream.estimators.array_averaging import ArrayAveraging
from hatcast.stream.policy.policy import EstimatorKeys, Relation


class OptArrayAveraging(ArrayAveraging):
    """As ArrayAveraging, in formula, sensitivity (replace: U / K), bias and proof; only the default length differs.

    `minimax` minimises a bound of bias + E|noise| that takes the arrays as full and each place as one reading;
    `minimax_convex` a convex stand-in for it. The length depends on counts and epsilon, which are public.
    """

    name = "opt_array_averaging"
    keys = EstimatorKeys(
        frozenset({Relation.REPLACE}),
        MappingProxyType({"grouping": "bestfit", "array_length": "minimax"}),
        ARRAY_CHOICES,
    )


ESTIMATOR: Final = OptArrayAveraging()
