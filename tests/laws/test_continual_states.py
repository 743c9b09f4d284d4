"""Laws of running sums: totals, cells beside each other, and states. Laws of sensitivity: test_continual.py.
Laws of kinds with correlated noise: coefficients, buffers, and the parameters that a state goes on with.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest

from hatcast.stream.continual import KINDS, BadState, Mechanism, Step, check
from hatcast.stream.continual import blt as blts
from hatcast.stream.continual import toeplitz as toeplitzes
from hatcast.stream.continual.blt import BITS, BufferParameters, best_parameters
from hatcast.stream.errors import SettingError
from hatcast.stream.mechanisms import UnsafeNoise
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind
from tests.laws.continual_streams import LINEAR, MECHANISMS, VALUED, Recording, entries, made, outputs, run, setting_of

valued = pytest.mark.parametrize(("kind", "noise"), [each for each in MECHANISMS if each[0] in VALUED])
linear = pytest.mark.parametrize(("kind", "noise"), [each for each in MECHANISMS if each[0] in LINEAR])
every = pytest.mark.parametrize(("kind", "noise"), MECHANISMS)

GAPS: Final = [range(12), (0, 1, 5, 6, 11), (3,), (11,), (2, 7, 8)]


@linear
@pytest.mark.parametrize("slots", GAPS, ids=str)
def test_without_noise_the_total_is_the_sum_of_all_values_whatever_slots_are_skipped(
    kind: ContinualKind, noise: NoiseKind, slots: Any
) -> None:
    """Skipping a slot is a slot without users, and what is rounded is far below the noise."""
    mechanism, total = made(kind, noise), 0
    values: dict[int, Sequence[int]] = {index: [index, 3 * index, 1000] for index in slots}
    skipped = run(mechanism, values, Recording())
    filled = run(mechanism, {i: values.get(i, []) for i in range(max(slots) + 1)}, Recording())
    for index, each in zip(slots, skipped, strict=True):
        total += sum(values[index])
        assert each.total == pytest.approx(total, abs=0.01 * each.sd)
        assert filled[index].total == pytest.approx(total, abs=0.01 * each.sd)
        assert 0 < each.sd <= mechanism.sd(index - slots[0])
        assert 1.9 * each.sd < each.half_width95 < 2.2 * each.sd
    assert [each.sd for each in filled] == [mechanism.sd(index) for index in range(max(slots) + 1)]


@linear
def test_cells_do_not_mix(kind: ContinualKind, noise: NoiseKind) -> None:
    """Cells with different pasts, advanced together in any order, and each alone."""
    mechanism = made(kind, noise)
    pasts: list[dict[int, list[int]]] = [{}, {0: [5]}, {0: [1], 4: [7, 1000]}, {6: [900]}, {0: [1], 1: [2], 2: [3]}]
    states = [run(mechanism, dict(past), Recording())[-1].state if past else None for past in pasts]
    steps = [Step(state, 7 + number % 2, entries(number, 100)) for number, state in enumerate(states)]
    alone = [mechanism.advance([step], Recording())[0] for step in steps]
    assert mechanism.advance(steps, Recording()) == alone
    assert mechanism.advance(steps[::-1], Recording()) == alone[::-1]
    assert mechanism.advance([], Recording()) == []


@linear
def test_the_last_digit_of_a_cell_is_the_same_alone_and_beside_any_number_of_others(
    kind: ContinualKind, noise: NoiseKind
) -> None:
    mechanism, chosen = made(kind, noise, slots=48), np.random.default_rng(1)
    last = mechanism.setting.slots - 1
    pasts = [{at: chosen.integers(0, 1_000, 3).tolist() for at in range(last)} for _ in range(33)]
    steps = [Step(run(mechanism, past, Recording())[-1].state, last, entries(7)) for past in pasts]
    alone = [mechanism.advance([step], Recording())[0] for step in steps]
    for number in (2, 3, 8, 17, 33):
        assert mechanism.advance(steps[:number], Recording()) == alone[:number]


@valued
def test_each_cell_gets_the_noise_of_its_own_request(kind: ContinualKind, noise: NoiseKind) -> None:
    """If answers repeat the requests and add the request itself, the total doubles."""

    class Doubling(Recording):
        def _answer(self, asked: Any) -> Any:
            return super()._answer(asked)._replace(values=2 * asked.values)

    mechanism = made(kind, noise)
    pasts: list[dict[int, list[int]]] = [{0: [5]}, {0: [1], 4: [7, 1000]}, {6: [900]}, {0: [10], 1: [20], 2: [30]}]
    states = [run(mechanism, dict(past), Doubling())[-1].state for past in pasts]
    found = mechanism.advance([Step(each, 8, entries(400)) for each in states], Doubling())
    for past, each in zip(pasts, found, strict=True):
        total = 2 * (sum(map(sum, past.values())) + 400)
        assert each.total == pytest.approx(total, abs=0.01 * each.sd)


@every
def test_a_state_is_rejected_if_it_is_damaged_of_another_setting_or_not_before_the_slot(
    kind: ContinualKind, noise: NoiseKind
) -> None:
    mechanism = made(kind, noise)
    state = run(mechanism, {0: [4], 2: [1000, 7]}, Recording(outputs))[-1].state

    def advance(stored: bytes, index: int, by: Mechanism = mechanism) -> None:
        by.advance([Step(stored, index, entries())], Recording())

    advance(state, 3)
    for number in range(len(state)):
        damaged = bytearray(state)
        damaged[number] ^= 1
        with pytest.raises(BadState):
            advance(bytes(damaged), 11)
    for broken in (b"", state[:-1], state[:-8], state[:20], b"\0" * len(state), state + b"\0" * 8):
        with pytest.raises(BadState):
            advance(broken, 11)
    for other in (made(kind, noise, slots=13), made(kind, noise, bound=999)):
        with pytest.raises(BadState, match="another setting"):
            advance(state, 3, other)
    for index in (-1, 0, 2, 12):
        with pytest.raises(BadState, match=re.escape(f"slot {index} ")):
            advance(state, index)
    for index in (-1, 12):
        with pytest.raises(BadState):
            mechanism.advance([Step(None, index, entries(1))], Recording())


@every
def test_a_value_outside_its_bounds_is_rejected(kind: ContinualKind, noise: NoiseKind) -> None:
    for value in (-1, 1001):
        with pytest.raises(ValueError, match="bound"):
            made(kind, noise).advance([Step(None, 0, entries(value))], Recording())


@pytest.mark.parametrize("kind", [ContinualKind.TOEPLITZ, ContinualKind.BLT])
def test_a_sum_that_may_not_fit_with_its_noise_is_rejected(kind: ContinualKind) -> None:
    mechanism = KINDS[kind](replace(setting_of(NoiseKind.LAPLACE, 12, bound=2**58), epsilon=1e6))
    with pytest.raises(UnsafeNoise, match="64 bits"):
        mechanism.advance([Step(None, 0, entries(*[2**58] * 5))], Recording())


def test_a_large_sum_is_exact() -> None:
    """Beyond what a product with the coefficients has room for in 64 bits."""
    for kind in (ContinualKind.TOEPLITZ, ContinualKind.BLT):
        mechanism = made(kind, NoiseKind.LAPLACE, bound=2**44)
        noise = Recording()
        found = run(mechanism, {index: [2**44, 2**44 - 1, 5] for index in range(5)}, noise)
        assert found[-1].total == pytest.approx(5 * (2**45 + 4), rel=1e-9)
        assert noise.values[0] == 2**45 + 4


def test_memory_of_a_cell() -> None:
    """Bytes after the last slot of a week of hours: constant for buffers, 16 a slot for `toeplitz`."""
    sizes = {
        kind: len(run(KINDS[kind](setting_of(noise, 168)), {0: [1], 167: [1]}, Recording())[-1].state)
        for kind, noise in MECHANISMS
        if kind in VALUED
    }
    assert sizes == {
        ContinualKind.LAPLACE: 29,
        ContinualKind.GAUSSIAN: 29,
        ContinualKind.TOEPLITZ: 13 + 8 + 16 * 168,
        ContinualKind.BLT: 149,
    }


@every
def test_a_setting_whose_noise_does_not_fit_into_64_bits_is_rejected_before_the_first_slot(
    kind: ContinualKind, noise: NoiseKind
) -> None:
    check(kind, setting_of(noise, 168, (24, 1)))
    tiny = replace(setting_of(noise, 168, (24, 1)), epsilon=1e-30)
    with pytest.raises(SettingError, match="too wide"):
        check(kind, replace(tiny, bound=2**50))


def test_each_kind_has_a_law_of_sensitivity() -> None:
    """Of what is asked for, of nodes, or of withheld items (test_withhold_release.py)."""
    assert set(KINDS) == LINEAR | {ContinualKind.WITHHOLD_RELEASE} == set(ContinualKind)


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
