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
from hatcast.stream.continual._matrix import Decoding, MatrixNoise, participation_of
from hatcast.stream.mechanisms import MAX_VALUE, UnsafeNoise, VectorNoise

Floats = NDArray[np.float64]

BITS: Final = 40  # of stored parameters, behind the point
_DIGITS: Final = 12  # significant bits of 1 - theta and of omega: finer ones change the error by less than 1e-6
_LARGEST: Final = 25.0  # of a free parameter, absolute: 1 - theta and omega are at least exp(-25)
_ITERATIONS: Final = 200
_FLAT: Final = 1e-9  # a relative improvement of the error that is not worth an iteration
_PATIENCE: Final = 3
_STEP: Final = 1e-5  # of numerical derivatives
_ARMIJO: Final = 1e-4
_BUFFERS: Final = 3  # default
_ROUNDED: Final = Fraction(1)  # two numbers are each rounded by half a step at most
_EXCESS: Final = Fraction(1, 1024)  # steps: what rounding of the buffers may add to a difference
_GUARD: Final = 64  # bits behind the point of upper bounds of powers
_LOW: Final = 62  # bits of the lower half of a stored buffer


class BufferParameters(NamedTuple):
    """Parameters of the buffers, times 2^40, [d] each: theta in [0, 1), omega of 0 or more with a sum of at most 1.

    So the coefficients of C are 0 or more, and do not increase.
    """

    thetas: tuple[int, ...]
    omegas: tuple[int, ...]

    def check(self) -> None:
        """Raise BadState for parameters that were not stored by this program."""
        unit = 1 << BITS
        if not all(0 <= theta < unit for theta in self.thetas) or min(self.omegas) < 0 or sum(self.omegas) > unit:
            raise BadState(DAMAGED)

    def floats(self) -> tuple[Floats, Floats]:
        """Return theta and omega, float64 [d] each."""
        return np.array(self.thetas) / 2.0**BITS, np.array(self.omegas) / 2.0**BITS


def inverse_poles(thetas: Floats, omegas: Floats) -> tuple[Floats, Floats]:
    """Return lambda and gamma, [d] each, with which C^-1 has the coefficients 1 and -sum_j gamma_j lambda_j^(i - 1).

    The inverse has this form [McMahan and Pillutla 2025, arXiv 2504.21413]: it feeds its output back into the buffers.
    Their matrix is diag(theta) - 1 omega^T, which is similar to the symmetric diag(theta) - root root^T, with root_j =
    sqrt(omega_j).
    """
    root = np.sqrt(omegas)
    poles, vectors = np.linalg.eigh(np.diag(thetas) - np.outer(root, root))
    return poles, (vectors.T @ root) ** 2


def decoding_weights(parameters: BufferParameters, slots: int) -> Floats:
    """Return the first column of A C^-1: 1 - sum_j gamma_j (1 - lambda_j^i) / (1 - lambda_j)."""
    poles, gammas = inverse_poles(*parameters.floats())
    powers: Floats = poles[:, None] ** np.arange(slots)
    weights: Floats = 1 - (gammas / (1 - poles)) @ (1 - powers)
    return weights


def best_parameters(setting: SumSetting, buffers: int) -> BufferParameters:
    """Return the parameters with the least maximum error times sensitivity, for the setting's slots and participation.

    Found by quasi-Newton steps (BFGS) from a quadrature of the square-root factorisation. A tie or rounding may lead to
    other parameters on another machine; so they are stored in the state.
    """
    error = _LogError(setting, buffers)
    free = _minimised(error, _start(setting.slots, buffers))
    thetas, omegas = error.parameters(free)
    unit = 1 << BITS
    return BufferParameters(
        tuple(unit - _rounded(1 - theta) for theta in thetas.tolist()),
        tuple(_rounded(omega) for omega in (omegas * (1 - 2.0**-_DIGITS)).tolist()),
    )


