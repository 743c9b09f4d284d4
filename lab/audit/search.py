"""Search for the neighbours that use most of a claim: those of the proofs, random ones, then small changes of the best.

The loss is that of `transcript.replayed` or of `shifts`: exact in what the noise is asked for, whatever it then draws.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hatcast.lab.audit.families import Claim, Family, Neighbours, RandomNumbers
from hatcast.lab.audit.shifts import Shifts
from hatcast.lab.audit.transcript import Leak, replayed
from hatcast.stream.mechanisms import Noise


@dataclass(frozen=True, slots=True)
class Found:
    """The neighbours with the largest loss, as a share of the claim's epsilon.

    leak    why what is published differs in more than its noise; None: it does not
    pairs   number of neighbours that were compared
    """

    neighbours: Neighbours
    share: float
    leak: str | None
    pairs: int


def search(family: Family, pairs: int, random: RandomNumbers, noise: Noise) -> Found:
    """Compare this many neighbours, or those of the proofs if these are more. Stops at a leak, or above the claim.

    Every second pair is a small change of the best so far, the others are random.
    """
    best: Found | None = None
    compare = Shifts().loss if family.is_alone else partial(replayed, delta=family.claim.delta)
    worst = family.worst()
    for number in range(max(pairs, len(worst))):
        if number < len(worst):
            neighbours = worst[number]
        elif number % 2 and best is not None:
            neighbours = family.varied(best.neighbours, random)
        else:
            neighbours = family.drawn(random)
        found = _compared(family.claim, neighbours, partial(compare, noise=noise), number + 1)
        if best is None or found.leak is not None or found.share > best.share:
            best = found
        if best.leak is not None or best.share > 1 + TOLERANCE:
            break
    if best is None:
        raise ValueError(f"{family.name} has no neighbours")
    return Found(best.neighbours, best.share, best.leak, number + 1)


TOLERANCE = 1e-9
"""relative; of sums of floats in `transcript`"""


def _compared(claim: Claim, neighbours: Neighbours, loss_of: Callable[[Neighbours], float], number: int) -> Found:
    try:
        return Found(neighbours, loss_of(neighbours) / claim.epsilon, None, number)
    except Leak as leak:
        return Found(neighbours, float("inf"), leak.reason, number)
