"""A store of a ledger, and how a decision is made in it."""

import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
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

    async def apply(self, changes: RowChanges) -> bool:
        """Apply all changes if all of their conditions hold; else change nothing and return False: it is stale.

        It draws the nonces: afterwards `changes.set` has them.
        """


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


def draw_nonces(changes: RowChanges) -> None:
    """Draw a fresh random value for each nonce that is replaced."""
    for name in changes.nonces:
        changes.set.setdefault(NONCES, {})[name] = os.urandom(NONCE_BYTES)
    changes.nonces.clear()


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
# [docs/proofs.md, "One ledger", step 13]
_NEW: Final = ("releases:", "costs:")  # a commit rarely finds one that it names
_NOT_KEPT: Final = (*_NEW, "published:")
_NOTHING: Final = View({}, {})


@dataclass(frozen=True, slots=True)
class _Known(View):
    """Rows that are remembered."""

    # key -> field, of records and of costs of places: they are taken as absent, and the apply compares that
    absent: dict[str, dict[str, None]] = field(default_factory=dict)

    def get(self, key: str, name: str) -> bytes | None:
        if key.startswith(_NEW):
            return self.absent.setdefault(key, {}).setdefault(name)
        return View.get(self, key, name)


class RecentRows:
    """A store with rows that one process mostly changes alone, such as those of a date whose HATs it commits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = _NOTHING  # of each date, and of the total, rows that go with their nonce
        self._is_alone = False  # the last read found what our own apply had left

    async def decide(
        self,
        wanted: Callable[[], Wanted],
        decision: Callable[[View], Decision[R]],
        on_stale: Callable[[int], Awaitable[None]],
    ) -> R:
        """Make a decision and apply it, as `decide` of a store; without a read where no other process was faster.

        wanted   called if rows are read
        """
        known, self._known = self._known, _NOTHING
        if self._is_alone:
            guess = _Known(known.asked, known.found)
            try:
                decided = decision(guess)
            except Exception:  # of any kind: rows that are read decide whether it is one
                decided = None
            if decided is not None and not decided.changes.is_empty:
                for key, absent in guess.absent.items():
                    decided.changes.equal.setdefault(key, {}).update(absent)
                if await self._store.apply(decided.changes):
                    self._known = _after(guess, decided.changes)
                    return decided.result
        read = wanted()
        if known.asked.get(rows.TOTAL, ()) is None:  # a limit of all days binds this policy too: read all of it at once
            read = merged(read, {rows.TOTAL: None, rows.NONCES: {rows.TOTAL}})
        nonces, last = known.found.get(rows.NONCES, {}), (_NOTHING, RowChanges())

        def noted(view: View) -> Decision[R]:
            nonlocal last
            asked = view.asked.get(rows.NONCES) or ()
            self._is_alone = all(view.get(rows.NONCES, each) == nonces.get(each) for each in asked)
            decided = decision(view)
            last = view, decided.changes
            return decided

        result = await decide(self._store, read, noted, on_stale)
        view, changes = last
        if not (changes.is_empty or view.damaged):  # a damaged row is not taken for an absent one
            self._known = _after(view, changes)
        return result


def _after(view: View, changes: RowChanges) -> View:
    """Return the rows to remember, as an apply has left them. The view is used up."""
    gone = {*changes.deleted, *(key for key, _ in changes.raised)}
    asked = {key: of for key, of in view.asked.items() if not key.startswith(_NOT_KEPT) and key not in gone}
    found = {key: view.found.get(key, {}) for key in asked}
    for key in asked.keys() & changes.set.keys():
        for name, value in changes.set[key].items():
            if value is None:
                found[key].pop(name, None)
            else:
                found[key][name] = value
    for (key, name), more in changes.add.items():
        if key in asked:
            found[key][name] = b"%d" % (number_of(key, found[key].get(name, b"0")) + more)
    return View(asked, found)
