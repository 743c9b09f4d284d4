"""Full-LM: nobody is trusted, so everybody's own value gets noise. The other baseline.    [H Def 3.3]"""

from fractions import Fraction
from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


class FullLm:
    """The mean of n reports, each with noise of scale U / eps.

    The operator does for central users what local devices do for themselves, with the same epsilon. Then all users are
    local, and a blend gives the central mean, of nobody, no weight.
    """

    name: Final = "full_lm"
    needs: Final = Needs.NOTHING
    fixed_weight: Final = Fraction(0)
    all_local: Final = True

    def weight(self, _setting: Setting) -> Number:
        """See HybridEstimator."""
        return self.fixed_weight


ESTIMATOR: Final = FullLm()
