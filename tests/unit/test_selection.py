"""Exact selection: any candidate's chance is the true one, however small, and bits decide, never a rounding."""

from collections.abc import Iterator, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.mechanisms.selection import FIRST_BITS, Bits, choose, exponential
from hatcast.stream.mechanisms.system import SystemNoise

DIGITS = Context(prec=700)
rates = st.fractions(Fraction(1, 10**6), 3, max_denominator=10**7) | st.floats(1e-6, 3.0).map(Fraction)
candidates = st.lists(
    st.tuples(st.integers(0, 5) | st.integers(0, 10**12), st.integers(0, 40) | st.integers(0, 500)),
    min_size=1,
    max_size=25,
).filter(lambda found: any(weight for weight, _ in found))


def bits_of(real: Fraction) -> Bits:
    """The binary digits of a number in [0, 1), for ever."""
    rest = real

    def take(number: int) -> int:
        nonlocal rest
        rest *= 2**number
        taken = int(rest)
        rest -= taken
        return taken

    return take


def chosen(found: Sequence[tuple[int, int]], rate: Fraction, real: Fraction) -> int:
    weights, costs = (np.array(column, np.int64) for column in zip(*found, strict=True))
    return choose(weights, costs, rate, bits_of(real))


def cumulative(found: Sequence[tuple[int, int]], rate: Fraction) -> Iterator[tuple[int, Decimal, Decimal]]:
    """(index, sum up to it, sum with it), as shares of 1: cheapest first, in hundreds of digits."""
    with localcontext(DIGITS):
        step = -Decimal(rate.numerator) / Decimal(rate.denominator)
        order = sorted((i for i, (weight, _) in enumerate(found) if weight), key=lambda i: found[i][1])
        terms = [found[i][0] * (step * found[i][1]).exp() for i in order]
        total, below = sum(terms), Decimal(0)
        for i, term in zip(order, terms, strict=True):
            yield i, below / total, (below + term) / total
            below += term


@given(candidates, rates, st.fractions(0, 1, max_denominator=2**40).filter(lambda real: real < 1))
def test_the_candidate_is_the_one_whose_share_of_the_sum_the_bits_fall_into(
    found: list[tuple[int, int]], rate: Fraction, real: Fraction
) -> None:
    at = chosen(found, rate, real)
    ((below, above),) = [(below, above) for i, below, above in cumulative(found, rate) if i == at]
    with localcontext(DIGITS):
        assert below <= Decimal(real.numerator) / Decimal(real.denominator) < above


@given(candidates, rates, st.data())
def test_bits_next_to_a_border_are_drawn_until_they_tell_the_sides_apart(
    found: list[tuple[int, int]], rate: Fraction, data: st.DataObject
) -> None:
    *inner, _ = cumulative(found, rate)
    if not inner:
        return
    i, _, border = data.draw(st.sampled_from(inner))
    apart = Fraction(1, 2 ** data.draw(st.integers(FIRST_BITS - 10, 3 * FIRST_BITS)))
    borders = [each for _, each, _ in cumulative(found, rate)] + [Decimal(1)]
    if min(abs(other - border) for other in borders if other != border) <= Decimal(1) / 2**100:
        return  # another border is as near
    assert chosen(found, rate, Fraction(border) - apart) == i
    assert chosen(found, rate, Fraction(border) + apart) != i


def test_a_chance_of_exp_minus_5000_is_kept_where_floats_have_none() -> None:
    found = [(1, 0), (1, 5000)]
    tail = Fraction(Decimal(-5000).exp(DIGITS))  # to 700 digits of its own
    just_in, just_out = 1 - tail * Fraction(999, 1000), 1 - tail * Fraction(1001, 1000)
    assert (chosen(found, Fraction(1), just_in), chosen(found, Fraction(1), just_out)) == (1, 0)
    assert float(tail) == 0.0, "a float would never choose it"


def test_the_first_bits_may_be_all_alike() -> None:
    found = [(2, 1), (0, 0), (3, 700), (1, 1200)]
    assert chosen(found, Fraction(1, 8), Fraction(0)) == 0
    assert chosen(found, Fraction(1, 8), 1 - Fraction(1, 2**400)) == 3


def test_costs_count_from_the_least_of_a_candidate_that_has_a_weight() -> None:
    found = [(0, 0), (1, 10**6), (1, 10**6 + 1), (0, 3)]
    share = 1 / (1 + Fraction(Decimal(-1).exp(DIGITS)))
    assert chosen(found, Fraction(1), share - Fraction(1, 10**50)) == 1
    assert chosen(found, Fraction(1), share + Fraction(1, 10**50)) == 2


@given(st.fractions(0, 300, max_denominator=10**9), st.integers(1, 700))
def test_bounds_of_the_exponential_hold_and_are_narrow(x: Fraction, digits: int) -> None:
    low, high = exponential(x, digits)
    with localcontext(DIGITS):
        exact = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**digits
    assert low <= exact <= high
    assert high - low <= 2


@pytest.mark.parametrize(
    ("weights", "costs", "rate"),
    [
        ([], [], Fraction(1)),
        ([0, 0], [1, 1], Fraction(1)),
        ([1], [1], Fraction(0)),
        ([1], [1], Fraction(-1)),
        ([1, -1], [1, 1], Fraction(1)),
        ([1], [-1], Fraction(1)),
        ([1], [1, 2], Fraction(1)),
    ],
)
def test_a_choice_without_chances_is_refused(weights: list[int], costs: list[int], rate: Fraction) -> None:
    with pytest.raises(ValueError, match="a private selection needs"):
        SystemNoise().choose(np.array(weights, np.int64), np.array(costs, np.int64), rate)


def test_one_candidate_is_chosen_and_one_integer_drawn() -> None:
    assert SystemNoise().choose(np.array([0, 7]), np.array([0, 9]), Fraction(10**9)) == 1
    assert SystemNoise().uniform(1) == 0
    with pytest.raises(ValueError, match="positive"):
        SystemNoise().uniform(0)
