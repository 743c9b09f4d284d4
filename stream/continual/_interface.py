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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.mechanisms import VectorNoise
from hatcast.stream.policy.method import NoiseKind


class BadState(ValueError):
    """A stored state is damaged, of another version, of another setting, or not before the given slot."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Public parameters of the running sum of one cell over one horizon. Raises ValueError if one is out of range.

    slots           n, of the horizon; a slot's index is in 0 to n - 1
    max_slots       k: a user is in at most this many slots
    min_separation  b: and two of them are at least this many slots apart
    bound           milli-units: a user's value in a slot is in [0, bound]
    epsilon, delta  of the whole horizon; delta is 0 with Laplace noise
    branching       of kind `kary`; None: the one of the least maximum error
    buffers         of kind `blt`
    """

    slots: int
    max_slots: int
    min_separation: int
    bound: int
    epsilon: float
    delta: float
    noise: NoiseKind
    branching: int | None = None
    buffers: int | None = None

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
    """Users of one cell and slot, each once.

    pseudonyms  uint64 [N], of the horizon
    values      int64 [N], milli-units above the value's lower bound, in [0, bound]
    """

    pseudonyms: NDArray[np.uint64]
    values: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The next slot of one cell.

    state  of the cell after its last slot; None: it has had none in this horizon
    index  of the slot, above that of the state; nobody was in the slots between
    """

    state: bytes | None
    index: int
    entries: Entries


@dataclass(frozen=True, slots=True)
class Advanced:
    """The state after a slot, and the running sum from the horizon's start to the end of this slot.

    total         noisy, milli-units
    sd            standard deviation of its noise
    half_width95  the noise is within this distance of 0 with a probability of at least 0.95
    count         values in the sum; None: all that have been entered
    """

    state: bytes
    total: float
    sd: float
    half_width95: float
    count: int | None = None


class Mechanism(Protocol):
    """A continual mechanism of one setting. Making one may take a second: make it once."""

    @property
    def setting(self) -> Setting:
        """The public parameters."""
        ...

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """Return the next state and running sum of each cell. All noise of all steps is drawn in one or two calls.

        steps  each of another cell

        Raises BadState, and UnsafeNoise if a sum does not fit into 64 bits. A failed call has released nothing.
        """
        ...

    def sd(self, index: int) -> float:
        """Return the standard deviation of the running sum's noise after slot `index`, if all slots have entries.

        For a cell that is empty in its first slots it is that after as many slots fewer; empty slots later leave it
        unchanged or reduce it. `withhold_release`: depends on when groups are complete; this is if each is at once.
        """
        ...
