"""Family of a private list of cells, and the exact law of such lists on small inputs.

Neighbours are recordings that differ in one user-day. They go through the code of `hatcast survey --private`: rows on
disk, the cap, noise and comparison. It is not in lab/audit, since the rows are on disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import h3.api.basic_int as h3
import msgspec

from hatcast.lab.audit.families import Claim, Neighbours, RandomNumbers, Run
from hatcast.lab.audit.hats import NOW_MS
from hatcast.lab.survey.counts import Counts, capped_counts
from hatcast.lab.survey.rows import MemoryLimits, RowCollector, open_spill, slots_of
from hatcast.lab.survey.run import select_from
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from hatcast.stream.units import DAY_MS

_MOST_CELLS: Final = 3
_MOST_SLOTS: Final = 4
_MOST_USERS: Final = 4
_MORE: Final = 3  # pairs beyond the limit that the bus tries to enter
_SPEED: Final = 30.0
_GAP_MS: Final = 1000

Pairs = tuple[tuple[int, int], ...]
"""(candidate, slot) that a user-day tries to enter; the first ones in time count"""


@dataclass(frozen=True, slots=True)
class ComparedRecording:
    """User-days of one date, and which of them the other recording does not have."""

    users: tuple[Pairs, ...]
    missing: int


class ListFamily:
    """A private list of cells, of which the policy's file states the cost. See `Family`."""

    name = "private list"
    is_alone = False
    sample_divisor = 1

    def __init__(self, policy: Policy, cap: int | None = None) -> None:
        """Args: `policy`, with a private list; `cap`, of the counting under audit; None: the policy's."""
        cost = policy.selection_cost
        if cost is None or not policy.cells:
            raise ValueError(f"{policy.name} has no private list of cells")
        self.claim = Claim(cost.epsilon)
        self._cells = sorted(policy.cells)[:_MOST_CELLS]
        self._policy = replace(policy, cells=frozenset(self._cells), selection_cost=None)
        self._days, self._number = (cost.first, cost.last), len(cost.dates)
        slots = [slot for slot in Calendar(self._policy).slots_of(cost.dates[0]) if slot.outside is None]
        self._starts = [slot.start_ms for slot in slots][:_MOST_SLOTS]
        self._allowed, self._cap = policy.max_hats_per_day, cap or policy.max_hats_per_day
        self._all = tuple((cell, slot) for slot in range(len(self._starts)) for cell in range(len(self._cells)))

    def worst(self) -> list[Neighbours]:
        """See `Family`: a bus that tries to enter more pairs than it may, alone and beside others."""
        bus = self._all[: self._allowed + _MORE]
        return [self._neighbours(ComparedRecording((bus, *(self._all,) * beside), 0)) for beside in (0, 1, _MOST_USERS)]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        users = tuple(self._pairs(random) for _ in range(1 + random.integers(0, _MOST_USERS)))
        return self._neighbours(ComparedRecording(users, random.integers(0, len(users))))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: the pairs of one user-day."""
        recording: ComparedRecording = neighbours.data
        users = list(recording.users)
        users[random.integers(0, len(users))] = self._pairs(random)
        return self._neighbours(replace(recording, users=tuple(users)))

    def _pairs(self, random: RandomNumbers) -> Pairs:
        number = random.integers(1, len(self._all) + 1)
        return tuple(self._all[random.integers(0, len(self._all))] for _ in range(number))

    def _neighbours(self, recording: ComparedRecording) -> Neighbours:
        users, missing = recording.users, recording.missing
        name = f"{len(users)} user-days, without one that tries to enter {len(users[missing])} pairs"
        other = (*users[:missing], *users[missing + 1 :])
        return Neighbours(name, self._run(users), self._run(other), recording)

    def _run(self, users: Sequence[Pairs]) -> Run:
        counts = self._counts(users)

        def run(noise: Noise) -> list[bytes]:
            above = Fraction(1, self._number), self._number  # a sum above 1: the noise decides
            chosen = select_from(counts, self._cells, self._allowed, above, self.claim.epsilon, noise)
            return [msgspec.json.encode([chosen.candidates, [int(c in chosen.selected) for c in self._cells]])]

        return run

    def _counts(self, users: Sequence[Pairs]) -> Counts:
        resolutions = (self._policy.h3_resolution,)
        pseudonyms, now_ms = Pseudonyms(bytes(KEY_BYTES)), NOW_MS + 400 * DAY_MS
        rows = RowCollector(self._policy, pseudonyms, resolutions, self._days, now_ms)
        for user, pairs in enumerate(users):
            for at, (cell, slot) in enumerate(pairs):
                lat, lon = h3.cell_to_latlng(self._cells[cell])
                time = self._starts[slot] + at * _GAP_MS
                rows.add(Recorded(b"", Reading(f"bus {user}", time, lat, lon, _SPEED), time))
        with open_spill(resolutions, MemoryLimits().part_rows) as spill:
            spill.write(rows.take())
            return capped_counts(spill, spill.dates(), self._cells, slots_of(self._policy), self._cap)
