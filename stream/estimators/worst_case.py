"""The worst-case error of an estimator, bias and noise apart.    [V, E_M], [estimators.md, section 4]"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hatcast.stream.estimators import Estimator, Parameters
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.mechanisms.grid import Grid


@dataclass(frozen=True, slots=True)
class WorstCaseError:
    """E_M = bias + noise, in milli-units; an upper bound of the mean absolute error on every data set.

    bias    the most that the value before noise differs from the mean of all readings, over all sums
    noise   E|noise|: the scale sensitivity / epsilon, without the grid's widening
    """

    bias: Fraction
    noise: Fraction

    @property
    def total(self) -> Fraction:
        """E_M."""
        return self.bias + self.noise


def worst_case_error(
    estimator: Estimator,
    counts: Counts,
    upper_bound_milli: int,
    epsilon: float,
    grouping: str | None = None,
    array_length: str | int | None = None,
) -> WorstCaseError | None:
    """What can be said before any speed is seen. Settings left out are the estimator's defaults.

    None for an estimator that selects an interval first: neither summand is fixed. None for a ratio of noisy sums:
    its bias is fixed (`Estimator.bias`), but noise that is divided by noise has no mean that a formula gives.
    Raises EmptyHat, SettingError.
    """
    defaults = estimator.keys.defaults
    parameters = Parameters(
        upper_bound_milli,
        Grid(Decimal(upper_bound_milli) / 1000),  # plays no part: the numbers are those before rounding
        epsilon,
        grouping or defaults.get("grouping"),
        array_length or defaults.get("array_length"),
        defaults.get("quantiles"),
    )
    bias = estimator.bias(counts, parameters)
    if bias is None or "noise" not in estimator.shares:
        return None
    spent = Fraction(epsilon) * estimator.shares["noise"]
    return WorstCaseError(bias, estimator.sensitivity(counts, parameters) / spent)
