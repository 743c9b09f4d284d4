"""Estimators: private means of one HAT, a file for each, and what they share.

To add one: a file here, a name below, a row in docs/estimators.md. Law tests, oracle, benchmarks and the configuration
read this table.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hatcast.stream.estimators import (
    array_averaging,
    baseline,
    capped_ratio,
    clipped_sum,
    levy,
    quantile,
    weighted_mean,
)
from hatcast.stream.estimators._interface import BadUsers, EmptyHat, Estimate, Estimator, Parameters, Users
from hatcast.stream.policy.policy import EstimatorKeys

ESTIMATORS: Final[Mapping[str, Estimator]] = MappingProxyType(
    {
        each.name: each
        for each in (
            baseline.ESTIMATOR,
            array_averaging.ESTIMATOR,
            array_averaging.OPT_ESTIMATOR,
            levy.ESTIMATOR,
            quantile.ESTIMATOR,
            clipped_sum.ESTIMATOR,
            weighted_mean.ESTIMATOR,
            capped_ratio.ESTIMATOR,
        )
    }
)
ESTIMATOR_KEYS: Final[Mapping[str, EstimatorKeys]] = {
    name: replace(each.keys, shares=each.shares) for name, each in ESTIMATORS.items()
}
"""Estimator name -> its keys; `read_policy` validates `[policy.estimator]` with them."""

__all__ = ["ESTIMATORS", "ESTIMATOR_KEYS", "BadUsers", "EmptyHat", "Estimate", "Estimator", "Parameters", "Users"]
