"""LM-only: the mean of the local reports. Central users are not read, so they pay nothing.    [H Def 3.10]"""

from fractions import Fraction
from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


class LmOnly:
    """w = 0: the mean of the local reports, each with noise of scale U / eps."""

    name: Final = "lm_only"
    needs: Final = Needs.NOTHING
    fixed_weight: Final = Fraction(0)
    all_local: Final = False

    def weight(self, _setting: Setting) -> Number:
        """See HybridEstimator."""
        return self.fixed_weight


ESTIMATOR: Final = LmOnly()
