"""Estimators that select first: on small HATs every outcome of the selection is tried, with its exact chance."""

from dataclasses import replace
from decimal import Context, Decimal, localcontext

import pytest

from hatcast.lab.audit.laws import DIGITS, ROUNDING, losses_of, outcomes_of, pair_losses
from hatcast.stream.estimators import ESTIMATORS, Parameters, array_averaging
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays, Counts, wraparound
from hatcast.stream.mechanisms.grid import Grid
from tests.support import UPPER_BOUND, as_users

GRID = Grid(Decimal("16.25"))  # four steps up to U
SELECTING = [
    ("levy", None, 0.5),
    ("levy", None, 2.0),
    ("levy", 0.01, 2.0),
    ("levy", 1.0, 1.0),
    ("quantile", "fixed", 1.0),
    ("quantile", "epsilon_dependent", 1.0),
    ("quantile", "epsilon_dependent", 6.0),
    ("quantile", "smoothed", 1.0),
]
"""with the setting of quantiles, or gamma"""
HATS = {"short": [3, 3, 3, 2, 2, 2], "long": [10, 6, 6, 6, 6, 6]}
"""With the first user's count as the array length WRAPAROUND splits users, and LEVY has two bins and three."""


def worst_losses(name: str, counts: list[int], parameters: Parameters) -> tuple[Decimal, Decimal]:
    """Over all HATs where users' means are 0, U/2 or U, and all neighbours in which one becomes another."""
    found = losses_of(parameters, tuple(counts), ESTIMATORS[name].estimate)
    return found.selected, found.whole


def parameters_of(counts: list[int], grouping: str, setting: str | float | None, epsilon: float) -> Parameters:
    quantiles, gamma = (setting, None) if isinstance(setting, str) else (None, setting)
    return Parameters(UPPER_BOUND, GRID, epsilon, grouping, counts[0], quantiles, gamma=gamma)


@pytest.mark.parametrize("counts", HATS.values(), ids=HATS)
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize(("name", "setting", "epsilon"), SELECTING)
def test_neighbours_select_and_publish_within_their_shares_of_epsilon(
    name: str, setting: str | float | None, epsilon: float, grouping: str, counts: list[int]
) -> None:
    selected, whole = worst_losses(name, counts, parameters_of(counts, grouping, setting, epsilon))
    share = 1 - ESTIMATORS[name].shares["noise"]
    allowed = Decimal(epsilon) * share.numerator / share.denominator
    assert selected <= allowed + ROUNDING
    assert whole <= Decimal(epsilon) + ROUNDING


def one_array_a_user(counts: Counts, array_length: int) -> Arrays:
    """The mutant: WRAPAROUND with the papers' constants, which are those of BESTFIT."""
    return replace(wraparound(counts, array_length), split=1)


def quantile_losses() -> tuple[Decimal, Decimal]:
    """Of two neighbours: one user carries two array means from just below those of the rest to far above.

    In steps the means are 9 9 10 10 10, then 17 17 10 10 10.
    """
    counts = HATS["short"]
    parameters = parameters_of(counts, "wraparound", "epsilon_dependent", 1.0)
    finer = replace(parameters, grid=Grid(Decimal("2.5")))
    rest = [3 * 24_375] * 3 + [2 * 32_500]
    with localcontext(Context(prec=DIGITS)):
        one, other = (
            outcomes_of(as_users(counts, (*rest, of_user, 2 * 32_500)), finer, ESTIMATORS["quantile"].estimate)
            for of_user in (0, 2 * UPPER_BOUND)
        )
        return pair_losses(one, other)


def test_wraparound_with_the_papers_constants_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    levy = parameters_of(HATS["long"], "wraparound", None, 1.0)
    half, whole = Decimal(1) / 2, Decimal(1)
    selected, published = quantile_losses()
    assert selected <= half
    assert published <= whole
    monkeypatch.setattr(array_averaging, "GROUPINGS", {"wraparound": one_array_a_user})
    for found in (worst_losses("levy", HATS["long"], levy), quantile_losses()):
        assert found[0] > half
        assert found[1] > whole
