"""Sums of the values of many cells' users."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._interface import Setting, Step
from hatcast.stream.mechanisms import MAX_VALUE, UnsafeNoise

Integers = NDArray[np.int64]


def slot_sums(steps: Sequence[Step], setting: Setting) -> Integers:
    """Return the sum of the values of each step's users: int64 [steps], milli-units.

    Raises ValueError for a value outside [0, bound]: the sensitivity would not hold.
    """
    lengths = np.array([len(step.entries.values) for step in steps], np.int64)
    values = np.concatenate([step.entries.values for step in steps]) if steps else np.zeros(0, np.int64)
    if len(values) and not (int(values.min()) >= 0 and int(values.max()) <= setting.bound):
        raise ValueError("a user's value is outside [0, bound]")
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    ends = np.cumsum(lengths)
    slots: Integers = sums[ends] - sums[ends - lengths]
    return slots


def checked_sum(before: Integers, added: Integers) -> Integers:
    """Return before + added. Raises UnsafeNoise if a number with its noise would not fit into 64 bits."""
    total = before + added
    if len(total) and max(int(np.abs(total).max()), int(np.abs(added).max())) > MAX_VALUE:
        raise UnsafeNoise("a number with its noise does not fit into 64 bits: use a coarser grid")
    return total
