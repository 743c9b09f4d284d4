"""TCM-only: the mean of the central users. Reports of local devices are ignored.    [H Def 3.1]"""

from fractions import Fraction
from typing import Final

from hatcast.stream.hybrid._interface import Needs
from hatcast.stream.hybrid.setting import Number, Setting


class TcmOnly:
    """w = 1: the mean of central users, with noise of scale U / (eps c n)."""

    name: Final = "tcm_only"
    needs: Final = Needs.NOTHING
    fixed_weight: Final = Fraction(1)
    all_local: Final = False

    def weight(self, _setting: Setting) -> Number:
        """See HybridEstimator."""
        return self.fixed_weight


ESTIMATOR: Final = TcmOnly()
