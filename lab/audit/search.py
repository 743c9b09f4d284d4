"""Search for the neighbours that use most of a claim: those of the proofs, random ones, then small changes of the best.

The loss is that of `transcript.replayed` or, for releases that request noise alone and add it later, of `Shifts`: exact
in what the noise is asked for, whatever it then draws.

**Shifts** are for trees, where one draw is in many running sums. A replay with the same answers publishes other sums
then. But if there is a shift of the answers under which the neighbour publishes what the first input published, byte
for byte, then each output of the noise that leads to a record has a counterpart under the neighbour, one to one, and
the privacy loss is at most that of the shift. The published sums are linear in the answers, so the cheapest shift is
that of a linear program. Another replay checks that the bytes are the same, so no claim depends on the program's
solver.    [Chan, Shi and Song 2011]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from hatcast.lab.audit.hats import Claim, Family, Neighbours, RandomNumbers
from hatcast.lab.audit.transcript import Integers, Leak, NoiseRequest, Recorder, ReplayedNoise, replayed
from hatcast.stream.mechanisms import Noise

_MILLI: Final = 1000


class Shifts:
    """Replays of one family. What moves the sums is public, and mostly the same for all inputs: it is kept."""

    def __init__(self) -> None:
        self._columns: list[Integers] = []

    def loss(self, neighbours: Neighbours, noise: Noise) -> float:
        """Return the privacy loss of the cheapest shift between two neighbours that publish running sums. Raises Leak.

        noise   answers the first run
        """
        recorder = Recorder(noise)
        published = neighbours.one(recorder)
        rates = np.concatenate([np.zeros(0), *map(_rates, recorder.entries)])

        def other(shift: Integers) -> tuple[ReplayedNoise, list[bytes]]:
            replay = ReplayedNoise(recorder.entries, shift)
            records = neighbours.other(replay)
            if replay.at != len(recorder.entries):
                raise Leak("less noise is drawn")
            return replay, records

        still = sums_of(other(np.zeros(len(rates), np.int64))[1])
        wanted = sums_of(published) - still
        if len(self._columns) == len(rates):
            shift = _cheapest(self._columns, wanted, rates)
            replay, records = other(np.zeros(len(rates), np.int64) if shift is None else shift)
            if records == published:
                return replay.loss
        self._columns = [sums_of(other(unit)[1]) - still for unit in np.eye(len(rates), dtype=np.int64)]
        shift = _cheapest(self._columns, wanted, rates)
        if shift is not None:
            replay, records = other(shift)
            if records == published:
                return replay.loss
        raise Leak("no shift of the noise makes neighbours publish the same")


def sums_of(records: Sequence[bytes]) -> Integers:
    """Return the published running sums, in milli-units."""
    found = [msgspec.json.decode(record)["running"].get("sum") for record in records]
    return np.array([round(each["value"] * _MILLI) for each in found if each is not None], np.int64)


def _rates(entry: object) -> NDArray[np.float64]:
    """Return the privacy loss of a step, for each number of a request. Raises Leak."""
    if not isinstance(entry, NoiseRequest):
        raise Leak("a selection decides about running sums")
    if not entry.terms.l1:
        raise Leak("a number without noise is published")
    return np.full(len(entry.values), entry.terms.epsilon / entry.terms.l1)


def _cheapest(columns: Sequence[Integers], wanted: Integers, rates: NDArray[np.float64]) -> Integers | None:
    """Return the shift of least loss that moves the sums by `wanted`; None if there is none.

    columns   how a step of each answer moves the sums. Where it moves a sum by more, the answer is that of a search,
              which is not shifted
    """
    shift = np.zeros(len(rates), np.int64)
    if not wanted.any():
        return shift
    used = [at for at, column in enumerate(columns) if column.any() and np.abs(column).max() <= 1]
    if not used or len(columns[used[0]]) != len(wanted):
        return None
    matrix, scale = np.column_stack([columns[at] for at in used]), float(np.abs(wanted).max())
    costs = np.tile(rates[used] / rates[used].max(), 2)  # of steps up and of steps down
    solved = linprog(costs, A_eq=np.hstack([matrix, -matrix]), b_eq=wanted / scale)
    if solved.x is None:
        return None
    up, down = np.split(np.rint(np.asarray(solved.x) * scale).astype(np.int64), 2)
    shift[used] = up - down
    return shift


@dataclass(frozen=True, slots=True)
class Found:
    """The neighbours with the largest loss, as a share of the claim's epsilon."""

    neighbours: Neighbours
    share: float
    leak: str | None  # why what is published differs in more than its noise; None: it does not
    pairs: int  # number of neighbours that were compared


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


TOLERANCE = 1e-9  # relative; of sums of floats in `transcript`


def _compared(claim: Claim, neighbours: Neighbours, loss_of: Callable[[Neighbours], float], number: int) -> Found:
    try:
        return Found(neighbours, loss_of(neighbours) / claim.epsilon, None, number)
    except Leak as leak:
        return Found(neighbours, float("inf"), leak.reason, number)
