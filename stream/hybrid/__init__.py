"""Hybrid model: devices that do not trust the operator add noise to their own mean before they send it.    [H]

To add an estimator: a value in methods.py, a name below, a row in docs/hybrid.md. Law tests, the configuration and
`evaluate` read this table.
"""

from collections.abc import Mapping
from typing import Final

from hatcast.stream.hybrid import methods
from hatcast.stream.hybrid._blend import estimate as estimate
from hatcast.stream.hybrid._interface import HybridEstimator as HybridEstimator
from hatcast.stream.hybrid._interface import HybridParameters as HybridParameters
from hatcast.stream.hybrid._interface import Setting as Setting
from hatcast.stream.hybrid._interface import Spread as Spread
from hatcast.stream.hybrid._interface import charge as charge
from hatcast.stream.hybrid._interface import check as check
from hatcast.stream.hybrid._interface import delta_per_hat as delta_per_hat
from hatcast.stream.hybrid._interface import gaussian_epsilon as gaussian_epsilon
from hatcast.stream.hybrid._interface import keys_of
from hatcast.stream.hybrid.reports import ID_BYTES as ID_BYTES
from hatcast.stream.hybrid.reports import DeviceReport as DeviceReport
from hatcast.stream.hybrid.reports import accepts as accepts
from hatcast.stream.hybrid.reports import decode_report as decode_report
from hatcast.stream.hybrid.reports import encode_report as encode_report
from hatcast.stream.hybrid.reports import report as report
from hatcast.stream.hybrid.reports import report_bound as report_bound
from hatcast.stream.hybrid.reports import steps_of as steps_of
from hatcast.stream.policy.policy import EstimatorKeys

HYBRID_ESTIMATORS: Final[Mapping[str, HybridEstimator]] = {
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
HYBRID_KEYS: Final[Mapping[str, EstimatorKeys]] = {name: keys_of(each) for name, each in HYBRID_ESTIMATORS.items()}
"""Hybrid estimator name -> its keys; `read_policy` validates `[policy.estimator]` with them."""
