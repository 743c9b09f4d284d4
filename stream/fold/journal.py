"""Journal of a partition: readings that were accepted since its chunks were written.

A reading changes a few bytes of a chunk of 64 users. A block of the journal has the readings of one checkpoint alone.
The store has chunks and, of the same offset, the blocks since; chunks are written anew, and the blocks deleted, when a
slot closes or when the journal is as large as the chunks.

A row is applied only if its user has no reading of its step, so applied twice it changes nothing. A block is one record
of msgpack:

    version, slots (`date/slot`), HATs that are new in the journal (index of the slot, H3 cell),
    entrants (row, pseudonym), columns (width of a number, numbers): HAT, ordinal, step, value, other values
"""

import struct
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from hatcast.stream.fold.open_slots import Contribution, OpenHat, contribution_of
from hatcast.stream.fold.packing import FORMATS, Row, packed_columns

_VERSION: Final = 1
MOST_ROWS: Final = 8_192  # of a block: with more, most users of a chunk have changed
_LEAST_ROWS: Final = 1_024  # of a journal: 10 kB
_ROWS_PER_USER: Final = 3  # a row takes 7 bytes, a user in a chunk 33
_FULL: Final = 1 << 62

AcceptedRow = tuple[OpenHat, Contribution, int, int] | tuple[OpenHat, Contribution, int, int, *tuple[int, ...]]
"""An accepted reading: its HAT, its user's contribution, its step, its value and its other values, milli-units."""


@dataclass(slots=True)
class Journal:
    """Sizes of a partition's journal."""

    # blocks, rows: in the store
    blocks: int = 0
    rows: int = 0
    hats: int = 0  # HATs that have numbers in it
    new: list[OpenHat] = field(default_factory=list)  # HATs that got a number since the last block
    users: int = 0  # rows in the chunks of all open HATs

    def add_hat(self, hat: OpenHat) -> None:
        """Give a HAT its number."""
        hat.number = self.hats
        self.hats += 1
        self.new.append(hat)

    def has_room(self, rows: int) -> bool:
        """Return whether a block of so many rows is to be added; otherwise the changed chunks are to be written."""
        return rows <= MOST_ROWS and self.rows + rows <= max(_LEAST_ROWS, _ROWS_PER_USER * self.users)

    def take_block(self, rows: Sequence[AcceptedRow], entrants: Sequence["Entrant"]) -> tuple[int, bytes]:
        """Add a block of one row or more, in the order of the readings; return its number and its bytes."""
        number, new = self.blocks, self.new
        self.blocks, self.rows, self.new = number + 1, self.rows + len(rows), []
        return number, _pack_block(new, rows, entrants)

    def end(self) -> bool:
        """Begin an empty journal, because the chunks have all rows; return whether there were blocks."""
        had_blocks = self.blocks > 0
        self.blocks = self.rows = self.hats = 0
        self.new = []
        return had_blocks

    def restored(self, blocks: int) -> None:
        """Count stored blocks. They end with the next checkpoint, so their size need not be known."""
        self.blocks, self.rows = blocks, _FULL


class Entrant(NamedTuple):
    """A user that has entered a HAT, and the index of its first row."""

    row: int
    pseudonym: bytes


class _Block(msgspec.Struct, array_like=True, frozen=True):
    version: int
    slots: list[str]
    hats: list[tuple[int, int]]
    entrants: list[Entrant]
    columns: list[tuple[int, bytes]]


_DECODER: Final = msgspec.msgpack.Decoder(_Block)


def _pack_block(new: Sequence[OpenHat], rows: Sequence[AcceptedRow], entrants: Sequence[Entrant]) -> bytes:
    slots: dict[str, int] = {}
    places = [(slots.setdefault(hat.slot, len(slots)), hat.cell) for hat in new]
    hats, users, *numbers = zip(*rows, strict=True)
    widths, columns = packed_columns([[hat.number for hat in hats], [user.ordinal for user in users], *numbers])
    block = _Block(_VERSION, list(slots), places, list(entrants), list(zip(widths, columns, strict=True)))
    return msgspec.msgpack.encode(block)


def apply_blocks(journal: Iterable[bytes], hats: MutableMapping[tuple[str, int], OpenHat]) -> None:
    """Apply all blocks of a journal, in order, to stored HATs by slot and cell; add the HATs that only it has.

    Rows about users of a HAT that was deleted since are left out: their date is the next policy's.
    Raises ValueError for another format version.
    """
    numbered: list[tuple[OpenHat, list[Contribution]]] = []
    for packed in journal:
        block = _DECODER.decode(packed)
        if block.version != _VERSION:
            raise ValueError(f"a journal has format version {block.version}, this hatcast reads {_VERSION}")
        for slot, cell in block.hats:
            hat = hats.setdefault((block.slots[slot], cell), OpenHat(block.slots[slot], cell))
            numbered.append((hat, list(hat.users.values())))
        entrants = dict(block.entrants)
        for index, (number, ordinal, step, value, *others) in enumerate(_rows(block)):
            hat, known = numbered[number]
            pseudonym = entrants.get(index)
            if pseudonym is not None and ordinal == len(known):
                user = contribution_of(Row(pseudonym, 0, 0, 0, 0, (0,) * len(others)), ordinal)
                hat.users[pseudonym] = user
                known.append(user)
            if ordinal < len(known):
                _count(known[ordinal], step, value, others)
                hat.change(ordinal)


def _count(user: Contribution, step: int, value: int, others: Sequence[int]) -> None:
    """Count a reading, unless the user has one of its step."""
    if user.seen >> step & 1:
        return
    user.count += 1
    user.total += value
    user.maximum = max(user.maximum, value)
    user.seen |= 1 << step
    for at, other in enumerate(others):
        user.others[at] += other


def _rows(block: _Block) -> Iterator[tuple[int, ...]]:
    columns = [struct.unpack(f"<{len(numbers) // width}{FORMATS[width]}", numbers) for width, numbers in block.columns]
    return zip(*columns, strict=True)
