"""KVH, the known-variance hybrid: the optimal blend if both groups have the same known variance.    [H 4]"""

from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


class KnownVariance:
    """w* = c (sigma^2 + s_L^2) / (sigma^2 + c (n s_T^2 (1 - c) + s_L^2)).    [H Def 4.1]

    It minimises the mean squared error over all w [H Lemma 3.13], so it is never worse than `tcm_only`, and never worse
    than `full_lm` if c n <= s_L^2 / s_T^2, as with Laplace noise of one epsilon and at least one central user.
    sigma is a constant of the policy: a wrong value costs accuracy, not privacy.
    """

    name: Final = "kvh"
    needs: Final = Needs.SIGMA
    fixed_weight: Final = None
    all_local: Final = False

    def weight(self, setting: Setting) -> Number:
        """See HybridEstimator. sigma^2 is `central_variance`; `local_variance` and `gap` are not read."""
        variance, share = setting.central_variance, setting.share
        return (
            share
            * (variance + setting.local_noise)
            / (variance + share * (setting.local * setting.central_noise + setting.local_noise))
        )


ESTIMATOR: Final = KnownVariance()
