"""KVH, the known-variance hybrid: the best blend where both groups are alike and sigma is known.    [H 4]"""

from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


class KnownVariance:
    """w* = c (sigma^2 + s_L^2) / (sigma^2 + c (n s_T^2 (1 - c) + s_L^2)).    [H Def 4.1]

    It minimises the mean squared error over all w [H Lemma 3.13], so it is never worse than `tcm_only`; nor than
    `full_lm` where c n <= s_L^2 / s_T^2, as with Laplace noise of one epsilon and one central user or more.
    sigma is a constant of the policy: one that is wrong makes the blend worse than it could be, not less private.
    """

    name: Final = "kvh"
    needs: Final = Needs.SIGMA
    fixed_weight: Final = None
    all_local: Final = False

    def weight(self, setting: Setting) -> Number:
        """See HybridEstimator. sigma^2 is `central_variance`; the rest about values is taken to be the same."""
        variance, share = setting.central_variance, setting.share
        return (
            share
            * (variance + setting.local_noise)
            / (variance + share * (setting.local * setting.central_noise + setting.local_noise))
        )


ESTIMATOR: Final = KnownVariance()
