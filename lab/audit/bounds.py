"""Confidence bounds of a probability, and the lower bound of epsilon that follows.    [Clopper and Pearson 1934]

A coin decides for each sample which of two neighbours is released. Let p and q be the probabilities of an event under
the one and the other. Given that the event occurs, the sample is of the one with probability r = p / (p + q), and
samples are independent: of s samples with the event, the number of the one is binomial with s and r. Under epsilon-DP
p <= exp(epsilon) q, so epsilon >= ln(r / (1 - r)), and a lower bound of r gives one of epsilon. This is tighter than
two bounds, of p and of q.

Under (epsilon, delta)-DP p - delta <= exp(epsilon) q, so epsilon >= ln((p - delta) / q) = ln(r / (1 - r)) +
ln(1 - delta / p). So a lower bound of p is needed too. It matters little as long as delta is far below p, so it gets a
small part of the error.
"""

import math
from dataclasses import dataclass
from typing import Final

from scipy.special import betaincinv

_OF_DELTA: Final = 0.1  # part of the error for the bound of p, if delta is above 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Samples of two neighbours, and how many of them are in an event.

    one, other                number of samples
    one_inside, other_inside  of these, in the event
    """

    one: int
    other: int
    one_inside: int
    other_inside: int


def lower_bound(successes: int, trials: int, error: float) -> float:
    """Return the Clopper-Pearson lower bound of a probability: above it with probability `error` at most."""
    return 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, error))


def upper_bound(successes: int, trials: int, error: float) -> float:
    """Return the Clopper-Pearson upper bound of a probability: below it with probability `error` at most."""
    return 1.0 - lower_bound(trials - successes, trials, error)


def epsilon_lower_bound(counts: Counts, delta: float, error: float) -> float:
    """Return a lower bound of epsilon at this delta, 0 or more. It is too high with probability `error` at most.

    counts   the event must not have been chosen by these samples; a fair coin must have chosen the sides
    delta    of the claim
    """
    inside = counts.one_inside + counts.other_inside
    of_delta = _OF_DELTA * error if delta else 0.0
    share = lower_bound(counts.one_inside, inside, error - of_delta) if inside else 0.0
    least = lower_bound(counts.one_inside, counts.one, of_delta) if delta else 1.0
    if not 0 < share < 1 or least <= delta:
        return 0.0
    return max(0.0, math.log(share / (1 - share)) + math.log1p(-delta / least))
