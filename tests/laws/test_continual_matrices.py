"""Laws of kinds with correlated noise: coefficients, buffers, and the parameters that a state goes on with."""

from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest

from hatcast.stream.continual import Step
from hatcast.stream.continual import blt as blts
from hatcast.stream.continual import toeplitz as toeplitzes
from hatcast.stream.continual.blt import BITS, BufferParameters, best_parameters
from hatcast.stream.errors import SettingError
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind
from tests.laws.continual_streams import Recording, entries, made, run


def test_a_running_sum_with_buffers_goes_on_with_the_parameters_of_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine's optimum may differ: then cells of both are advanced together, each with its own."""
    ours = made(ContinualKind.BLT, NoiseKind.GAUSSIAN)
    states = [run(ours, {0: [4], 2: [1000, 7]}, Recording())[-1].state]

    def others(*arguments: Any) -> Any:
        found = best_parameters(*arguments)
        return found._replace(omegas=tuple(omega // 2 for omega in found.omegas))

    monkeypatch.setattr(blts, "best_parameters", others)
    theirs = made(ContinualKind.BLT, NoiseKind.GAUSSIAN)
    assert theirs.sd(9) != ours.sd(9)
    states.append(run(theirs, {0: [4], 2: [1000, 7]}, Recording())[-1].state)
    steps = [Step(state, 4, entries(9)) for state in (*states, None)]
    found, noise = theirs.advance(steps, Recording()), Recording()
    assert found[0] == ours.advance(steps[:1], noise)[0]
    assert [each.sd for each in found[1:]] == [theirs.sd(4), theirs.sd(0)]
    assert [each.total for each in found] == pytest.approx([1020, 1020, 9], abs=0.5)


def test_coefficients_are_those_of_the_square_root_and_never_increase() -> None:
    column = toeplitzes.coefficients(2000).astype(float) / 2**toeplitzes.BITS
    assert np.convolve(column, column)[:2000] == pytest.approx(np.ones(2000), abs=1e-4)
    assert np.all(np.diff(column) <= 0)
    with pytest.raises(SettingError, match='use kind = "blt"'):
        made(ContinualKind.TOEPLITZ, NoiseKind.LAPLACE, slots=10_001)


def coefficient(parameters: BufferParameters, i: int) -> Fraction:
    """c_i of C, exact."""
    total, unit = Fraction(0 if i else 1), 1 << BITS
    for omega, theta in zip(parameters.omegas, parameters.thetas, strict=True):
        total += Fraction(omega * theta ** (i - 1), unit**i) if i else 0
    return total


def largest_error(slots: int, bound: int) -> Fraction:
    """How far what buffers ask for is from the exact C x, in steps."""
    mechanism, noise = made(ContinualKind.BLT, NoiseKind.LAPLACE, slots, bound), Recording()
    assert isinstance(mechanism, blts.Blt)
    x = [each % (bound + 1) for each in range(0, 7919 * slots, 7919)]
    run(mechanism, {index: [value] for index, value in enumerate(x)}, noise)
    column = [coefficient(mechanism.own.parameters, i) for i in range(slots)]
    scale = 1 << mechanism.own.noise.shift
    exact = [scale * sum((column[t - i] * x[i] for i in range(t + 1)), Fraction(0)) for t in range(slots)]
    errors: list[Fraction] = [abs(value - each) for value, each in zip(noise.values.tolist(), exact, strict=True)]
    return max(errors)


MOST_ERROR: Final = (1 + blts._EXCESS) / 2  # of each of two neighbours


def test_what_buffers_ask_for_is_exact_but_for_half_a_step_and_half_the_excess() -> None:
    assert max(largest_error(60, bound) for bound in (1, 9, 1000)) <= MOST_ERROR


def test_buffers_as_coarse_as_steps_err_by_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blts.Buffers, "_bits", lambda self: self.noise.shift)
    assert largest_error(60, 1000) > MOST_ERROR


def test_upper_bounds_of_the_buffers_coefficients_are_above_the_exact_ones_and_close() -> None:
    mechanism = made(ContinualKind.BLT, NoiseKind.LAPLACE, slots=30)
    assert isinstance(mechanism, blts.Blt)
    unit, parameters = 1 << BITS, mechanism.own.parameters
    for i, upper in enumerate(blts.upper_coefficients(parameters, 30).tolist()):
        assert (exact := unit * coefficient(parameters, i)) <= upper < exact + 2
