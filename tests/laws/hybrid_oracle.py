"""The weights as the spec prints them, in plain fractions of n and c.    [estimators.md, section 6; H Def 6.1]"""

from fractions import Fraction

from hatcast.stream.hybrid import HybridParameters
from hatcast.stream.mechanisms.gaussian import deviation_for


def nine_digits(epsilon: float, delta: float) -> Fraction:
    """dp-accounting's deviation for a move by 1."""
    return Fraction(f"{deviation_for(epsilon, delta):.9g}")


def weight_by_definition(name: str, central: int, local: int, parameters: HybridParameters) -> Fraction:
    n, upper = Fraction(central + local), Fraction(parameters.upper_bound_milli)
    c = central / n
    epsilon, local_epsilon = Fraction(str(parameters.epsilon)), Fraction(str(parameters.local_epsilon))
    s_t, s_l = 2 * upper**2 / (epsilon * c * n) ** 2, 2 * upper**2 / local_epsilon**2
    if parameters.delta is not None:
        s_t = (nine_digits(parameters.epsilon, parameters.delta) * upper / (c * n)) ** 2
        s_l = (nine_digits(parameters.local_epsilon, parameters.delta) * upper) ** 2
    spread = parameters.spread
    sigma_t, sigma_l, gap = (spread.central_milli**2, spread.local_milli**2, spread.gap_milli) if spread else (0, 0, 0)
    if name == "pwh":
        return s_l / (s_l + (1 - c) * n * s_t)
    if name == "kvh":
        return c * (sigma_t + s_l) / (sigma_t + c * (n * s_t * (1 - c) + s_l))
    if name == "kvh_heterogeneous":
        mu_t, mu_l = Fraction(0), Fraction(gap)
        mu = c * mu_t + (1 - c) * mu_l
        above = c * (s_l + c * sigma_l + (1 - c) * (n * (mu_l - mu) * (mu_l - mu_t) + sigma_t))
        return above / (c * s_l + (1 - c) * c * n * ((mu_l - mu_t) ** 2 + s_t) + c * sigma_l + (1 - c) * sigma_t)
    return {"tcm_only": Fraction(1), "lm_only": Fraction(0), "full_lm": Fraction(0)}[name]
