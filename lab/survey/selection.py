"""HAT selection: cells with enough users in every slot.    [T III.C; docs/specification/estimators.md, section 7]

S(c, t): number of user-days of D days that enter HAT (c, day, t), which is the sum over days of that HAT's unique
users. Cell c is selected if S(c, t)/D > N for every slot t of the policy's hours. `survey` uses the exact S: such a
list shows where buses are, so it is for `replace`, where that is public. `private` adds noise to S:

**Public**: the candidates, the D days, the slots, K, N and epsilon. None of them is derived from the data.

1. **Bounded influence.** A user-day counts in the first K of the pairs (candidate cell, slot) that it entered, in the
   order of its own first arrivals there, ties by slot and cell. These pairs depend on that user-day alone: the rules
   read one record at a time (`rows`), and the cap reads the HATs of one user on one day. (Users are identified by
   64-bit pseudonyms under a key made for the run: among 10^6 any two collide with probability 3e-8.)
2. **Sensitivity.** Adding or removing one user-day changes at most K of the numbers S(c, t), each by 1: at most K in
   l1, for any data of the others. (In means S/D: at most K of them, each by 1/D.)
3. **Noise.** Each S(c, t), for each candidate and slot, gets independent discrete Laplace noise of scale
   b >= K/epsilon: `Noise.laplace` for distance K. (In means: K/(D epsilon).) The probability of one noisy number
   changes by a factor of at most exp(|change of S(c, t)|/b), that of all numbers together by at most
   exp(K/b) <= exp(epsilon). Where there was no user S is 0 and gets the same noise as elsewhere.
4. **Selection.** The comparison S + noise > N D is in integers and reads noisy numbers only, also negative ones:
   post-processing.

**Relation.** One user-day added or removed: epsilon. One user-day replaced by any other changes up to 2 K numbers
(K that it leaves, K that it enters): 2 epsilon. A user present on all D days is D user-days: D epsilon. Under a
policy's relation `replace` the HATs that a user enters are public, so a selection reveals nothing more; it is charged
all the same.

**Charge**: epsilon to each of the D days, for one list. Another draw costs it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.mechanisms import Noise

Counts = NDArray[np.int64]
"""[cells, slots]: S(c, t)"""


@dataclass(frozen=True, slots=True)
class NoisyCounts:
    """S with noise, which may be published, and the scale of the noise on S/D in users."""

    counts: Counts
    scale: float


def busy_cells(cells: Sequence[int], counts: Counts, users: Fraction, days: int) -> list[int]:
    """Return the cells whose mean of daily users is above `users` in every slot, in ascending order.

    cells    [C] H3 indexes; counts [C, T], exact or noisy
    days     D
    For integers S > N D if and only if S > floor(N D). Without a slot no cell is selected.
    """
    threshold = int(users * days)
    return sorted(cell for cell, row in zip(cells, counts, strict=True) if len(row) and int(row.min()) > threshold)


def noisy_counts(counts: Counts, cap: int, days: int, epsilon: float, noise: Noise) -> NoisyCounts:
    """Add noise to each number of S, for `epsilon` in total. The proof is in the module docstring.

    counts   [candidates, slots], of user-days capped at `cap` pairs: private
    cap      K; public like the other arguments
    Guarantee (one user-day added or removed): probabilities change by a factor of at most exp(epsilon).
    Raises UnsafeNoise if the noise could exceed 64 bits, for any counts.
    """
    drawn = [noise.laplace(count, cap, epsilon) for count in counts.ravel().tolist()]
    values = np.array([each.value for each in drawn], np.int64).reshape(counts.shape)
    return NoisyCounts(values, max((each.scale for each in drawn), default=0.0) / days)
