"""Worst-case error of an estimator, as bias and noise.    [V, E_M], [docs/specification/estimators.md, section 4]"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hatcast.stream.estimators import Estimator, Parameters
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.mechanisms.grid import Grid


@dataclass(frozen=True, slots=True)
class WorstCaseError:
    """E_M = bias + noise, in milli-units: an upper bound of the mean absolute error on every data set.

    bias    largest difference of the value before noise from the mean of all readings, over all sums
    noise   E|noise|: the scale sensitivity / epsilon, without the increase by the grid
    """

    bias: Fraction
    noise: Fraction

    @property
    def total(self) -> Fraction:
        """E_M: the sum of both."""
        return self.bias + self.noise


def worst_case_error(
    estimator: Estimator,
    counts: Counts,
    upper_bound_milli: int,
    epsilon: float,
    grouping: str | None = None,
    array_length: str | int | None = None,
) -> WorstCaseError | None:
    """Return the worst-case error for these counts. Omitted settings are the estimator's defaults.

    None for an estimator that selects an interval first: neither summand is fixed. None for a ratio of noisy sums: its
    bias is fixed (`Estimator.bias`), but the quotient of noisy numbers has no closed-form mean.
    Raises EmptyHat, SettingError.
    """
    defaults = estimator.keys.defaults
    parameters = Parameters(
        upper_bound_milli,
        Grid(Decimal(upper_bound_milli) / 1000),  # not used: the numbers are those before rounding
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
