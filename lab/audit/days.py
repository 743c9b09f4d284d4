"""Families of a running sum, and of a whole day or horizon through the fold.

A running sum: one cell over a horizon, with one user in as many slots as the policy lets in.

A day or horizon: a bus that is in more cells and slots than the policy lets in. Readings of all buses go through the
fold in order of arrival, and all that it lets in is released. The claim is that of the period: K epsilon of a day,
`max_cells` epsilon of a horizon. So a fold that lets in one HAT more is above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import product
from typing import Final

import h3.api.basic_int as h3

from hatcast.lab.audit.hats import (
    CELL,
    NOW_MS,
    Claim,
    Family,
    Neighbours,
    RandomNumbers,
    Run,
    changed,
    chunks_of,
    random_share,
)
from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.fold.reading_fold import ReadingFold
from hatcast.stream.fold.users import FoldUsers, SlotIndex, horizon_of
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.continual_keys import ContinualKeys, ContinualKind
from hatcast.stream.policy.policy import MeansKeys, Policy, Relation
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from hatcast.stream.release.continual import CellHat, RunningSums
from hatcast.stream.release.hats import HatChunks, least_users, releases_of
from hatcast.stream.units import DAY_MS

ALONE: Final = {ContinualKind.TREE, ContinualKind.KARY, ContinualKind.WITHHOLD_RELEASE}
"""kinds that request noise alone; the others request noisy values"""
_MOST_SLOTS: Final = 8  # of the user, at least 2: more take too long, and the bound is lower with them


@dataclass(frozen=True, slots=True)
class Stay:
    """The user's slots, and its shares of the range in each, under the one and under the other neighbour."""

    slots: tuple[int, ...]
    one: tuple[float, ...]
    other: tuple[float, ...]


class RunningSumFamily(Family):
    """Running sums of one cell of a policy."""

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
            return self._neighbours(replace(stay, one=changed(stay.one, at, share)))
        return self._neighbours(replace(stay, other=changed(stay.other, at, share)))

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


_DATE: Final = "2022-01-03"
_MORE: Final = 3  # HATs beyond the limit that the bus tries to enter
_MOST: Final = 120  # HATs of the bus: more take seconds
_BESIDE: Final = 4  # buses that are everywhere
_LEAST: Final = 0.001  # km/h

Chunks = dict[tuple[str, str], HatChunks]  # by slot and cell


@dataclass(frozen=True, slots=True)
class Trip:
    """HATs that the bus tries to enter, in this order, and its shares of the range in each, of either neighbour."""

    hats: tuple[tuple[Slot, int], ...]
    one: tuple[float, ...]
    other: tuple[float, ...] | None  # None: the bus is not there


