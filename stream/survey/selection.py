"""HAT selection: cells with enough users in every slot.    [T III.C; estimators.md, section 7]

S(c, t): how many user-days of D days enter HAT (c, day, t), which is the sum over days of that HAT's unique users. A
cell c is kept if S(c, t)/D > N for every slot t of the policy's hours. `survey` takes S as it is: such a list shows
where buses are, so it is for `replace`, where that is public. `private` puts noise on it:

**Public**: the candidates, the D days, the slots, K, N and epsilon. None of them is read off the data.

1. **Bounded influence.** A user-day counts in the first K of the pairs (candidate cell, slot) that it entered, in the
   order of its own first arrivals there, ties by slot and cell. Which these are depends on that user-day alone: the
   rules look at one record at a time (`rows`), and the cap at the HATs of one user on one day. (Users are told apart
   by pseudonyms of 64 bits under a key made for the run: that any two of 10^6 collide has a chance of 3e-8.)
2. **Sensitivity.** One user-day more or less changes at most K of the numbers S(c, t), each by 1: in l1 by at most K,
   whatever all others did. (In means S/D: at most K of them, each by 1/D.)
3. **Noise.** Each S(c, t), of each candidate and slot, gets discrete Laplace noise of its own, scale b >= K/epsilon:
   `Noise.laplace` for distance K. (In means: K/(D epsilon).) One number's chances change by a factor of at most
   exp(|change of S(c, t)|/b), those of all numbers together by at most exp(K/b) <= exp(epsilon). Where nobody was, S is
   0 and gets the same noise as elsewhere.
4. **Selection.** S + noise > N D is asked in integers, of noisy numbers only, below 0 or not: post-processing.

**Which relation.** One user-day added or removed: epsilon. One user-day replaced by any other changes up to 2 K
numbers (K that it leaves, K that it enters): 2 epsilon. A user that was there on all D days is D user-days: D epsilon.
Under the relation `replace` of a policy who enters which HAT is public, so a selection tells nothing more; it is
charged all the same.

**The charge**: epsilon to each of the D days, for one list. Another draw costs it again.
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
    """What may be published of S, and the scale of the noise on S/D, in users."""

    counts: Counts
    scale: float


def busy_cells(cells: Sequence[int], counts: Counts, users: Fraction, days: int) -> list[int]:
    """The cells whose mean of daily users is above `users` in every slot, in ascending order.

    cells    [C] H3 indexes; counts [C, T], as counted or with noise
    days     D
    Whole numbers: S > N D if and only if S > floor(N D). Without a slot nothing is kept.
    """
    most = int(users * days)
    return sorted(cell for cell, row in zip(cells, counts, strict=True) if len(row) and int(row.min()) > most)


def noisy_counts(counts: Counts, cap: int, days: int, epsilon: float, noise: Noise) -> NoisyCounts:
    """S with noise on each of its numbers, for `epsilon`; the proof is above.

    counts   [candidates, slots], of user-days capped at `cap` pairs: private
    cap      K; public like all that follows
    Guarantee (one user-day added or removed): chances change by a factor of at most exp(epsilon).
    Raises UnsafeNoise where the noise would leave 64 bits, whatever the counts are.
    """
    drawn = [noise.laplace(count, cap, epsilon) for count in counts.ravel().tolist()]
    values = np.array([each.value for each in drawn], np.int64).reshape(counts.shape)
    return NoisyCounts(values, max((each.scale for each in drawn), default=0.0) / days)
