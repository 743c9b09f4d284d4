"""Full-LM: the operator is not trusted, so each user's own value gets noise. One of two baselines.    [H Def 3.3]"""

from fractions import Fraction
from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


class FullLm:
    """The mean of n reports, each with noise of scale U / eps.

    The operator adds to central users' values the noise that local devices add themselves, with the same epsilon. Then
    all users are local, and the central mean has no users and weight 0.
    """

    name: Final = "full_lm"
    needs: Final = Needs.NOTHING
    fixed_weight: Final = Fraction(0)
    all_local: Final = True

    def weight(self, _setting: Setting) -> Number:
        """See HybridEstimator."""
        return self.fixed_weight


ESTIMATOR: Final = FullLm()