def _rounded(value: float) -> int:
    """Return a number times 2^40, with 12 significant bits; at least 1."""
    exact = round(value * (1 << BITS))
    spare = max(exact.bit_length() - _DIGITS, 0)
    return max((exact + (1 << spare >> 1)) >> spare << spare, 1)


class _LogError:
    """The logarithm of the maximum error times the sensitivity, as a function of free parameters.

    They are the logits of theta and the negative logarithms of omega, [2 d].
    """

    def __init__(self, setting: SumSetting, buffers: int) -> None:
        self._setting = setting
        self._buffers = buffers

    def parameters(self, free: Floats) -> tuple[Floats, Floats]:
        """Return theta and omega."""
        return 1 / (1 + np.exp(-free[: self._buffers])), np.exp(-free[self._buffers :])

    def __call__(self, free: Floats) -> float:
        """Return the error; infinite outside the range of parameters."""
        if not np.abs(free).max() <= _LARGEST:
            return np.inf
        thetas, omegas = self.parameters(free)
        if omegas.sum() > 1:
            return np.inf
        n = self._setting.slots
        powers = np.full((len(thetas), n - 1), thetas[:, None])
        powers[:, :1] = 1
        column = np.concatenate([[1.0], omegas @ np.multiply.accumulate(powers, axis=1)])
        sensitivity = np.sum(participation_of(column, self._setting) ** 2)
        poles, gammas = inverse_poles(thetas, omegas)
        if not np.abs(poles).max() < 1:
            return np.inf
        # Sums of squares of the decoding weights a + sum_j b_j lambda_j^i, by geometric series.
        b = gammas / (1 - poles)
        a = 1 - b.sum()
        products = np.outer(poles, poles)
        once, twice = (1 - poles**n) / (1 - poles), (1 - products**n) / (1 - products)
        return float(np.log(sensitivity) + np.log(a * a * n + 2 * a * (b @ once) + b @ twice @ b)) / 2

    def gradient(self, free: Floats) -> Floats:
        """Return the derivatives, by central differences."""
        steps = _STEP * np.eye(len(free))
        return np.array([(self(free + step) - self(free - step)) / (2 * _STEP) for step in steps])


def _start(slots: int, buffers: int) -> Floats:
    """Return a start: a quadrature of f_i, the integral of x^(i - 1) 2 sqrt(x) / pi over u = sqrt(1 - x) in [0, 1].

    The nodes 1 - theta are spaced in geometric progression between 1 / n and 1 / 2.
    """
    nodes = np.geomspace(0.55 if buffers > 1 else 2 / np.sqrt(slots + 15), 0.9 / (slots + 1), buffers)
    edges = np.sqrt(np.concatenate([[1.0], np.sqrt(nodes[1:] * nodes[:-1]), [0.0]]))
    areas = (edges * np.sqrt(1 - edges**2) + np.arcsin(edges)) / np.pi  # the integral of 2 sqrt(1 - u^2) / pi
    return np.concatenate([np.log((1 - nodes) / nodes), -np.log(areas[:-1] - areas[1:])])


def _minimised(error: _LogError, free: Floats) -> Floats:
    """Return a local minimum, by BFGS with backtracking."""
    value, gradient = error(free), error.gradient(free)
    inverse, flat = np.eye(len(free)), 0
    for _ in range(_ITERATIONS):
        direction = -inverse @ gradient
        if not direction @ gradient < 0:
            inverse, direction = np.eye(len(free)), -gradient
        length = 1 / max(1.0, float(np.abs(direction).max()))
        while length > _FLAT and not error(free + length * direction) <= value + _ARMIJO * length * (
            direction @ gradient
        ):
            length /= 2
        if length <= _FLAT:
            break
        moved = length * direction
        free = free + moved
        new_value, new_gradient = error(free), error.gradient(free)
        if not np.all(np.isfinite(new_gradient)):
            break
        turned = new_gradient - gradient
        curvature = float(moved @ turned)
        if curvature > 1e-10 * np.linalg.norm(moved) * np.linalg.norm(turned):
            project = np.eye(len(free)) - np.outer(moved, turned) / curvature
            inverse = project @ inverse @ project.T + np.outer(moved, moved) / curvature
        flat = flat + 1 if value - new_value < _FLAT else 0
        value, gradient = new_value, new_gradient
        if flat == _PATIENCE:
            break
    return free


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

    def __init__(self, setting: SumSetting, parameters: BufferParameters) -> None:
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


