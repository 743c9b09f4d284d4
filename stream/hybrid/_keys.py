"""Policy keys of a hybrid estimator, derived from its properties."""

from types import MappingProxyType
from typing import Final

from hatcast.stream.hybrid._interface import HybridEstimator, Needs
from hatcast.stream.policy.policy import EstimatorKeys, HybridUse, Relation

_SPREAD: Final = {
    Needs.NOTHING: (),
    Needs.SIGMA: ("sigma",),
    Needs.BOTH_GROUPS: ("sigma", "sigma_local", "mean_gap"),
}


def keys_of(estimator: HybridEstimator) -> EstimatorKeys:
    """Return the keys of an estimator. It is proved under `replace` only, because the groups' counts are public."""
    fixed = estimator.fixed_weight
    use = HybridUse(
        central=estimator.all_local or fixed != 0,
        local=fixed != 1,
        all_local=estimator.all_local,
        spread=_SPREAD[estimator.needs],
    )
    return EstimatorKeys(frozenset({Relation.REPLACE}), MappingProxyType({}), hybrid=use)
