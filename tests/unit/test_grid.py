"""The public grid: rounding, distances, text, and the quantile of the noise."""

import json
import math
import re
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.stream.mechanisms.grid import MAX_FINENESS, Grid, fineness, quantile95
from tests.support import GRIDS

ROOT = Path(__file__).parents[2]
grids = st.sampled_from(GRIDS).map(lambda text: Grid(Decimal(text)))
values = st.fractions(0, 65_000, max_denominator=10**6)


@given(grids, values)
def test_a_value_is_rounded_to_the_nearest_step(grid: Grid, value: Fraction) -> None:
    assert abs(grid.nearest(value) * grid.milli - value) <= grid.milli / 2


def test_a_value_between_two_steps_goes_to_the_even_one() -> None:
    grid = Grid(Decimal("0.5"))
    assert [grid.nearest(Fraction(milli)) for milli in (250, 750, 1250)] == [0, 2, 2]


@given(grids, values, values)
def test_rounded_values_are_no_further_apart_than_the_distance(grid: Grid, x: Fraction, y: Fraction) -> None:
    assert abs(grid.nearest(x) - grid.nearest(y)) <= grid.distance(abs(x - y))


def test_the_distance_without_the_extra_step_would_be_too_small() -> None:
    grid = Grid(Decimal("0.001"))
    x, y = Fraction(1, 2), Fraction(3, 2)  # halves go to the even step, so that one step apart becomes two
    assert grid.nearest(y) - grid.nearest(x) == grid.distance(y - x) == 2


def test_no_sensitivity_is_no_distance() -> None:
    assert Grid(Decimal("0.001")).distance(Fraction(0)) == 0


@pytest.mark.parametrize(
    ("step", "steps", "text"),
    [
        ("0.001", 21314, "21.314"),
        ("0.001", 21300, "21.300"),
        ("0.001", -7, "-0.007"),
        ("0.0005", 3, "0.0015"),
        ("0.5", 43, "21.5"),
        ("0.50", 42, "21.0"),
        ("2.5", 3, "7.5"),
        ("1", 65, "65"),
        ("1.0", 65, "65"),
        ("10", 6, "60"),
        ("0.000001", 1, "0.000001"),
        ("1e-6", 1, "0.000001"),
    ],
)
def test_steps_are_written_in_km_h_with_the_digits_of_the_grid(step: str, steps: int, text: str) -> None:
    assert Grid(Decimal(step)).text(steps) == text


@given(grids, st.integers(-(10**12), 10**12))
def test_what_is_written_is_the_exact_multiple_of_the_step(grid: Grid, steps: int) -> None:
    assert Decimal(grid.text(steps)) == steps * grid.step


@pytest.mark.parametrize(
    ("step", "scale", "text"),
    [("0.001", 545.0, "0.545"), ("0.001", 545.0000000000001, "0.545"), ("0.5", 1.1, "0.6"), ("0.001", 0.0, "0.000")],
)
def test_a_scale_is_written_with_the_digits_of_the_grid(step: str, scale: float, text: str) -> None:
    assert Grid(Decimal(step)).scale_text(scale) == text


def test_a_scale_of_little_noise_is_never_written_as_none() -> None:
    assert Grid(Decimal("0.001")).scale_text(1e-9) == "0.001"


@given(grids, values)
def test_the_floor_is_the_last_step_not_above_a_value(grid: Grid, value: Fraction) -> None:
    assert grid.floor(value) * grid.milli <= value < (grid.floor(value) + 1) * grid.milli


@pytest.mark.parametrize("step", ["0", "-0.001", "NaN", "Infinity"])
def test_a_grid_without_a_step_above_nothing_is_refused(step: str) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Grid(Decimal(step))


def tail(q: int, scale: float) -> float:
    """P(|X| > q) for the discrete Laplace."""
    return 2 * math.exp(-(q + 1) / scale) / (1 + math.exp(-1 / scale))


@given(st.floats(0.01, 2**20))
@example(545.0)
@example(0.25)
def test_the_quantile_leaves_a_twentieth_outside_and_the_next_smaller_leaves_more(scale: float) -> None:
    q = quantile95(scale)
    assert tail(q, scale) < 0.05 + 1e-12
    assert q == 0 or tail(q - 1, scale) > 0.05 - 1e-12


@given(st.integers(1, 2**30), st.integers(-4, 4))
@example(1, 0)
def test_the_quantile_in_floats_is_that_of_60_digits_also_where_it_is_close_to_an_integer(q: int, off: int) -> None:
    """The scale at which the quantile is just this integer, and its neighbours among the floats."""
    scale = (q + 1) / math.log(40 / 2)
    for _ in range(20):  # a fixed point: the logarithm hardly depends on the scale
        scale = (q + 1) / math.log(40 / (1 + math.exp(-1 / scale)))
    scale += off * math.ulp(scale)
    with localcontext(Context(prec=60)):
        exact = Decimal(scale) * (Decimal(40) / (1 + (-1 / Decimal(scale)).exp())).ln() - 1
        assert quantile95(scale) == math.ceil(exact)


def test_the_quantile_of_the_widest_noise_is_that_of_the_continuous_laplace() -> None:
    assert abs(quantile95(2.0**50) - 2.0**50 * math.log(20)) <= 1


def test_the_interval_of_every_record_that_the_pages_show_is_that_of_its_noise() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"^```json\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]
    shown = [text for block in blocks for text in re.split(r"^(?=\{)", block, flags=re.MULTILINE)]
    records = [json.loads(text) for text in shown if '"kind": "laplace", "scale"' in text]
    assert len(records) >= 2
    for record in records:
        low, high = (round(each * 1000) for each in record["interval95"])
        middle = round(record["mean"] * 1000)
        assert middle - low == high - middle
        scale = record["noise"]["scale"] * 1000  # rounded to a step
        assert quantile95(scale - 0.5) <= high - middle <= quantile95(scale + 0.5)


def test_no_noise_and_hardly_any_have_quantile_nothing() -> None:
    assert (quantile95(0.0), quantile95(1e-9), quantile95(0.0099)) == (0, 0, 0)


@given(grids, st.floats(0.01, 2.0**50))
def test_the_fineness_of_a_published_scale_is_never_above_that_of_the_scale(grid: Grid, scale: float) -> None:
    found = grid.fineness(float(grid.scale_text(scale)))
    assert 0 <= found <= MAX_FINENESS
    assert found == 0 or scale >= 2**found
    assert found == MAX_FINENESS or scale < 2 ** (found + 1) + 1  # half a digit is lost at most


def test_no_noise_is_as_fine_as_one_likes() -> None:
    grid = Grid(Decimal("0.001"))
    assert grid.fineness(0.0) == MAX_FINENESS
    assert grid.fineness(float(grid.scale_text(1e-9))) == 0


def test_fineness_is_the_number_of_doublings() -> None:
    assert [fineness(scale) for scale in (-1, 0, 1, 2, 3, 4, 1023, 1024, 10**9)] == [0, 0, 0, 1, 1, 2, 9, 10, 10]
