"""Two groups of users and the noise on each: all that weights and mean squared errors depend on.    [H 2.2]"""

from dataclasses import dataclass
from fractions import Fraction

Number = Fraction | float
"""A release computes with fractions, plots with floats. Fractions in give a fraction; an int is not exact: n / m."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Public. Any unit of values, the same one in all fields.

    central, local     users of either group: c n that trust the operator, (1 - c) n that do not
    central_noise      s_T^2: variance of the noise on the mean of the central users
    local_noise        s_L^2: variance of the noise on each local user's own value
    central_variance   sigma_T^2: of central users' values, were they drawn from a distribution
    local_variance     sigma_L^2: of local users' values
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
        """n"""
        return self.central + self.local

    @property
    def share(self) -> Number:
        """c"""
        return self.central / self.users