class DayFamily(Family):
    """A day of a policy of HATs, or a horizon of one of running sums."""

    sample_divisor = 0

    def __init__(self, policy: Policy, fold_policy: Policy | None = None) -> None:
        """Args: `fold_policy`, of the fold under audit; None: the same policy."""
        keys = policy.method if isinstance(policy.method, ContinualKeys) else None
        self.name = "day" if keys is None else "horizon"
        periods = policy.most_hats if keys is None else keys.max_cells
        epsilon = policy.epsilon if keys is not None else policy.epsilon_nano / 1e9
        self.claim = Claim(periods * epsilon, 0.0 if policy.is_pure else policy.delta)
        self.is_alone = keys is not None and keys.kind in ALONE
        self._keys, self._policy, self._fold_policy = keys, policy, fold_policy or policy
        self._calendar = Calendar(policy)
        self._sums = None if keys is None else RunningSums(policy)
        self._hats = self._reachable()
        self._users = max(least_users(policy) - 1, _BESIDE)
        # Under add_remove a bus counts by its readings, up to the array length.
        length = policy.method.array_length if isinstance(policy.method, MeansKeys) else None
        self._readings = length if isinstance(length, int) and policy.relation is Relation.ADD_REMOVE else 1

    def worst(self) -> list[Neighbours]:
        """See `Family`: at 0 and at U all day, by slot and by cell."""
        hidden = self._policy.relation is Relation.ADD_REMOVE
        by_cell = tuple(sorted(self._hats, key=lambda hat: hat[1]))
        found = []
        for hats in (self._hats, by_cell):
            ends = (0.0,) * len(hats), (1.0,) * len(hats)
            found += [Trip(hats, one, None if hidden else other) for one, other in (ends, ends[::-1])]
        return [self._neighbours(trip) for trip in found]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        most = 0.8 if self._sums is None else random.random()  # so that the first slots are not always the bus's
        hats = [hat for hat in self._hats if random.random() < most] or [self._hats[0]]
        shares = [tuple(random_share(random) for _ in hats) for _ in range(2)]
        hidden = self._policy.relation is Relation.ADD_REMOVE
        return self._neighbours(Trip(tuple(hats), shares[0], None if hidden else shares[1]))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: one share."""
        trip: Trip = neighbours.data
        share, at = random_share(random), random.integers(0, len(trip.one))
        return self._neighbours(replace(trip, one=changed(trip.one, at, share)))

    def _neighbours(self, trip: Trip) -> Neighbours:
        name = f"a bus that tries to enter {len(trip.hats)} HATs"
        return Neighbours(name, self._run(trip.hats, trip.one), self._run(trip.hats, trip.other), trip)

    def _run(self, hats: Sequence[tuple[Slot, int]], shares: Sequence[float] | None) -> Run:
        chunks = self._folded(hats, shares)
        if self._policy.relation is Relation.ADD_REMOVE:  # every listed HAT is released
            for slot, cell in self._hats:
                chunks.setdefault((slot.key, h3.int_to_str(cell)), HatChunks([]))
        ordered = sorted(chunks.items())

        def run(noise: Noise) -> list[bytes]:
            if self._sums is not None:
                return self._running(self._sums, ordered, noise)
            batch = [(slot, cell, of_hat) for (slot, cell), of_hat in ordered]
            releases = releases_of(self._policy, self._calendar, batch, noise)
            return [numbered(release.record(NOW_MS), 1) for release in releases]

        return run

    def _running(
        self, sums: RunningSums, ordered: Sequence[tuple[tuple[str, str], HatChunks]], noise: Noise
    ) -> list[bytes]:
        states: dict[str, bytes | None] = {}
        records = []
        for (key, cell), of_hat in ordered:
            hat = CellHat(cell, of_hat, states.get(cell))
            release = sums.advance(self._calendar.stored_slot(key), [hat], noise)[0]
            states[cell] = release.state
            records.append(numbered(release.record(NOW_MS), 1))
        return records

    def _folded(self, hats: Sequence[tuple[Slot, int]], shares: Sequence[float] | None) -> Chunks:
        """Fold the readings of the bus and of the buses beside it; return the chunks of each HAT."""
        users = FoldUsers(Pseudonyms(bytes(KEY_BYTES)))
        fold = ReadingFold[Reading](self._fold_policy, self._calendar, users, lambda reading: reading, None)
        upper = self._policy.upper_bound / 1000
        least = _LEAST if self._policy.drop_zero else 0.0  # that a reading was 0 is public then
        step = max(self._policy.min_interval_ms, 1)
        readings = []
        if self._sums is not None:  # every running sum goes on in every slot: each bus beside is in one HAT
            for (slot, cell), n in product(self._hats, range(self._users)):
                lat, lon = h3.cell_to_latlng(cell)
                readings.append(Reading(f"{slot.key} {cell} {n}", slot.start_ms, lat, lon, upper / 2))
        for at, (slot, cell) in enumerate(hats):
            lat, lon = h3.cell_to_latlng(cell)
            time = slot.start_ms + at
            if self._sums is None:
                readings += [Reading(f"beside {n}", time, lat, lon, upper / 2) for n in range(self._users)]
            if shares is not None:
                speed = max(shares[at] * upper, least)
                readings += [Reading("bus", time + n * step, lat, lon, speed) for n in range(self._readings)]
        readings.sort(key=lambda reading: reading.time)
        fold.apply(NOW_MS + 400 * DAY_MS, [int(each.time) for each in readings], readings)
        return {
            (key, h3.int_to_str(cell)): HatChunks(
                chunks_of([(int.from_bytes(user, "big"), row.count, row.total) for user, row in hat.users.items()])
            )
            for key, slot in fold.slots.items()
            for cell, hat in slot.hats.items()
        }

    def _reachable(self) -> tuple[tuple[Slot, int], ...]:
        """Return more HATs than one user may enter, if there are so many: slot after slot."""
        policy, keys = self._policy, self._keys
        slots = [slot for slot in self._calendar.slots_of(_DATE) if slot.outside is None]
        number = policy.max_hats_per_day + _MORE
        if keys is not None:
            number = len(slots) * (keys.max_cells + 1)
        middle = h3.latlng_to_cell(*h3.cell_to_latlng(h3.str_to_int(CELL)), policy.h3_resolution)
        cells = sorted(policy.cells or h3.grid_disk(middle, 2))
        cells = cells[: max(1, -(-number // len(slots)))]
        if keys is not None:
            cells = cells[: keys.max_cells + 1]
        return tuple((slot, cell) for slot, cell in product(slots, cells))[: min(number, _MOST)]
