"""Laws of the system's noise: OpenDP confirms every scale, nothing saturates, nothing repeats."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opendp.domains import atom_domain
from opendp.measurements import make_laplace
from opendp.metrics import absolute_distance

from hatcast.stream.mechanisms import MAX_SCALE, MAX_VALUE, Noise, UnsafeNoise, system
from hatcast.stream.mechanisms.laplace import smallest_scale
from hatcast.stream.mechanisms.system import SystemNoise

distances = st.integers(1, 2**40) | st.integers(1, 20)
epsilons = st.floats(2.0**-9, 1e9) | st.sampled_from([0.1, 0.3, 0.5, 1.0, 2.0])


def claimed(distance: int, scale: float) -> float:
    """OpenDP's own bound."""
    return float(make_laplace(atom_domain(T="i64"), absolute_distance(T="i64"), scale).map(distance))  # type: ignore[no-untyped-call]


@given(distances, epsilons)
@example(3, 0.1)
@example(1579, 1.0)
def test_opendp_confirms_epsilon_for_every_scale_that_is_drawn_with(distance: int, epsilon: float) -> None:
    scale = SystemNoise().laplace(0, distance, epsilon).scale
    assert claimed(distance, scale) <= epsilon


@given(distances, epsilons)
def test_the_scale_is_the_smallest_that_keeps_epsilon(distance: int, epsilon: float) -> None:
    scale = smallest_scale(distance, epsilon)
    assert Fraction(scale) * Fraction(epsilon) >= distance
    assert Fraction(math.nextafter(scale, 0)) * Fraction(epsilon) < distance


def test_a_scale_of_plain_division_would_at_times_cost_more_than_epsilon() -> None:
    """The mutant: the scale without its step upwards."""
    assert any(claimed(distance, distance / 0.3) > 0.3 for distance in range(1, 30))


@given(st.integers(-MAX_VALUE, MAX_VALUE), epsilons)
def test_without_distance_nothing_is_drawn(value: int, epsilon: float) -> None:
    found = SystemNoise().laplace(value, 0, epsilon)
    assert (found.value, found.scale) == (value, 0.0)


@pytest.mark.parametrize(
    ("value", "distance", "epsilon"),
    [
        (MAX_VALUE + 1, 1, 1.0),
        (-MAX_VALUE - 1, 1, 1.0),
        (0, -1, 1.0),
        (0, MAX_VALUE + 1, 1.0),
        (0, 1, 0.5 / MAX_SCALE),
        (0, 1, 0.0),
        (0, 1, -1.0),
        (0, 1, math.nan),
        (0, 1, math.inf),
        (0, 1, 5e-324),
    ],
)
def test_what_could_saturate_or_promises_nothing_is_refused(value: int, distance: int, epsilon: float) -> None:
    with pytest.raises(UnsafeNoise):
        SystemNoise().laplace(value, distance, epsilon)


def test_the_widest_noise_stays_within_64_bits() -> None:
    noise = SystemNoise()
    drawn = [noise.laplace(MAX_VALUE, 2**49, 0.5) for _ in range(300)]
    assert all(each.scale == MAX_SCALE and abs(each.value) < 2**62 for each in drawn)


def test_two_systems_do_not_draw_alike() -> None:
    def draws(noise: Noise) -> list[int]:
        return [noise.laplace(0, 2**40, 1.0).value for _ in range(8)]

    assert len({tuple(draws(SystemNoise())) for _ in range(4)}) == 4


def test_a_library_that_does_not_confirm_epsilon_is_never_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unconfirmed:
        def map(self, distance: int) -> float:
            return {1: math.nan, 2: math.inf, 3: math.nextafter(1.0, 2.0)}[distance]

        def __call__(self, value: int) -> int:
            raise AssertionError

    monkeypatch.setattr(system, "make_laplace", lambda *_: Unconfirmed())
    for distance in (1, 2, 3):
        with pytest.raises(UnsafeNoise, match="does not confirm"):
            SystemNoise().laplace(0, distance, 1.0)
