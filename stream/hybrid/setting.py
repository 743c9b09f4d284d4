"""Sizes, variances and noise of the two groups: the inputs of weights and mean squared errors.    [H 2.2]"""

from dataclasses import dataclass
from fractions import Fraction

Number = Fraction | float
"""Fractions in releases, floats in plots. Fractions give a fraction; ints would not, because n / m is a float."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Public setting of a hybrid estimate, in any unit of values that all fields share.

    central, local     number of users of either group: c n that trust the operator, (1 - c) n that do not
    central_noise      s_T^2: variance of the noise on the mean of the central users
    local_noise        s_L^2: variance of the noise on each local user's own value
    central_variance   sigma_T^2: variance of the distribution of central users' values
    local_variance     sigma_L^2: variance of the distribution of local users' values
    gap                mu_L - mu_T
    """

    central: Number
    local: Number
    central_noise: Number
    local_noise: Number
    central_variance: Number = Fraction(0)
    local_variance: Number = Fraction(0)
    gap: Number = Fraction(0)

    @property
    def users(self) -> Number:
        """Number of users, n."""
        return self.central + self.local

    @property
    def share(self) -> Number:
        """Share of central users, c."""
        return self.central / self.users
