"""Kinds `laplace` and `gaussian`: each slot's sum gets independent noise; the running sum adds the noisy sums up.

Sensitivity. A user is in at most k slots and moves the sum of each by at most U, so the vector of all sums moves by at
most k U in l1, and its square by at most k U^2 in l2. Both are reached. All numbers are integers of milli-units, so
nothing is rounded. The noise of the running sum after m slots has m times the variance of one draw.

An empty slot adds nothing: it is empty for neighbours too. State: the noisy total and the number of draws.
"""

import math
from collections.abc import Sequence

from hatcast.stream.continual._interface import (
    DAMAGED,
    Advanced,
    BadState,
    Mechanism,
    NoiseCalibration,
    States,
    Step,
    SumSetting,
    slot_sums,
)
from hatcast.stream.mechanisms import Distances, VectorNoise


class Independent(Mechanism):
    """Independent noise on the sum of each slot."""

    def __init__(self, setting: SumSetting) -> None:
        self.setting = setting
        k, bound = setting.participations, setting.bound
        self.calibration = NoiseCalibration(setting, Distances(k * bound, k * bound**2))
        self._states = States(setting.noise, setting)

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        stored = [self._read(step) for step in steps]
        sums = slot_sums(steps, self.setting)
        noisy = self.calibration.draw(sums, noise).tolist()
        return [
            self._advanced(step.index, before + new, draws + 1)
            for step, (before, draws), new in zip(steps, stored, noisy, strict=True)
        ]

    def sd(self, index: int) -> float:
        return self.calibration.sd * math.sqrt(index + 1)

    def _read(self, step: Step) -> tuple[int, int]:
        """Return the noisy total and the number of draws."""
        stored = self._states.read(step)
        numbers = [0, 0] if stored is None else stored.numbers.tolist()
        if len(numbers) != 2:
            raise BadState(DAMAGED)
        return numbers[0], numbers[1]

    def _advanced(self, index: int, total: int, draws: int) -> Advanced:
        state = self._states.pack(index, (total, draws))
        return Advanced(state, float(total), self.sd(draws - 1), self.calibration.width95(draws, draws))
