"""Participation in a horizon, the users that declared limits keep, and a running sum's noise and values with them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.plan.counts import Row
from hatcast.lab.survey.figures import Histogram
from hatcast.stream.continual import Entries, Mechanism, Step
from hatcast.stream.continual.withhold_release import WithholdRelease
from hatcast.stream.mechanisms import Distances, NoisyVector

Entry = tuple[int, str, str]  # index of the slot in the horizon, cell, vehicle
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_STRIDE: Final = 64  # slots between two states that are measured
_MOST_ENTRIES: Final = 50_000  # of a horizon, of which a state is measured; it grows in proportion to users
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class Participation:
    """Declared participation of a user in a horizon."""

    max_slots: int  # most slots in one cell
    min_separation: int  # slots between two of them, at least; 1: any two different slots
    max_cells: int  # most cells


@dataclass(frozen=True, slots=True)
class Presence:
    """Participation of all users, without limits."""

    entries: tuple[Entry, ...]  # distinct, in the order of their slots
    slots: Histogram  # histogram of the slots of a user in a cell
    cells: Histogram  # histogram of the cells of a user


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Users that count under a declared participation."""

    entries: NDArray[np.int64]  # int64 [E, 3]: cell, slot and vehicle, by number, in the order of the slots
    users: NDArray[np.int64]  # int64 [C, n]  in each cell and slot
    cut: float  # share of the entries that do not count (outcome `over_participation`)


def presence_of(rows: Iterable[Row], days: int, day_slots: int) -> Presence:
    """Return the participation in a horizon of so many days; the given ones are repeated in order.

    rows   with the number of a slot in its day, from 0, in place of the hour; other numbers are left out
    """
    by_date = [
        sorted({(slot, cell, vehicle) for _, slot, cell, vehicle, _ in of_day if 0 <= slot < day_slots})
        for _, of_day in groupby(sorted(rows), lambda row: row[0])
    ]
    given = [of_day for of_day in by_date if of_day]
    entries = tuple(
        (day * day_slots + slot, cell, vehicle)
        for day in range(days if given else 0)
        for slot, cell, vehicle in given[day % len(given)]
    )
    slots = Counter((vehicle, cell) for _, cell, vehicle in entries)
    cells = Counter(vehicle for vehicle, _ in slots)
    return Presence(entries, Counter(slots.values()), Counter(cells.values()))


def kept_by(presence: Presence, limits: Participation, slots: int) -> Kept:
    """Count the users as the fold does: first come, first kept. slots: of the horizon."""
    row_of: dict[str, int] = {}
    number_of: dict[str, int] = {}
    last: dict[tuple[str, str], int] = {}
    number: Counter[tuple[str, str]] = Counter()
    cells: Counter[str] = Counter()
    kept = []
    for index, cell, vehicle in presence.entries:
        place = vehicle, cell
        if place in last:
            if number[place] >= limits.max_slots or index - last[place] < limits.min_separation:
                continue
        elif cells[vehicle] >= limits.max_cells:
            continue
        else:
            cells[vehicle] += 1
        last[place] = index
        number[place] += 1
        kept.append((row_of.setdefault(cell, len(row_of)), index, number_of.setdefault(vehicle, len(number_of))))
    counted = np.array(kept, np.int64).reshape(-1, 3)
    users = np.zeros((len(row_of), slots), np.int64)
    np.add.at(users, (counted[:, 0], counted[:, 1]), 1)
    return Kept(counted, users, 1 - len(kept) / max(1, len(presence.entries)))


@dataclass(frozen=True, slots=True, eq=False)
class UsersBySlot:
    """Users of each cell and slot."""

    running: Floats  # float64 [C, n], values from the horizon's start on
    published: NDArray[np.bool_]  # bool [C, n]: whether the cell has a record at this slot
    # int64 [E, 3]: cell, slot and user, by number, in the order of the slots; None: in each slot the same number of
    # users, each of whom stays for all its slots
    entries: Integers | None


class PlannedRun(NamedTuple):
    """A mechanism with its users."""

    deviations: Floats  # float64 [1 or C, n], of the running sum's noise in the value's unit
    values: Floats  # float64 [C, n], in the running sum
    memory: int | None = None  # bytes of a cell's state, at most; None: not yet measured


def equal_users(slots: int, users: float) -> UsersBySlot:
    """Return one cell with the same number of users in each slot."""
    return UsersBySlot(users * np.arange(1.0, slots + 1)[None, :], np.ones((1, slots), bool), None)


