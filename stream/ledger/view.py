"""Input and output of a ledger decision: a view of rows at one moment, and a draft of changes over it.

A decision reads rows, decides without waiting for anything, and returns changes with conditions. A store applies the
changes if all conditions hold, or nothing: then the decision is made again from fresh rows.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from hatcast.stream.checksums import without_checksum
from hatcast.stream.ledger.rows import NONCES, ledger

R = TypeVar("R")

Wanted = Mapping[str, Collection[str] | None]  # key -> fields to read; None: all of them

_MOST_DIGITS: Final = 25
_LEAST_TOO_LARGE: Final = 10**_MOST_DIGITS


class DamagedRow(ValueError):
    """A row holds a value that hatcast did not write: nothing is decided from it, and nothing overwrites it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class TooLarge(Exception):
    """A number would have more digits than a row can have."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Unread(Exception):
    """A decision needs rows that were not read: read them too, and decide again. They never count as empty."""

    def __init__(self, key: str, fields: Collection[str] | None) -> None:
        super().__init__(key)
        self.key = key
        self.fields = fields


@dataclass(frozen=True, slots=True)
class View:
    """Rows of one moment."""

    asked: Wanted  # what was read: of another key or field nothing is known
    found: Mapping[str, dict[str, bytes]]  # key -> field -> value, of what is stored
    damaged: Collection[str] = ()  # keys of another type: they reject what needs them, and nothing else

    def get(self, key: str, name: str) -> bytes | None:
        """Return a value; None if it is not stored. Raises Unread, DamagedRow."""
        if key in self.damaged:
            raise DamagedRow(key)
        asked = self.asked.get(key, ())
        if asked is not None and name not in asked:
            raise Unread(key, (name,))
        return self.found.get(key, {}).get(name)

    def whole(self, key: str) -> Mapping[str, bytes]:
        """Return all fields of a key. Raises Unread, DamagedRow."""
        if key in self.damaged:
            raise DamagedRow(key)
        if self.asked.get(key, ()) is not None:
            raise Unread(key, None)
        return self.found.get(key, {})


@dataclass(slots=True)
class RowChanges:
    """Changes of rows, and the conditions under which they are applied.

    A field, or the membership in a set, is in `set`, `add` or `raised` of one apply at most.
    """

    # key -> field -> value that must be stored; None: none may be
    equal: dict[str, dict[str, bytes | None]] = field(default_factory=dict)
    # (key, field) -> number that must be stored, or a greater one
    at_least: dict[tuple[str, str], int] = field(default_factory=dict)
    # key -> field -> value; None deletes the field; of a set the members, with empty values
    set: dict[str, dict[str, bytes | None]] = field(default_factory=dict)
    # (key, field) -> number to add, negative too; the sum stays from 0 to 2^53
    add: dict[tuple[str, str], int] = field(default_factory=dict)
    # (key, field) -> number or date, stored unless a greater one is
    raised: dict[tuple[str, str], bytes] = field(default_factory=dict)
    deleted: dict[str, None] = field(default_factory=dict)  # keys to delete with all of their fields
    nonces: dict[str, None] = field(default_factory=dict)  # fields of NONCES to replace by fresh random values

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes: then nothing is applied, and no condition compared."""
        return not (self.set or self.add or self.raised or self.deleted or self.nonces)


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Result of a decision, and the changes that carry it out."""

    result: R
    changes: RowChanges


@dataclass(slots=True)
class Draft:
    """A view with changes over it: later steps of a decision read what earlier ones set."""

    view: View
    changes: RowChanges = field(default_factory=RowChanges)

    def get(self, key: str, name: str) -> bytes | None:
        """Return a value, as changed. Raises Unread."""
        changed = self.changes.set.get(key)
        if changed is not None and name in changed:
            return changed[name]
        return self.view.get(key, name)

    def whole(self, key: str) -> Mapping[str, bytes]:
        """Return all fields of a key, as changed. Raises Unread."""
        found = {**self.view.whole(key), **self.changes.set.get(key, {})}
        return {name: value for name, value in found.items() if value is not None}

    def number(self, key: str, name: str) -> int:
        """Return a number; 0 if none is stored. Raises DamagedRow, Unread."""
        found = self.get(key, name)
        return 0 if found is None else number_of(key, found)

    def has_member(self, key: str, member: str) -> bool:
        """Return whether a set has a member. Raises Unread."""
        return self.get(key, member) is not None

    def set(self, key: str, name: str, value: bytes | None) -> None:
        """Store a value; None deletes it."""
        self.changes.set.setdefault(key, {})[name] = value

    def set_number(self, key: str, name: str, number: int) -> None:
        """Store a number. Raises TooLarge."""
        self.set(key, name, digits_of(key, number))

    def add_member(self, key: str, member: str) -> None:
        """Add a member to a set."""
        self.set(key, member, b"")

    def raise_to(self, key: str, name: str, value: str) -> None:
        """Store a number or a date unless a greater one is stored. Dates and numbers are compared by length first."""
        known, raised = self.changes.raised.get((key, name), b""), value.encode()
        self.changes.raised[key, name] = max(known, raised, key=lambda each: (len(each), each))

    def delete(self, key: str) -> None:
        """Delete a key with all of its fields."""
        self.changes.deleted[key] = None

    def compare(self, key: str, name: str) -> bytes | None:
        """Return a value, and require that it is still the stored one when the changes are applied. Raises Unread."""
        found = self.view.get(key, name)
        self.changes.equal.setdefault(key, {})[name] = found
        return found

    def change_date(self, date: str) -> None:
        """Note that rows of a date change: whoever has read them decides again."""
        self.changes.nonces[date] = None

    def read_date(self, date: str) -> Mapping[str, bytes]:
        """Return the ledger of a date, and require that none of the date's rows has changed. Raises Unread."""
        self.compare(NONCES, date)
        return self.whole(ledger(date))


def number_of(key: str, value: bytes) -> int:
    """Parse a number as hatcast writes it: ASCII digits, at most 25. Raises DamagedRow."""
    if not value.isdigit() or len(value) > _MOST_DIGITS or (value[:1] == b"0" and value != b"0"):
        raise DamagedRow(key)
    return int(value)


def digits_of(key: str, number: int) -> bytes:
    """Return the digits of a number. Raises TooLarge, or DamagedRow for one below 0: its parts do not fit together."""
    if number < 0:
        raise DamagedRow(key)
    if number >= _LEAST_TOO_LARGE:
        raise TooLarge(key)
    return b"%d" % number


def text_of(key: str, value: bytes) -> str:
    """Return the text of a value. Raises DamagedRow."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DamagedRow(key) from None


def value_of(key: str, stored: bytes) -> bytes:
    """Return a value without its checksum. Raises DamagedRow."""
    value = without_checksum(key, stored)
    if value is None:
        raise DamagedRow(key)
    return value


def merged(wanted: Wanted, more: Wanted) -> Wanted:
    """Return both of two wanted sets of rows."""
    found = dict(wanted)
    for key, fields in more.items():
        known = found.get(key, ())
        found[key] = None if known is None or fields is None else {*known, *fields}
    return found
