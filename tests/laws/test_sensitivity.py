"""The search of `tests.sensitivity`: it uses each sensitivity up, and never more. scripts/nightly has more pairs."""

import random
from fractions import Fraction

import pytest

from hatcast.stream.estimators import Estimator, Parameters
from tests import sensitivity
from tests.laws.test_estimators import TooSure

PAIRS = 40
EVERY = [*sensitivity.settings()]


@pytest.mark.parametrize(("estimator", "parameters"), [each[1:] for each in EVERY], ids=[each[0] for each in EVERY])
def test_no_neighbours_are_further_apart_than_the_sensitivity(estimator: Estimator, parameters: Parameters) -> None:
    assert sensitivity.climb(estimator, parameters, PAIRS, random.Random(1)) <= 1


@pytest.mark.parametrize("name", sorted({each[1].name for each in EVERY}))
def test_the_search_uses_a_sensitivity_up_and_finds_one_of_nine_tenths(name: str) -> None:
    estimator, parameters = next(each[1:] for each in EVERY if each[1].name == name)
    assert sensitivity.climb(estimator, parameters, 400, random.Random(2)) == 1
    assert sensitivity.climb(TooSure(estimator), parameters, 400, random.Random(2)) == Fraction(10, 9)
