"""Interface of continual mechanisms: private sums of one slot after the other in, a noisy running sum out.

- Setting: public parameters of the running sum of one cell over one horizon
- Entries: private; the values that users enter in one slot
- Mechanism: of one setting, for all cells; it stores nothing itself
- state: bytes of one cell, private; exact sums and drawn values, never seeds. Whoever calls `advance` stores it in the
  same step as what it releases, so no value is drawn twice.

Values are integers of milli-units above the value's lower bound. Neighbours are two inputs that have the same users in
the same slots, and in which one user has other values, each in [0, bound]: so this user moves the sum of at most
`max_slots` slots, by at most `bound` each.
"""

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.mechanisms import MAX_VALUE, Distances, UnsafeNoise, VectorNoise, gaussian, laplace
from hatcast.stream.policy.method import NoiseKind

_QUANTILE95: Final = 1.96  # a little above the normal quantile
_CORRECTION: Final = (_QUANTILE95**3 - 3 * _QUANTILE95) / 24  # Cornish-Fisher's, for each unit of excess kurtosis
_MARGIN: Final = 1.001  # for what the correction neglects
Integers = NDArray[np.int64]
DAMAGED: Final = "the state of a running sum is damaged"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<BIiI")  # version, setting, index, checksum of index and numbers


class BadState(ValueError):
    """A stored state is damaged, of another version, of another setting, or not before the given slot."""


