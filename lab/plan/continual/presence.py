"""Participation in a horizon: slots and cells of each user, and the users that declared limits keep."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.plan.counts import Row
from hatcast.lab.survey.figures import Histogram

Entry = tuple[int, str, str]
"""index of the slot in the horizon, cell, vehicle"""
_SHARE: Final = 95  # % of users whose participation the defaults cover


@dataclass(frozen=True, slots=True)
class Participation:
    """Declared participation of a user in a horizon.

    max_slots        most slots in one cell
    min_separation   slots between two of them, at least; 1: any two different slots
    max_cells        most cells
    """

    max_slots: int
    min_separation: int
    max_cells: int


@dataclass(frozen=True, slots=True)
class Presence:
    """Participation of all users, without limits.

    entries   distinct, in the order of their slots
    slots     histogram of the slots of a user in a cell
    cells     histogram of the cells of a user
    """

    entries: tuple[Entry, ...]
    slots: Histogram
    cells: Histogram


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Users that count under a declared participation.

    entries  int64 [E, 3]: cell, slot and vehicle, by number, in the order of the slots
    users    int64 [C, n]  in each cell and slot
    cut      share of the entries that do not count (outcome `over_participation`)
    """

    entries: NDArray[np.int64]
    users: NDArray[np.int64]
    cut: float


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
