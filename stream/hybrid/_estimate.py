"""The publishable result of a hybrid estimator."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from hatcast.stream.mechanisms.grid import clip
from hatcast.stream.policy.policy import NoiseKind

TARGET: Final = "user_mean"
"""Target of all hybrid estimators, in each release: the unweighted mean of users' means, (1/n) sum mu_l"""

_WEIGHT_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class HybridEstimate:
    """Publishable estimate of a HAT, in grid steps; `Grid.text` formats it in km/h. Its target is TARGET.

    raw            blend of two noisy means, on the grid
    top            largest step that is not above U
    interval95     within [0, top]; contains the blend before noise with probability 0.95 or more, for any data. It
                   covers the noise only, not sampling or differences between the groups
    weight         w, weight of the central mean
    kind           kind of both noises; the scale of Gaussian noise is its standard deviation
    central_scale  scale of the noise on the central mean, steps; 0 if none was drawn
    local_scale    scale of the noise on each local report, steps; 0 without reports
    variance       variance of both noises together in `raw`, steps^2
    public_epsilon epsilon of any user against observers of releases only: at most the epsilon of its own noise
    delta          delta of Gaussian noise, for each epsilon; 0 for Laplace noise
    groups         each group's own estimate; None if no group's own mean is published
    """

    raw: int
    top: int
    interval95: tuple[int, int]
    weight: Fraction
    kind: NoiseKind
    central_scale: float
    local_scale: float
    variance: float
    public_epsilon: float
    delta: float
    groups: "GroupEstimates | None" = None

    @property
    def mean(self) -> int:
        """`raw` clipped to [0, U]."""
        return clip(self.raw, self.top)

    @property
    def weight_text(self) -> str:
        """The weight as text with up to six digits: "0.731059", "1.0"."""
        whole, rest = divmod(round(self.weight * 10**_WEIGHT_DIGITS), 10**_WEIGHT_DIGITS)
        return f"{whole}.{f'{rest:0{_WEIGHT_DIGITS}}'.rstrip('0') or '0'}"


@dataclass(frozen=True, slots=True)
class GroupEstimates:
    """Estimates of the mean of each group's users: those that `tcm_only` and `lm_only` return for the same noise.

    With `full_lm` the central users' estimate is that of reports too. None: the group has no users.
    """

    central: HybridEstimate | None
    local: HybridEstimate | None

    @property
    def public_epsilon(self) -> float:
        """Epsilon of any user against observers of releases only: the larger one of the two groups."""
        return max(each.public_epsilon for each in (self.central, self.local) if each is not None)