def run_of(mechanism: Mechanism, users: UsersBySlot) -> PlannedRun:
    """Return noise, values and memory of a mechanism with these users."""
    if isinstance(mechanism, WithholdRelease):
        return _with_withheld_values(mechanism, users)
    deviations = np.array([mechanism.sd(index) for index in range(mechanism.setting.slots)]) / _MILLI
    return PlannedRun(deviations[None, :], users.running)


def memory_of(mechanism: Mechanism, users: UsersBySlot) -> int:
    """Return the most bytes of a cell's state, of a cell with entries from the first slot to the last."""
    if isinstance(mechanism, WithholdRelease):
        return _memory_with_users(mechanism, max(1, round(float(users.running[0, 0]))))
    slots = mechanism.setting.slots
    fullest = max(range(slots), key=mechanism.sd)  # the sum of most nodes of a tree
    state, most = None, 0
    for index in sorted({*range(0, slots, _STRIDE), fullest, slots - 1}):
        (advanced,) = mechanism.advance([Step(state, index, _entries(np.zeros(1, np.int64)))], _NoNoise())
        state, most = advanced.state, max(most, len(advanced.state))
    return most


def _with_withheld_values(mechanism: WithholdRelease, users: UsersBySlot) -> PlannedRun:
    """Return the run of kind `withhold_release`: which values are in the sum depends on which users enter."""
    if users.entries is not None:
        return _advanced(mechanism, users.entries, users.running.shape)
    number = float(users.running[0, 0])
    waits = max(stream.least for stream in mechanism.streams)
    if number < waits:
        simulated = max(1, round(number))
        run = _advanced(mechanism, _rotating(mechanism, simulated), users.running.shape)
        return run._replace(values=number / simulated * run.values)
    # Each stream starts with its first items, as `sd` and `released` assume.
    slots = np.arange(mechanism.setting.slots)
    value = slots // mechanism.setting.min_separation % mechanism.setting.participations  # of each user, from 0
    released = np.array([mechanism.released(count) for count in range(mechanism.setting.participations + 1)])
    values = number * np.cumsum(released[value + 1] - released[value])
    deviations = np.array([mechanism.sd(index) for index in slots.tolist()]) / _MILLI
    return PlannedRun(deviations[None, :], values[None, :])


def _advanced(mechanism: Mechanism, entries: Integers, shape: tuple[int, ...]) -> PlannedRun:
    """Advance the cells through all their slots."""
    deviations, values = np.zeros(shape), np.zeros(shape)
    states: dict[int, bytes] = {}
    for index, of_slot in groupby(entries.tolist(), lambda entry: entry[1]):
        by_cell = [(cell, [user for *_, user in of_cell]) for cell, of_cell in groupby(sorted(of_slot), lambda e: e[0])]
        steps = [Step(states.get(cell), index, _entries(np.array(members))) for cell, members in by_cell]
        for (cell, _), each in zip(by_cell, mechanism.advance(steps, _NoNoise()), strict=True):
            states[cell] = each.state
            deviations[cell, index:], values[cell, index:] = each.sd / _MILLI, each.count or 0
    return PlannedRun(deviations, values, max(map(len, states.values())))


def _memory_with_users(mechanism: Mechanism, users: int) -> int:
    """Return about the bytes of the last state, if the users of 64 slots enter together."""
    state, measured = b"", min(users, max(1, _MOST_ENTRIES // mechanism.setting.slots))
    entries = _rotating(mechanism, measured)
    for _, part in groupby(entries.tolist(), lambda entry: entry[1] // _STRIDE):
        of_part = [*part]
        members = _entries(np.unique([user for *_, user in of_part]))
        state = mechanism.advance([Step(state or None, of_part[-1][1], members)], _NoNoise())[0].state
    return round(len(state) * users / measured)


def _rotating(mechanism: Mechanism, users: int) -> Integers:
    """Return entries of so many users in each slot, who stay for all the slots that they may enter."""
    setting = mechanism.setting
    slots = np.arange(setting.slots)
    turn = slots // setting.min_separation // setting.participations * setting.min_separation
    first = (turn + slots % setting.min_separation) * users
    members = (first[:, None] + np.arange(users)).ravel()
    return np.column_stack((np.zeros_like(members), np.repeat(slots, users), members))


def _entries(users: Integers) -> Entries:
    return Entries(users.astype(np.uint64), np.zeros(len(users), np.int64))


class _NoNoise:
    """Draws of 0: deviations, numbers of values and sizes of states do not depend on noise."""

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        return NoisyVector(values, distance / epsilon)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        return NoisyVector(values, distances.l2 / epsilon)
