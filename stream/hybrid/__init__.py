"""Hybrid model: devices that do not trust the operator add noise to their own mean before they send it.    [H]

To add an estimator: a class in methods.py, a name below, a row in docs/hybrid.md. Law tests, the configuration and
`evaluate` read this table.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hatcast.stream.hybrid import methods
from hatcast.stream.hybrid._blend import TARGET, GroupEstimates, HybridEstimate, estimate
from hatcast.stream.hybrid._interface import (
    HybridEstimator,
    HybridParameters,
    Needs,
    Number,
    Setting,
    Spread,
    charge,
    check,
    delta_per_hat,
    gaussian_epsilon,
    keys_of,
)
from hatcast.stream.hybrid.device import accepts, report, report_bound, steps_of
from hatcast.stream.hybrid.reports import ID_BYTES, DeviceReport, decode_report, encode_report
from hatcast.stream.policy.policy import EstimatorKeys

HYBRID_ESTIMATORS: Final[Mapping[str, HybridEstimator]] = MappingProxyType(
    {
        each.name: each
        for each in (
            methods.TCM_ONLY,
            methods.LM_ONLY,
            methods.FULL_LM,
            methods.KVH,
            methods.KVH_HETEROGENEOUS,
            methods.PWH,
        )
    }
)
HYBRID_KEYS: Final[Mapping[str, EstimatorKeys]] = MappingProxyType(
    {name: keys_of(each) for name, each in HYBRID_ESTIMATORS.items()}
)
"""Hybrid estimator name -> its keys; `read_policy` validates `[policy.estimator]` with them."""

__all__ = [
    "HYBRID_ESTIMATORS",
    "HYBRID_KEYS",
    "ID_BYTES",
    "TARGET",
    "DeviceReport",
    "GroupEstimates",
    "HybridEstimate",
    "HybridEstimator",
    "HybridParameters",
    "Needs",
    "Number",
    "Setting",
    "Spread",
    "accepts",
    "charge",
    "check",
    "decode_report",
    "delta_per_hat",
    "encode_report",
    "estimate",
    "gaussian_epsilon",
    "report",
    "report_bound",
    "steps_of",
]
