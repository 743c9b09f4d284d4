"""Hybrid estimators: the weight of the central users' mean in the blend with the local devices' mean.    [H 3 to 6]"""

from fractions import Fraction
from typing import Final

from hatcast.stream.hybrid._interface import HybridEstimator, Needs, Number, Setting

# Baselines: one of the two means alone.
# The mean of the central users, with noise of scale U / (eps c n). Reports are ignored.    [H Def 3.1]
TCM_ONLY: Final = HybridEstimator("tcm_only", lambda _: Fraction(1), fixed_weight=Fraction(1))
# The mean of the local reports, each with noise of scale U / eps. Central users are not read, so they pay nothing.
# [H Def 3.10]
LM_ONLY: Final = HybridEstimator("lm_only", lambda _: Fraction(0), fixed_weight=Fraction(0))
# The mean of n reports. The operator is not trusted: it adds to central users' values the noise that local devices add
# themselves, with the same epsilon. Then all users are local, and the central mean has no users and weight 0.
# [H Def 3.3]
FULL_LM: Final = HybridEstimator("full_lm", lambda _: Fraction(0), fixed_weight=Fraction(0), all_local=True)


def known_variance(setting: Setting) -> Number:
    """Return w* = c (sigma^2 + s_L^2) / (sigma^2 + c (n s_T^2 (1 - c) + s_L^2)).    [H Def 4.1]

    It minimises the mean squared error over all w [H Lemma 3.13], so it is never worse than `tcm_only`, and never worse
    than `full_lm` if c n <= s_L^2 / s_T^2, as with Laplace noise of one epsilon and at least one central user.
    sigma is a constant of the policy: a wrong value costs accuracy, not privacy. sigma^2 is `central_variance`;
    `local_variance` and `gap` are not read.
    """
    variance, share = setting.central_variance, setting.share
    return (
        share
        * (variance + setting.local_noise)
        / (variance + share * (setting.local * setting.central_noise + setting.local_noise))
    )


KVH: Final = HybridEstimator("kvh", known_variance, Needs.SIGMA)


def heterogeneous_known_variance(setting: Setting) -> Number:
    """Return w* of [H Def 6.1], which minimises the mean squared error of [H Lemma 3.13] over all w.

    With V = sigma_T^2 / (c n) + sigma_L^2 / ((1 - c) n) + (mu_L - mu_T)^2, the factor of (w - c)^2 in the error, and
    B = s_L^2 / ((1 - c) n):  w* = (c V + B) / (V + s_T^2 + B). This is the paper's w*, because mu_L - mu =
    c (mu_L - mu_T). So of the groups' means only the gap is needed.
    """
    sampling = (
        setting.central_variance / setting.central + setting.local_variance / setting.local + setting.gap * setting.gap
    )
    reports = setting.local_noise / setting.local
    return (setting.share * sampling + reports) / (sampling + setting.central_noise + reports)


KVH_HETEROGENEOUS: Final = HybridEstimator("kvh_heterogeneous", heterogeneous_known_variance, Needs.BOTH_GROUPS)


def weight(local: Number, central_noise: Number, local_noise: Number) -> Number:
    """Return the weight w = s_L^2 / (s_L^2 + (1 - c) n s_T^2) of the central mean; the local mean has 1 - w.

    [H Def 5.3]

    local           (1 - c) n, number of users in the local mean: 0 or more
    central_noise   s_T^2, variance of the noise on the central mean
    local_noise     s_L^2, variance of the noise on each report; at least one of the two is above 0
    Fractions give a fraction. w minimises w^2 s_T^2 + (1 - w)^2 s_L^2 / ((1 - c) n): the weights are inverse to the
    noise variances.
    """
    return local_noise / (local_noise + local * central_noise)


# Never worse than the worse of `tcm_only` and `full_lm`. With Laplace noise of one epsilon better than `tcm_only`, and
# than both if and only if c n > 1 and (c n - 1) ((1 - c) eps^2 sigma^2 / U^2 - 2 c) < 2.
PWH: Final = HybridEstimator("pwh", lambda each: weight(each.local, each.central_noise, each.local_noise))