@dataclass(frozen=True, slots=True)
class SumSetting:
    """Public parameters of the running sum of one cell over one horizon. Raises ValueError if one is out of range."""

    slots: int  # n, of the horizon; a slot's index is in 0 to n - 1
    max_slots: int  # k: a user is in at most this many slots
    min_separation: int  # b: and two of them are at least this many slots apart
    bound: int  # milli-units: a user's value in a slot is in [0, bound]
    # epsilon, delta: of the whole horizon; delta is 0 with Laplace noise
    epsilon: float
    delta: float
    noise: NoiseKind
    branching: int | None = None  # of kind `kary`; None: the one of the least maximum error
    buffers: int | None = None  # of kind `blt`

    def __post_init__(self) -> None:
        if min(self.slots, self.max_slots, self.min_separation, self.bound) < 1:
            raise ValueError("slots, max_slots, min_separation and bound are at least 1")
        if not self.epsilon > 0 or (self.delta > 0) != (self.noise is NoiseKind.GAUSSIAN):
            raise ValueError("epsilon is above 0; delta is above 0 with Gaussian noise, and 0 with Laplace noise")

    @property
    def participations(self) -> int:
        """Most slots that one user enters: `max_slots`, or fewer if no more fit into the horizon."""
        return min(self.max_slots, (self.slots - 1) // self.min_separation + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Users of one cell and slot, each once."""

    pseudonyms: NDArray[np.uint64]  # uint64 [N], of the horizon
    values: NDArray[np.int64]  # int64 [N], milli-units above the value's lower bound, in [0, bound]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The next slot of one cell."""

    state: bytes | None  # of the cell after its last slot; None: it has had none in this horizon
    index: int  # of the slot, above that of the state; nobody was in the slots between
    entries: Entries


@dataclass(frozen=True, slots=True)
class Advanced:
    """The state after a slot, and the running sum from the horizon's start to the end of this slot."""

    state: bytes
    total: float  # noisy, milli-units
    sd: float  # standard deviation of its noise
    half_width95: float  # the noise is within this distance of 0 with a probability of at least 0.95
    count: int | None = None  # values in the sum; None: all that have been entered


class Mechanism(Protocol):
    """A continual mechanism of one setting. Making one may take a second: make it once."""

    setting: SumSetting  # the public parameters

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """Return the next state and running sum of each cell. All noise of all steps is drawn in one or two calls.

        steps  each of another cell

        Raises BadState, and UnsafeNoise if a sum does not fit into 64 bits. A failed call has released nothing.
        """

    def sd(self, index: int) -> float:
        """Return the standard deviation of the running sum's noise after slot `index`, if all slots have entries.

        For a cell that is empty in its first slots it is that after as many slots fewer; empty slots later leave it
        unchanged or reduce it. `withhold_release`: depends on when groups are complete; this is if each is at once.
        """


class NoiseCalibration:
    """Noise for all numbers of one stream, of which neighbours are within `distances` of each other.

    Raises UnsafeNoise if it does not fit into 64 bits.
    """

    def __init__(self, setting: SumSetting, distances: Distances) -> None:
        self.setting = setting
        self.distances = distances
        if setting.noise is NoiseKind.LAPLACE:
            laplace.smallest_scale(distances.l1, setting.epsilon)
        else:
            gaussian.check_width(distances, setting.epsilon, setting.delta)

    @cached_property
    def scale(self) -> float:
        """The scale of each draw; with Gaussian noise its standard deviation."""
        if self.setting.noise is NoiseKind.LAPLACE:
            return laplace.smallest_scale(self.distances.l1, self.setting.epsilon)
        return gaussian.smallest_vector_scale(self.distances, self.setting.epsilon, self.setting.delta)

    @cached_property
    def sd(self) -> float:
        """The standard deviation of each draw."""
        of = laplace if self.setting.noise is NoiseKind.LAPLACE else gaussian
        return math.sqrt(of.variance(self.scale))

    def draw(self, values: NDArray[np.int64], noise: VectorNoise) -> NDArray[np.int64]:
        """Return `values` plus independent noise. Raises UnsafeNoise."""
        if self.setting.noise is NoiseKind.LAPLACE:
            return noise.laplace_many(values, self.distances.l1, self.setting.epsilon).values
        return noise.gaussian_many(values, self.distances, self.setting.epsilon, self.setting.delta).values

    def width95(self, squares: float, fourths: float) -> float:
        """Return a half width of a 95 % interval around a weighted sum of draws.

        squares, fourths  sums of the squares and of the fourth powers of the weights

        A Laplace draw has the excess kurtosis 3, so the sum has 3 fourths / squares^2. With Cornish and Fisher's
        correction the width is above the quantile: by 2.4 % for one draw, by 0.1 % for many
        (tests/statistics/test_continual.py).
        """
        if not squares:
            return 0.0
        quantile = _QUANTILE95
        if self.setting.noise is NoiseKind.LAPLACE:
            quantile = _MARGIN * (quantile + _CORRECTION * 3 * fourths / squares**2)
        return quantile * self.sd * math.sqrt(squares)


def slot_sums(steps: Sequence[Step], setting: SumSetting) -> Integers:
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


class StateContents(NamedTuple):
    """Contents of a state."""

    last: int  # index of the last slot
    numbers: NDArray[np.int64]  # int64 [M], of the kind


class States:
    """The states of one kind and setting as bytes. A state of another one, or with another `extra`, is rejected."""

    def __init__(self, kind: str, setting: SumSetting, extra: str = "") -> None:
        self._slots = setting.slots
        self._checksum = zlib.crc32(f"{kind} {setting!r} {extra}".encode())

    def pack(self, index: int, numbers: NDArray[np.int64] | Sequence[int]) -> bytes:
        """Return the state after slot `index`."""
        body = np.asarray(numbers, "<i8").tobytes()
        return _HEADER.pack(_VERSION, self._checksum, index, zlib.crc32(body, index)) + body

    def read(self, step: Step) -> StateContents | None:
        """Return the contents of a cell's state; None if it has none. Raises BadState, also outside the horizon."""
        if not 0 <= step.index < self._slots:
            raise BadState(f"slot {step.index} is not one of the {self._slots} of the horizon")
        return None if step.state is None else self.unpack(step.state, step.index)

    def unpack(self, state: bytes, before: int) -> StateContents:
        """Return the contents of a state.

        before  index of the next slot
        Raises BadState if it is damaged, of another version or setting, or not of a slot before `before`.
        """
        if len(state) < _HEADER.size or state[0] != _VERSION:
            raise BadState("the state of a running sum is damaged or of another version")
        _, stored_of, index, checksum = _HEADER.unpack_from(state)
        body = state[_HEADER.size :]
        if len(body) % 8 or zlib.crc32(body, index & 0xFFFFFFFF) != checksum:
            raise BadState(DAMAGED)
        if stored_of != self._checksum:
            raise BadState("the state of a running sum is of another setting")
        if not 0 <= index < before:
            raise BadState(f"slot {before} of a running sum is not after slot {index}, its last one")
        return StateContents(index, np.frombuffer(body, "<i8").astype(np.int64))
