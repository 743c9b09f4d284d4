"""A store of a ledger, and how a decision is made in it."""

import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from hatcast.stream.ledger.rows import NONCES
from hatcast.stream.ledger.view import Changes, Decision, Unread, View, Wanted, merged

R = TypeVar("R")

NONCE_BYTES: Final = 16


class Store(Protocol):
    """The rows of one domain."""

    async def read(self, wanted: Wanted) -> View:
        """Return rows of one moment."""
        ...

    async def apply(self, changes: Changes) -> bool:
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


def with_nonces(changes: Changes) -> Changes:
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
