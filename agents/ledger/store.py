"""A store of a ledger, and how a decision is made in it."""

import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.rows import NONCES
from hatcast.stream.ledger.view import Decision, RowChanges, Unread, View, Wanted, merged, number_of

R = TypeVar("R")

NONCE_BYTES: Final = 16


class Store(Protocol):
    """The rows of one domain."""

    async def read(self, wanted: Wanted) -> View:
        """Return rows of one moment."""
        ...

    async def apply(self, changes: RowChanges) -> bool:
        """Apply all changes if all of their conditions hold; else change nothing and return False: it is stale."""
        ...


async def decide(
    store: Store,
    wanted: Wanted,
    decision: Callable[[View], Decision[R]],
    on_stale: Callable[[int], Awaitable[None]] | None = None,
) -> R:
    """Make a decision and apply it; make it again where the rows have changed since they were read.

    wanted     rows that it reads for certain; others are read when it needs them
    on_stale   called with the number of applies that were stale, before the next read
    Errors of the decision pass through: then nothing was changed.
    """
    stale = 0
    while True:
        view = await store.read(wanted)
        try:
            decided = decision(view)
        except Unread as more:
            wanted = merged(wanted, {more.key: more.fields})
            continue
        if decided.changes.is_empty or await store.apply(decided.changes):
            return decided.result
        stale += 1
        if on_stale is not None:
            await on_stale(stale)


def with_nonces(changes: RowChanges) -> RowChanges:
    """Return changes with a fresh random value for each nonce that they replace."""
    if not changes.nonces:
        return changes
    drawn: dict[str, bytes | None] = {name: secrets.token_bytes(NONCE_BYTES) for name in changes.nonces}
    return replace(changes, set={**changes.set, NONCES: drawn}, nonces={})


def at_once(decision: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that waits for nothing, such as a decision in a file."""
    try:
        decision.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise RuntimeError("it waits")


# Rows as this process left them: its next commit needs no read, since its apply compares all that it is decided from.
#
# [docs/proofs.md, "One ledger", step 12]


_NEW: Final = ("releases:", "costs:")  # a commit rarely finds one that it names
_NOT_KEPT: Final = (*_NEW, "published:")
_NOTHING: Final = View({}, {})


class RecentRows:
    """A store with rows that one process mostly changes alone, such as those of a date whose HATs it commits."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known = _NOTHING  # of each date, and of the total, rows that go with their nonce
        self._is_alone = False  # the last read found what our own apply had left

    async def decide(
        self, wanted: Wanted, decision: Callable[[View], Decision[R]], on_stale: Callable[[int], Awaitable[None]]
    ) -> R:
        """Make a decision and apply it, as `decide` of a store; without a read where no other process was faster."""
        known, self._known = self._known, _NOTHING
        if known.asked.get(rows.TOTAL, ()) is None:  # a limit of all days binds this policy too: read all of it at once
            wanted = merged(wanted, {rows.TOTAL: None, rows.NONCES: {rows.TOTAL}})
        if self._is_alone and (guess := _guess(known, wanted)) is not None:
            known = _NOTHING
            try:
                decided = decision(guess)
            except Exception:  # of any kind: rows that are read decide whether it is one
                decided = None
            if decided is not None and not decided.changes.is_empty:
                absent = [(key, name) for key in wanted if key.startswith(_NEW) for name in wanted[key] or ()]
                decided.changes.equal.update(dict.fromkeys(absent))
                if await self.apply(guess, decided.changes):
                    return decided.result
        return await decide(_Turn(self, known), wanted, decision, on_stale)

    async def read(self, wanted: Wanted, known: View) -> View:
        """Read rows, and note whether they are as known."""
        view, nonces = await self.store.read(wanted), known.found.get(rows.NONCES, {})
        self._is_alone = all(view.get(rows.NONCES, each) == nonces.get(each) for each in wanted.get(rows.NONCES) or ())
        return view

    async def apply(self, view: View, changes: RowChanges) -> bool:
        """Apply changes that were decided from a view, and remember it with them."""
        changes = with_nonces(changes)
        done = await self.store.apply(changes)
        if done:
            self._known = _NOTHING if view.damaged else _after(view, changes)  # it is not taken for what is absent
        return done


@dataclass(slots=True)
class _Turn:
    """One decision on rows that are read."""

    recent: RecentRows
    known: View
    view: View = _NOTHING

    async def read(self, wanted: Wanted) -> View:
        self.view = await self.recent.read(wanted, self.known)
        return self.view

    async def apply(self, changes: RowChanges) -> bool:
        return await self.recent.apply(self.view, changes)


def _guess(known: View, wanted: Wanted) -> View | None:
    """Return the known rows, without those that a commit writes anew; None if others are wanted."""
    asked = dict(known.asked)
    for key, fields in wanted.items():
        if key.startswith(_NEW):
            asked[key] = fields
        elif not key.startswith(_NOT_KEPT):
            have = known.asked.get(key, ())
            if have is not None and (fields is None or not set(fields) <= set(have)):
                return None
    return View(asked, known.found)


def _after(view: View, changes: RowChanges) -> View:
    """Return the rows to remember, as an apply has left them."""
    gone = {*changes.deleted, *(key for key, _ in changes.raised)}
    asked = {key: of for key, of in view.asked.items() if not key.startswith(_NOT_KEPT) and key not in gone}
    found = {key: of for key, of in view.found.items() if key in asked}
    for key in asked.keys() & changes.set.keys():
        fields = {**found.get(key, {}), **changes.set[key]}
        found[key] = {name: value for name, value in fields.items() if value is not None}
    for (key, name), more in changes.add.items():
        if key in asked:
            numbers = found.get(key, {})
            found[key] = {**numbers, name: b"%d" % (number_of(key, numbers.get(name, b"0")) + more)}
    return View(asked, found)
