"""Heterogeneous KVH: the optimal blend if the two groups differ in a known way.    [H 6]"""

from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


class HeterogeneousKnownVariance:
    """w* of [H Def 6.1], which minimises the mean squared error of [H Lemma 3.13] over all w.

    With V = sigma_T^2 / (c n) + sigma_L^2 / ((1 - c) n) + (mu_L - mu_T)^2, the factor of (w - c)^2 in the error, and
    B = s_L^2 / ((1 - c) n):  w* = (c V + B) / (V + s_T^2 + B). This is the paper's w*, because mu_L - mu =
    c (mu_L - mu_T). So of the groups' means only the gap is needed.
    """

    name: Final = "kvh_heterogeneous"
    needs: Final = Needs.BOTH_GROUPS
    fixed_weight: Final = None
    all_local: Final = False

    def weight(self, setting: Setting) -> Number:
        """See HybridEstimator."""
        sampling = (
            setting.central_variance / setting.central
            + setting.local_variance / setting.local
            + setting.gap * setting.gap
        )
        reports = setting.local_noise / setting.local
        return (setting.share * sampling + reports) / (sampling + setting.central_noise + reports)


ESTIMATOR: Final = HeterogeneousKnownVariance()
