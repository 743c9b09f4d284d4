"""Buffers of kind `blt`: their parameters, and the best ones for a setting.

C has the coefficients c_0 = 1, c_i = sum_j omega_j theta_j^(i - 1) [arXiv 2404.16706; 2408.08868].
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._interface import BadState, Setting
from hatcast.stream.continual._matrix import participation_of

Floats = NDArray[np.float64]

BITS: Final = 40  # of stored parameters, behind the point
_DIGITS: Final = 12  # significant bits of 1 - theta and of omega: finer ones change the error by less than 1e-6
_LARGEST: Final = 25.0  # of a free parameter, absolute: 1 - theta and omega are at least exp(-25)
_ITERATIONS: Final = 200
_FLAT: Final = 1e-9  # a relative improvement of the error that is not worth an iteration
_PATIENCE: Final = 3
_STEP: Final = 1e-5  # of numerical derivatives
_ARMIJO: Final = 1e-4


class Parameters(NamedTuple):
    """Parameters of the buffers, times 2^40, [d] each: theta in [0, 1), omega of 0 or more with a sum of at most 1.

    So the coefficients of C are 0 or more, and do not increase.
    """

    thetas: tuple[int, ...]
    omegas: tuple[int, ...]

    def check(self) -> None:
        """Raise BadState for parameters that were not stored by this program."""
        unit = 1 << BITS
        if not all(0 <= theta < unit for theta in self.thetas) or min(self.omegas) < 0 or sum(self.omegas) > unit:
            raise BadState("the state of a running sum is damaged")

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


def decoding_weights(parameters: Parameters, slots: int) -> Floats:
    """Return the first column of A C^-1: 1 - sum_j gamma_j (1 - lambda_j^i) / (1 - lambda_j)."""
    poles, gammas = inverse_poles(*parameters.floats())
    powers: Floats = poles[:, None] ** np.arange(slots)
    weights: Floats = 1 - (gammas / (1 - poles)) @ (1 - powers)
    return weights


def best_parameters(setting: Setting, buffers: int) -> Parameters:
    """Return the parameters with the least maximum error times sensitivity, for the setting's slots and participation.

    Found by quasi-Newton steps (BFGS) from a quadrature of the square-root factorisation. A tie or rounding may lead to
    other parameters on another machine; so they are stored in the state.
    """
    error = _Error(setting, buffers)
    free = _minimised(error, _start(setting.slots, buffers))
    thetas, omegas = error.parameters(free)
    unit = 1 << BITS
    return Parameters(
        tuple(unit - _rounded(1 - theta) for theta in thetas.tolist()),
        tuple(_rounded(omega) for omega in (omegas * (1 - 2.0**-_DIGITS)).tolist()),
    )


def _rounded(value: float) -> int:
    """Return a number times 2^40, with 12 significant bits; at least 1."""
    exact = round(value * (1 << BITS))
    spare = max(exact.bit_length() - _DIGITS, 0)
    return max((exact + (1 << spare >> 1)) >> spare << spare, 1)


class _Error:
    """The logarithm of the maximum error times the sensitivity, as a function of free parameters.

    They are the logits of theta and the negative logarithms of omega, [2 d].
    """

    def __init__(self, setting: Setting, buffers: int) -> None:
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


def _minimised(error: _Error, free: Floats) -> Floats:
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
