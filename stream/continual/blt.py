"""Kind `blt`: buffered linear Toeplitz matrices, with constant memory.

Sources: Dvijotham, McMahan, Pillutla, Steinke and Thakurta, arXiv 2404.16706; for users in several slots McMahan, Xu
and Zhang, arXiv 2408.08868.

C has the coefficients c_0 = 1, c_i = sum_j omega_j theta_j^(i - 1), so (C x)_t = x_t + sum_j omega_j S_j, where the
buffer S_j becomes theta_j S_j + x_t after slot t. C^-1 has the same buffers with its own output fed back. The
parameters minimise the maximum error for the setting's slots and participation: with 3 buffers it is within 0.2 % of
`toeplitz` if a user is in one slot, for up to 720 slots, and up to 25 % below it if a user is in many.

Buffers are integers times 2^-p. Multiplying by theta rounds, by at most 2^-(p + 1), and neighbours may be rounded apart
in all later slots. The proof adds this to the sensitivity: docs/specification/continual.md, Buffers.

The state has the parameters of its stream, and goes on with them: another machine's optimum may differ in a digit. It
has 0.16 kB with 3 buffers. As for `toeplitz`, the stream of a cell begins with the cell's first slot.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._buffers import BITS, Parameters, best_parameters, decoding_weights
from hatcast.stream.continual._entries import slot_sums
from hatcast.stream.continual._interface import Advanced, BadState, Setting, Step
from hatcast.stream.continual._matrix import Decoding, MatrixNoise
from hatcast.stream.continual._state import check_index, fingerprint, pack, unpack
from hatcast.stream.mechanisms import MAX_VALUE, UnsafeNoise, VectorNoise

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_BUFFERS: Final = 3  # default
_ROUNDED: Final = Fraction(1)  # two numbers are each rounded by half a step at most
_EXCESS: Final = Fraction(1, 1024)  # steps: what rounding of the buffers may add to a difference
_GUARD: Final = 64  # bits behind the point of upper bounds of powers
_LOW: Final = 62  # bits of the lower half of a stored buffer


class _Cells:
    """Streams of several cells with the same parameters, side by side.

    firsts, lasts  int64 [G], first and last slot of each; lasts is firsts - 1 before the first one
    buffers        [G, d], Python integers: sums times 2^p
    feedback       float64 [G, d], buffers of C^-1
    totals         float64 [G], decoded running sums, in steps
    """

    def __init__(self, firsts: Integers, lasts: Integers, buffers: NDArray[np.object_], floats: Floats) -> None:
        self.firsts, self.lasts, self.buffers = firsts, lasts, buffers
        self.feedback, self.totals = floats[:, :-1], floats[:, -1]


class Buffers:
    """The mechanism with one set of parameters."""

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        self.setting = setting
        self.parameters = parameters
        self.noise = MatrixNoise(setting, upper_coefficients(parameters, setting.slots), BITS, _ROUNDED + _EXCESS)
        self.decoding = Decoding(self.noise, decoding_weights(parameters, setting.slots))
        self.bits = self._bits()
        self._thetas, self._omegas = parameters.floats()

    def _bits(self) -> int:
        """Return the least p for which rounding adds at most `_EXCESS` steps to a difference.

        An error of a buffer, of 2^-(p + 1) at most, is multiplied by theta in each slot: n or 1 / (1 - theta) of them
        add up. Each of two neighbours has such errors.
        """
        unit = 1 << BITS
        sizes = (min(Fraction(unit, unit - theta), Fraction(self.setting.slots)) for theta in self.parameters.thetas)
        added = sum(Fraction(omega, unit) * size for omega, size in zip(self.parameters.omegas, sizes, strict=True))
        bits = self.noise.shift
        while added * 2**self.noise.shift > _EXCESS * 2**bits:
            bits += 1
        return bits

    def encode(self, cells: _Cells, slots: Integers, totals: Sequence[int]) -> list[Integers]:
        """Return round(2^s C x) of all slots since the last ones, one array for each distance from them.

        slots   int64 [G], the next slots
        totals  [G], their sums; the sums of the slots between are 0
        """
        thetas = np.array(self.parameters.thetas, object)
        omegas = np.array(self.parameters.omegas, object)
        scale, shift = BITS + self.bits - self.noise.shift, self.noise.shift
        gaps, found = slots - cells.lasts, []
        for past in range(1, int(gaps.max()) + 1):
            active = np.flatnonzero(gaps >= past)
            x = np.array([totals[i] if gaps[i] == past else 0 for i in active.tolist()], object)
            buffers = cells.buffers[active]
            exact = (x << shift) + ((buffers @ omegas + (1 << (scale - 1))) >> scale)
            if max(exact) > MAX_VALUE:
                raise UnsafeNoise("a running sum does not fit into 64 bits with its noise: use a smaller upper bound")
            cells.buffers[active] = ((buffers * thetas + (1 << (BITS - 1))) >> BITS) + (x << self.bits)[:, None]
            found.append(exact.astype(np.int64))
        return found

    def decode(self, cells: _Cells, slots: Integers, noisy: Sequence[Integers]) -> None:
        """Update the totals with the noisy numbers of `encode`.

        Not by `@`: its sums are rounded by the number of cells, so a cell's last digit would follow from other cells.
        """
        gaps = slots - cells.lasts
        for past, numbers in enumerate(noisy, 1):
            active = np.flatnonzero(gaps >= past)
            feedback, output = cells.feedback[active], numbers.astype(np.float64)
            for buffer, omega in zip(feedback.T, self._omegas, strict=True):
                output -= buffer * omega
            cells.feedback[active] = feedback * self._thetas + output[:, None]
            cells.totals[active] += output


def upper_coefficients(parameters: Parameters, slots: int) -> Integers:
    """Return upper bounds of the coefficients of C times 2^40, by less than 2 units each. Exact integer arithmetic."""
    powers = [1 << _GUARD] * len(parameters.thetas)
    found = [1 << BITS]
    for _ in range(slots - 1):
        weighted = sum(omega * power for omega, power in zip(parameters.omegas, powers, strict=True))
        found.append(-(-weighted >> _GUARD))
        powers = [-(-power * theta >> BITS) for power, theta in zip(powers, parameters.thetas, strict=True)]
    return np.array(found, np.int64)


class Blt:
    """Noise of a buffered linear Toeplitz matrix. See `Mechanism`."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._number = setting.buffers or _BUFFERS
        self.own = Buffers(setting, best_parameters(setting, self._number))
        self._known = {self.own.parameters: self.own}
        self._fingerprint = fingerprint("blt", setting, f"{BITS} {_EXCESS}")

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """See `Mechanism.advance`. Empty slots between two others get noise like all others."""
        found: dict[int, Advanced] = {}
        groups: dict[Parameters, list[int]] = {}
        for number, step in enumerate(steps):
            groups.setdefault(self._parameters(step), []).append(number)
        for parameters, numbers in groups.items():
            if parameters not in self._known:
                self._known[parameters] = Buffers(self.setting, parameters)
            group = [steps[number] for number in numbers]
            found |= zip(numbers, self._advance(self._known[parameters], group, noise), strict=True)
        return [found[number] for number in range(len(steps))]

    def sd(self, index: int) -> float:
        """See `Mechanism.sd`."""
        return self.own.decoding.sd(index)

    def _advance(self, buffers: Buffers, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """Return the next states and running sums of cells with the same parameters."""
        cells, slots = self._read(steps), np.array([step.index for step in steps], np.int64)
        exact = buffers.encode(cells, slots, slot_sums(steps, self.setting).tolist())
        drawn = buffers.noise.calibration.draw(np.concatenate(exact), noise)
        buffers.decode(cells, slots, np.split(drawn, np.cumsum([len(each) for each in exact])[:-1]))
        cells.lasts = slots
        ages, step = (slots - cells.firsts).tolist(), 0.5**buffers.noise.shift
        return [
            Advanced(state, total * step, buffers.decoding.sd(age), buffers.decoding.width95(age))
            for state, total, age in zip(
                self._packed(buffers.parameters, cells), cells.totals.tolist(), ages, strict=True
            )
        ]

    def _parameters(self, step: Step) -> Parameters:
        """Return the parameters of a cell's stream: those of its state, or the mechanism's own."""
        check_index(step.index, self.setting)
        if step.state is None:
            return self.own.parameters
        d, stored = self._number, unpack(step.state, self._fingerprint, step.index)
        numbers = stored.numbers.tolist()
        if len(numbers) != 2 + 5 * d or not 0 <= numbers[0] <= stored.last:
            raise BadState("the state of a running sum is damaged")
        parameters = Parameters(tuple(numbers[1 : d + 1]), tuple(numbers[d + 1 : 2 * d + 1]))
        parameters.check()
        return parameters

    def _read(self, steps: Sequence[Step]) -> _Cells:
        """Return the streams of states that `_parameters` has checked."""
        d = self._number
        rows = np.zeros((len(steps), 2 + 5 * d), np.int64)
        lasts = np.array([step.index - 1 for step in steps], np.int64)
        for number, step in enumerate(steps):
            rows[number, 0] = step.index
            if step.state is not None:
                stored = unpack(step.state, self._fingerprint, step.index)
                rows[number], lasts[number] = stored.numbers, stored.last
        halves = rows[:, 2 * d + 1 : 4 * d + 1].astype(object)
        buffers = (halves[:, :d] << _LOW) + halves[:, d:]
        return _Cells(rows[:, 0], lasts, buffers, rows[:, 4 * d + 1 :].copy().view(np.float64))

    def _packed(self, parameters: Parameters, cells: _Cells) -> list[bytes]:
        high, low = cells.buffers >> _LOW, cells.buffers & ((1 << _LOW) - 1)
        own = np.tile(np.array([*parameters.thetas, *parameters.omegas], np.int64), (len(high), 1))
        floats = np.column_stack([cells.feedback, cells.totals]).view(np.int64)
        rows = np.column_stack([cells.firsts, own, high.astype(np.int64), low.astype(np.int64), floats])
        return [pack(self._fingerprint, last, row) for last, row in zip(cells.lasts.tolist(), rows, strict=True)]
