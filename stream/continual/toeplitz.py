"""Kind `toeplitz`: square-root factorisation of the matrix A that adds up [Fichtenberger, Henzinger, Upadhyay 2023].

A = C C for the lower triangular Toeplitz matrix C with the coefficients f_0 = 1, f_i = f_(i-1) (2i - 1) / 2i. Here C
has these coefficients rounded to multiples of 2^-20, and decoding uses the inverse of this C, so nothing is biased.

y_t needs all sums before it, and decoding needs all y, so the state has two numbers for each slot: 16 n bytes at the
end of the horizon, 2.7 kB at n = 168. Exact Toeplitz matrices do not allow less; `blt` needs 0.15 kB for all n.

Slots before a cell's first one are empty for neighbours too: the stream of a cell begins with its first slot, and is
that of a shorter horizon.
"""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._interface import (
    DAMAGED,
    Advanced,
    BadState,
    Integers,
    Mechanism,
    States,
    Step,
    SumSetting,
    slot_sums,
)
from hatcast.stream.continual._matrix import Decoding, MatrixNoise
from hatcast.stream.errors import SettingError
from hatcast.stream.mechanisms import MAX_VALUE, UnsafeNoise, VectorNoise

Floats = NDArray[np.float64]

MAX_SLOTS: Final = 10_000
BITS: Final = 20  # of the coefficients, behind the point
_ROUNDING: Final = Fraction(1)  # two numbers are each rounded by half a step at most
_GUARD: Final = 128  # the coefficients are computed exactly to so many bits


def coefficients(slots: int) -> Integers:
    """Return the coefficients f_i, times 2^20 and rounded: the same integers on every machine.

    Rounding keeps the order of two numbers, so they do not increase.
    """
    found, exact = [], 1 << _GUARD
    for i in range(slots):
        if i:
            exact = exact * (2 * i - 1) // (2 * i)
        found.append((exact + (1 << (_GUARD - BITS - 1))) >> (_GUARD - BITS))
    return np.array(found, np.int64)


def decoding_weights(column: Floats) -> Floats:
    """Return the first column of A C^-1 for the first column of C."""
    inverse = np.zeros_like(column)
    inverse[0] = 1 / column[0]
    for i in range(1, len(column)):
        inverse[i] = -np.dot(column[1 : i + 1], inverse[i - 1 :: -1][:i]) / column[0]
    return np.cumsum(inverse)


class _Cell(NamedTuple):
    """Sums of the slots from the first one to the next, int64 [m + gap], and y of the slots before, int64 [m]."""

    first: int
    sums: Integers
    noisy: Integers


class Toeplitz(Mechanism):
    """Noise of the square-root factorisation. Raises SettingError for more than 10,000 slots."""

    def __init__(self, setting: SumSetting) -> None:
        if setting.slots > MAX_SLOTS:
            raise SettingError(
                "policy.continual.kind",
                f"toeplitz stores two numbers for each of the {setting.slots} slots, and {MAX_SLOTS} are the most",
                'use kind = "blt", or fewer horizon_days',
            )
        self.setting = setting
        self._column = coefficients(setting.slots)
        self.noise = MatrixNoise(setting, self._column, BITS, _ROUNDING)
        self.decoding = Decoding(self.noise, decoding_weights(self._column / 2.0**BITS))
        self._states = States("toeplitz", setting, f"{BITS} {self.noise.shift}")
        # Below it no y exceeds MAX_VALUE: the coefficients' sum is at most 2^growth.
        growth = (int(self._column.sum()) >> BITS).bit_length()
        self._largest = MAX_VALUE >> (growth + self.noise.shift)

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """As `Mechanism.advance`. Empty slots between two others get noise like all others."""
        if not steps:
            return []
        groups: defaultdict[tuple[int, int], list[tuple[int, _Cell]]] = defaultdict(list)
        sums = slot_sums(steps, self.setting)
        if int(sums.max()) > self._largest:
            raise UnsafeNoise("a running sum does not fit into 64 bits with its noise: use a smaller upper bound")
        for number, (step, total) in enumerate(zip(steps, sums.tolist(), strict=True)):
            cell = self._read(step, total)
            groups[len(cell.noisy), len(cell.sums)].append((number, cell))
        exact = [self._values(np.stack([cell.sums for _, cell in group]), *key) for key, group in groups.items()]
        flat = np.concatenate([each.ravel() for each in exact])
        drawn = np.split(self.noise.calibration.draw(flat, noise), np.cumsum([each.size for each in exact])[:-1])
        advanced: list[tuple[int, Advanced]] = []
        for group, values, new in zip(groups.values(), exact, drawn, strict=True):
            advanced += self._decoded(group, new.reshape(values.shape))
        return [each for _, each in sorted(advanced, key=lambda pair: pair[0])]

    def sd(self, index: int) -> float:
        return self.decoding.sd(index)

    def _read(self, step: Step, total: int) -> _Cell:
        stored = self._states.read(step)
        if stored is None:
            return _Cell(step.index, np.array([total], np.int64), np.zeros(0, np.int64))
        first, past = int(stored.numbers[0]) if len(stored.numbers) else 0, stored.numbers[1:]
        slots = stored.last - first + 1
        if first < 0 or slots < 1 or len(past) != 2 * slots:
            raise BadState(DAMAGED)
        gap = np.zeros(step.index - stored.last, np.int64)
        gap[-1] = total
        return _Cell(first, np.concatenate([past[:slots], gap]), past[slots:])

    def _values(self, sums: Integers, begin: int, end: int) -> Integers:
        """Return round(2^s C x) of slots `begin` to `end` - 1, counted from the first one. Exact.

        sums  int64 [G, end]

        With x = 2^20 h + l, 2^20 C x is 2^20 times an integer for h, and less than 64 bits for l.
        """
        slots, new = np.arange(end)[:, None], np.arange(begin, end)[None, :]
        matrix = np.where(new >= slots, self._column[np.maximum(new - slots, 0)], 0)
        high, low = (sums >> BITS) @ matrix, (sums & ((1 << BITS) - 1)) @ matrix
        shift = self.noise.shift
        half = 1 << (BITS - shift) >> 1
        rounded: Integers = (high << shift) + ((low + half) >> (BITS - shift))
        return rounded

    def _decoded(self, group: Sequence[tuple[int, _Cell]], new: Integers) -> list[tuple[int, Advanced]]:
        """Return the next state and running sum of cells that have the same number of slots.

        new  y of the new slots, int64 [G, gap]
        """
        noisy = np.concatenate([np.stack([cell.noisy for _, cell in group]), new], axis=1)
        age = noisy.shape[1] - 1
        # Not by `@`: its sums are rounded by the number of cells, so a cell's last digit would follow from other cells.
        totals = (noisy * self.decoding.weights[age::-1]).sum(axis=1) * 0.5**self.noise.shift
        sd, width = self.decoding.sd(age), self.decoding.width95(age)
        found = []
        for (number, cell), total, row in zip(group, totals.tolist(), noisy, strict=True):
            state = self._states.pack(cell.first + age, np.concatenate([[cell.first], cell.sums, row]))
            found.append((number, Advanced(state, total, sd, width)))
        return found
