"""The weights as the spec prints them, in plain fractions of n and c, and lemmas in closed form: cases of 3.13.

[estimators.md, section 6; H Def 6.1, Lemmas 4.2 and 5.4]
"""

from fractions import Fraction

from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HybridParameters, Setting
from hatcast.stream.hybrid._interface import Number
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


def known_variance(setting: Setting) -> Number:
    """Return E_KVH of groups with equal distribution; sigma^2 is `central_variance`.    [H Lemma 4.2]"""
    weight, share = HYBRID_ESTIMATORS["kvh"].weight(setting), setting.share
    return (
        (weight - share) ** 2 / (share * setting.local) * setting.central_variance
        + weight * weight * setting.central_noise
        + (1 - weight) * (1 - weight) * setting.local_noise / setting.local
    )


def privacy_weighted(setting: Setting) -> Number:
    """Return E_PWH of groups with equal distribution; sigma^2 is `central_variance`.    [H Lemma 5.4]"""
    share, users, variance = setting.share, setting.users, setting.central_variance
    central, local = setting.central_noise, setting.local_noise
    numerator = (
        (1 - share) * share * users * users * central * central * (share * variance + local)
        + share * users * local * central * (2 * (share - 1) * variance + local)
        + (1 - share) * variance * local * local
    )
    return numerator / (share * users * (local + setting.local * central) ** 2)


def pwh_beats_both(users: Number, share: Number, noise: Number) -> bool:
    """Return whether R(PWH) > 1 with Laplace noise of one epsilon, c n >= 1.    [H 5, erratum: docs/hybrid.md]

    noise   eps^2 sigma^2 / U^2
    With t = c n, D = c t + 1 - c and w = c t / D: n (E_F - E_PWH) = 2 U^2 / eps^2 (1 - 1 / D) - c (1 - c) (t - 1)^2
    sigma^2 / D^2, and D - 1 = c (t - 1). So E_PWH < E_F if and only if t > 1 and (t - 1) ((1 - c) noise - 2 c) < 2.
    E_PWH < E_T always: its sampling error is (c (t - 1) / D)^2 times that of E_T, its noise c t / D times that of E_T,
    and D = c (t - 1) + 1 > c t.
    """
    t_minus_1 = share * users - 1
    return t_minus_1 > 0 and t_minus_1 * ((1 - share) * noise - 2 * share) < 2
