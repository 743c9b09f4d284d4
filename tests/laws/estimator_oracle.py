"""Every estimator's value by its formula: a fraction for every part of every user, one at a time."""

import math
from fractions import Fraction

from hatcast.stream.estimators import Parameters, Users
from hatcast.stream.estimators.array_length import array_length
from hatcast.stream.estimators.grouping import GROUPINGS


def by_definition(name: str, users: Users, parameters: Parameters) -> Fraction:
    """The value before noise; what arrays there are is tested apart."""
    counts: list[int] = users.counts.tolist()
    sums: list[int] = users.sums.tolist()
    means = [Fraction(s, m) for m, s in zip(counts, sums, strict=True)]
    if name == "baseline":
        return Fraction(sum(sums), sum(counts))
    if name == "clipped_sum":
        return sum(
            (_cut_to_the_middle(s, m, counts, parameters) for s, m in zip(sums, counts, strict=True)), Fraction(0)
        )
    assert parameters.array_length is not None
    length = array_length(parameters.array_length, users.counts, parameters.epsilon, parameters.grouping)
    if name in ("weighted_mean", "capped_ratio"):
        weights = [min(m, length) for m in counts]
        return sum((w * mean for w, mean in zip(weights, means, strict=True)), Fraction(0)) / sum(weights)
    array_means = array_means_of(users, parameters)
    if name in ("levy", "quantile"):
        a, b = parameters.interval or (Fraction(0), Fraction(parameters.upper_bound_milli))
        array_means = [min(max(mean, a), b) for mean in array_means]
    else:
        assert name in ("array_averaging", "opt_array_averaging")
    return sum(array_means, Fraction(0)) / len(array_means)


def array_means_of(users: Users, parameters: Parameters) -> list[Fraction]:
    """The mean of each array, its places one by one filled with their user's mean."""
    assert parameters.grouping is not None
    assert parameters.array_length is not None
    means = [Fraction(s, m) for m, s in zip(users.counts.tolist(), users.sums.tolist(), strict=True)]
    length = array_length(parameters.array_length, users.counts, parameters.epsilon, parameters.grouping)
    arrays = GROUPINGS[parameters.grouping](users.counts, length)
    found = [Fraction(0)] * arrays.number
    parts = zip(arrays.users.tolist(), arrays.arrays.tolist(), arrays.places.tolist(), strict=True)
    for user, array, places in parts:
        found[array] += places * means[user] / int(arrays.fills[array])
    return found


def _cut_to_the_middle(s: int, m: int, counts: list[int], parameters: Parameters) -> Fraction:
    upper = parameters.upper_bound_milli
    rank = math.ceil(2 / parameters.epsilon)
    widest = upper * counts[rank - 1] if rank <= len(counts) else 0
    middle, half = Fraction(upper * m, 2), Fraction(min(upper * m, widest), 2)
    return min(max(Fraction(s), middle - half), middle + half) / sum(counts)
