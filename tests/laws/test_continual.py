"""Laws of running sums: what one user moves, what is asked of the noise, and what follows from states.

Kinds that ask for noisy values: for any two neighbours, the values asked for are within the claimed distances, and all
that is released follows from the answers. Kinds `tree` and `kary` ask for noise alone: their law is in
test_continual_trees.py.
"""

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest

from hatcast.stream.continual import KINDS, Mechanism, Step
from hatcast.stream.continual import _interface as interfaces
from hatcast.stream.continual import _matrix as matrices
from hatcast.stream.continual import blt as blts
from hatcast.stream.continual import toeplitz as toeplitzes
from hatcast.stream.continual._interface import NoiseCalibration
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind
from tests.laws.continual_streams import MECHANISMS, VALUED, Recording, changes, entries, outputs, setting_of

PARTICIPATIONS: Final = [(6, 1, 1), (6, 2, 1), (5, 5, 1), (6, 3, 2), (7, 3, 3), (6, 9, 2)]
"""slots, max_slots, min_separation"""
valued = pytest.mark.parametrize(("kind", "noise"), [each for each in MECHANISMS if each[0] in VALUED])


def released(total: float, scale: int) -> int:
    """A public function of what came out: others may choose their next values by it."""
    return int(abs(total)) % (scale + 1)


def neighbours(mechanism: Mechanism, change: dict[int, bool], first: int) -> list[Recording]:
    """Run two neighbours with fixed outputs, and other users that react to them; assert that outputs are the same.

    The user has 0 in one and the bound in the other, and is in slots of `change` alone.
    """
    bound, noises, found = mechanism.setting.bound, [], []
    for up in (True, False):
        noise, state, totals = Recording(outputs, deaf=True), None, [float(first)]
        for index in range(mechanism.setting.slots):
            others = [released(totals[-1] + 37 * index, bound), first % (bound + 1)]
            own = [bound if change[index] is up else 0] if index in change else []
            (advanced,) = mechanism.advance([Step(state, index, entries(*others, *own))], noise)
            state = advanced.state
            totals.append(advanced.total)
        noises.append(noise)
        found.append(totals)
    assert found[0] == found[1], "a total does not follow from the noisy values alone"
    return noises


def hold(kind: ContinualKind, noise: NoiseKind, shape: tuple[int, int, int], bound: int) -> float:
    """Assert that no neighbours' requests are further apart than claimed. Return how much of the claim is used."""
    slots, *participation = shape
    setting = setting_of(noise, slots, (participation[0], participation[1]), bound)
    mechanism, used = KINDS[kind](setting), 0.0
    for number, change in enumerate(changes(slots, *participation)):
        mine, yours = neighbours(mechanism, change, 3 * number)
        calls = mine.calls
        assert len({(call.l1, call.l2_squared) for call in calls}) == 1
        assert all((call.epsilon, call.delta) == (setting.epsilon, setting.delta) for call in calls)
        assert len(mine.values) == slots, "each slot is asked for once"
        moved = [abs(int(each)) for each in mine.values - yours.values]
        if noise is NoiseKind.LAPLACE:
            assert sum(moved) <= calls[0].l1, "l1"
            used = max(used, sum(moved) / calls[0].l1)
        else:
            assert calls[0].l2_squared is not None
            assert sum(moved) <= calls[0].l1, "l1"
            assert sum(each * each for each in moved) <= calls[0].l2_squared, "l2"
            used = max(used, math.sqrt(sum(each * each for each in moved) / calls[0].l2_squared))
    return used


@valued
def test_no_user_moves_requests_by_more_than_the_claimed_distances(kind: ContinualKind, noise: NoiseKind) -> None:
    for shape in PARTICIPATIONS:
        for bound in (1, 1000):
            used = hold(kind, noise, shape, bound)
            assert used > 0.995, "the claim is hardly larger than what a user can do"


PARTICIPATION: Final = matrices.participation_of
DECODED: Final = toeplitzes.Toeplitz._decoded
Mutant = tuple[Any, str, Any]
MUTANTS: Final[dict[str, tuple[Mutant, set[ContinualKind]]]] = {
    "the sensitivity is that of one participation": (
        (interfaces.SumSetting, "participations", property(lambda _: 1)),
        VALUED,
    ),
    "the separation is not that of the policy": (
        (
            matrices,
            "participation_of",
            lambda column, setting: PARTICIPATION(
                column, setting_of(setting.noise, setting.slots, (setting.max_slots, setting.min_separation + 1))
            ),
        ),
        {ContinualKind.TOEPLITZ},
    ),
    "rounding is forgotten": (
        (toeplitzes, "_ROUNDING", Fraction(0)),
        {ContinualKind.TOEPLITZ},
    ),
    "rounding is forgotten with buffers": ((blts, "_ROUNDED", Fraction(0)), {ContinualKind.BLT}),
    "noise is half as wide": (
        (
            NoiseCalibration,
            "draw",
            lambda self, values, noise: noise.laplace_many(values, self.distances.l1, 2 * self.setting.epsilon).values,
        ),
        VALUED,
    ),
    "a total is computed from exact sums": (
        (toeplitzes.Toeplitz, "_decoded", lambda self, group, new: DECODED(self, group, exact_of(self, group, new))),
        {ContinualKind.TOEPLITZ},
    ),
}


def exact_of(toeplitz: toeplitzes.Toeplitz, group: Any, new: Any) -> Any:
    sums = np.stack([cell.sums for _, cell in group])
    return toeplitz._values(sums, sums.shape[1] - new.shape[1], sums.shape[1])


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_the_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, kinds = MUTANTS[name]
    monkeypatch.setattr(*mutant)
    for kind, noise in [each for each in MECHANISMS if each[0] in kinds]:
        with pytest.raises(AssertionError):
            for shape in PARTICIPATIONS:
                for bound in (1, 1000):
                    hold(kind, noise, shape, bound)
