"""Family of a running sum: one cell over a horizon, with one user in as many slots as the policy lets in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from hatcast.lab.audit.hats import CELL, NOW_MS, Claim, Neighbours, RandomNumbers, Run, chunks_of, random_share
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.horizons import SlotIndex, horizon_of
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.continual_keys import ContinualKeys, ContinualKind
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.continual import CellHat, RunningSums
from hatcast.stream.release.hats import HatChunks

ALONE: Final = {ContinualKind.TREE, ContinualKind.KARY, ContinualKind.WITHHOLD_RELEASE}
"""kinds that request noise alone; the others request noisy values"""
_MOST_SLOTS: Final = 8  # of the user, at least 2: more take too long, and the bound is lower with them


@dataclass(frozen=True, slots=True)
class Stay:
    """The user's slots, and its shares of the range in each, under the one and under the other neighbour."""

    slots: tuple[int, ...]
    one: tuple[float, ...]
    other: tuple[float, ...]


class RunningSumFamily:
    """Running sums of one cell of a policy. See `Family`."""

    name = "running sum"
    sample_divisor = 4

    def __init__(self, policy: Policy) -> None:
        """Args: `policy`, with `[policy.continual]`."""
        keys = policy.keys_of(ContinualKeys)
        self.claim = Claim.of_part(policy, policy.epsilon, keys.max_cells)
        self.is_alone = keys.kind in ALONE
        self._policy, self._keys, self._sums = policy, keys, RunningSums(policy)
        self._slots = self._slots_of_horizon(keys)
        apart = -(-len(self._slots) // keys.min_separation)
        self._most = min(keys.max_slots, apart, _MOST_SLOTS)
        self._others = max(policy.min_users - 1, 1)

    def worst(self) -> list[Neighbours]:
        """See `Family`: 0 and U in the first slots, in the last ones, and far apart."""
        number, step = self._most, self._keys.min_separation
        near = tuple(at * step for at in range(number))
        end = len(self._slots) - 1
        last = tuple(end - at for at in reversed(near))
        zero, one = (0.0,) * number, (1.0,) * number
        return [self._neighbours(Stay(slots, zero, one)) for slots in (near, last)]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        step, at, slots = self._keys.min_separation, random.integers(0, 3), list[int]()
        while at < len(self._slots) and len(slots) < self._most:
            slots.append(at)
            at += step + random.integers(0, 3)
        shares = [tuple(random_share(random) for _ in slots) for _ in range(2)]
        return self._neighbours(Stay(tuple(slots), shares[0], shares[1]))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: one share of one of the two."""
        stay: Stay = neighbours.data
        at = random.integers(0, len(stay.slots))
        share = random_share(random)
        if random.random() < 0.5:
            return self._neighbours(replace(stay, one=_with(stay.one, at, share)))
        return self._neighbours(replace(stay, other=_with(stay.other, at, share)))

    def _neighbours(self, stay: Stay) -> Neighbours:
        name = f"a user in {len(stay.slots)} slots of {len(self._slots)}"
        return Neighbours(name, self._run(stay.slots, stay.one), self._run(stay.slots, stay.other), stay)

    def _run(self, slots: Sequence[int], shares: Sequence[float]) -> Run:
        upper = self._policy.upper_bound
        hats: list[tuple[Slot, HatChunks]] = []
        for at, share in zip(slots, shares, strict=True):
            users = [(1, 1, int(share * upper)), *((2 + n, 1, upper // 2) for n in range(self._others))]
            hats.append((self._slots[at], HatChunks(chunks_of(users))))

        def run(noise: Noise) -> list[bytes]:
            state, records = None, []
            for slot, chunks in hats:
                release = self._sums.advance(slot, [CellHat(CELL, chunks, state)], noise)[0]
                state = release.state
                records.append(numbered(release.record(NOW_MS), 1))
            return records

        return run

    def _slots_of_horizon(self, keys: ContinualKeys) -> list[Slot]:
        calendar, indexes = Calendar(self._policy), SlotIndex(self._policy)
        period = horizon_of(keys, max(keys.first, date(2022, 1, 3)).isoformat())
        slots = [slot for day in period.dates for slot in calendar.slots_of(day) if slot.outside is None]
        return sorted(slots, key=lambda slot: indexes.of(slot.date, slot.name))


def _with(shares: tuple[float, ...], at: int, share: float) -> tuple[float, ...]:
    return (*shares[:at], share, *shares[at + 1 :])
