"""Continual mechanisms: private running sums of one cell over a horizon.

To add one: a file here, or a function of trees.py, a name below, a section in docs/specification/continual.md. Law
tests and benchmarks read this table.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.continual._interface import (
    Advanced,
    BadState,
    Entries,
    Mechanism,
    NoiseCalibration,
    Step,
    SumSetting,
)
from hatcast.stream.continual._matrix import MatrixNoise
from hatcast.stream.continual.blt import Blt
from hatcast.stream.continual.independent import Independent
from hatcast.stream.continual.toeplitz import Toeplitz
from hatcast.stream.continual.trees import kary, tree
from hatcast.stream.continual.withhold_release import WithholdRelease
from hatcast.stream.errors import SettingError
from hatcast.stream.mechanisms import Distances, UnsafeNoise
from hatcast.stream.policy.continual_keys import ContinualKind

KINDS: Final[Mapping[ContinualKind, Callable[[SumSetting], Mechanism]]] = {
    ContinualKind.LAPLACE: Independent,
    ContinualKind.GAUSSIAN: Independent,
    ContinualKind.TREE: tree,
    ContinualKind.KARY: kary,
    ContinualKind.TOEPLITZ: Toeplitz,
    ContinualKind.BLT: Blt,
    ContinualKind.WITHHOLD_RELEASE: WithholdRelease,
}


def check(kind: ContinualKind, setting: SumSetting) -> None:
    """Check that the noise of a setting fits into 64 bits, and its states into memory. Raises SettingError.

    The best buffers and groups take seconds to find for thousands of slots: they are replaced by upper bounds.
    """
    try:
        if kind is ContinualKind.BLT:
            MatrixNoise(setting, np.ones(setting.slots, np.int64), 0, Fraction(2))  # no coefficient is above 1
        elif kind is ContinualKind.WITHHOLD_RELEASE:
            # An item has at most k values. Each of log k streams moves in log n nodes, for at least 3/4 of epsilon.
            k = setting.participations
            most = 2 * (k.bit_length() + 1) * (setting.slots.bit_length() + 1) * k * setting.bound
            NoiseCalibration(setting, Distances(most, most**2))
        else:
            KINDS[kind](setting)
    except UnsafeNoise:
        raise SettingError(
            "policy.privacy.epsilon", "needs noise too wide for 64 bits", "use a larger epsilon or fewer max_slots"
        ) from None


__all__ = ["KINDS", "Advanced", "BadState", "Entries", "Mechanism", "Step", "SumSetting", "check"]