def upper_coefficients(parameters: BufferParameters, slots: int) -> Integers:
    """Return upper bounds of the coefficients of C times 2^40, by less than 2 units each. Exact integer arithmetic."""
    powers = [1 << _GUARD] * len(parameters.thetas)
    found = [1 << BITS]
    for _ in range(slots - 1):
        weighted = sum(omega * power for omega, power in zip(parameters.omegas, powers, strict=True))
        found.append(-(-weighted >> _GUARD))
        powers = [-(-power * theta >> BITS) for power, theta in zip(powers, parameters.thetas, strict=True)]
    return np.array(found, np.int64)


class Blt(Mechanism):
    """Noise of a buffered linear Toeplitz matrix."""

    def __init__(self, setting: SumSetting) -> None:
        self.setting = setting
        self._number = setting.buffers or _BUFFERS
        self.own = Buffers(setting, best_parameters(setting, self._number))
        self._known = {self.own.parameters: self.own}
        self._states = States("blt", setting, f"{BITS} {_EXCESS}")

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """As `Mechanism.advance`. Empty slots between two others get noise like all others."""
        found: dict[int, Advanced] = {}
        groups: dict[BufferParameters, list[int]] = {}
        for number, step in enumerate(steps):
            groups.setdefault(self._parameters(step), []).append(number)
        for parameters, numbers in groups.items():
            if parameters not in self._known:
                self._known[parameters] = Buffers(self.setting, parameters)
            group = [steps[number] for number in numbers]
            found |= zip(numbers, self._advance(self._known[parameters], group, noise), strict=True)
        return [found[number] for number in range(len(steps))]

    def sd(self, index: int) -> float:
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

    def _parameters(self, step: Step) -> BufferParameters:
        """Return the parameters of a cell's stream: those of its state, or the mechanism's own."""
        d, stored = self._number, self._states.read(step)
        if stored is None:
            return self.own.parameters
        numbers = stored.numbers.tolist()
        if len(numbers) != 2 + 5 * d or not 0 <= numbers[0] <= stored.last:
            raise BadState(DAMAGED)
        parameters = BufferParameters(tuple(numbers[1 : d + 1]), tuple(numbers[d + 1 : 2 * d + 1]))
        parameters.check()
        return parameters

    def _read(self, steps: Sequence[Step]) -> _Cells:
        """Return the streams of states that `_parameters` has checked."""
        d = self._number
        rows = np.zeros((len(steps), 2 + 5 * d), np.int64)
        lasts = np.array([step.index - 1 for step in steps], np.int64)
        for number, step in enumerate(steps):
            rows[number, 0] = step.index
            if (stored := self._states.read(step)) is not None:
                rows[number], lasts[number] = stored.numbers, stored.last
        halves = rows[:, 2 * d + 1 : 4 * d + 1].astype(object)
        buffers = (halves[:, :d] << _LOW) + halves[:, d:]
        return _Cells(rows[:, 0], lasts, buffers, rows[:, 4 * d + 1 :].copy().view(np.float64))

    def _packed(self, parameters: BufferParameters, cells: _Cells) -> list[bytes]:
        high, low = cells.buffers >> _LOW, cells.buffers & ((1 << _LOW) - 1)
        own = np.tile(np.array([*parameters.thetas, *parameters.omegas], np.int64), (len(high), 1))
        floats = np.column_stack([cells.feedback, cells.totals]).view(np.int64)
        rows = np.column_stack([cells.firsts, own, high.astype(np.int64), low.astype(np.int64), floats])
        return [self._states.pack(last, row) for last, row in zip(cells.lasts.tolist(), rows, strict=True)]
