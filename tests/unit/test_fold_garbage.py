"""What the garbage collector sees of a fold: a scan stops all threads, also that of the worker's heartbeats."""

import gc
import tracemalloc
from typing import Final

from hatcast.stream.fold.reading_fold import Fold
from tests.folding import NOON, apply, fold_of, record
from tests.replayed import policy_of

USERS: Final = 5_000  # far more than the tuples and numbers that Python keeps for reuse


def full_fold() -> Fold:
    """A fold of users in HATs of their own and in one that all share."""
    fold = fold_of(policy_of())
    own = [record(vehicle=f"bus {user}", lat=user * 0.016, lon=10.0) for user in range(USERS)]
    shared = [record(vehicle=f"bus {user}", time=NOON + 10_000) for user in range(USERS)]
    apply(fold, [(NOON + 20_000, value) for value in (*own, *shared)])
    assert fold.outcomes["accepted"] == 2 * USERS
    fold.take_changed()
    return fold


def test_users_and_their_hats_are_not_scanned_by_the_garbage_collector() -> None:
    full_fold()  # fills caches
    gc.collect()
    before = len(gc.get_objects())
    fold = full_fold()
    gc.collect()
    assert len(gc.get_objects()) - before < USERS / 10
    assert sum(len(slot.hats) for slot in fold.slots.values()) > USERS / 2


def test_a_fold_that_is_dropped_frees_its_users_without_the_garbage_collector() -> None:
    full_fold()  # fills caches
    gc.collect()
    tracemalloc.start()
    try:
        gc.disable()
        before = tracemalloc.get_traced_memory()[0]
        fold = full_fold()
        held = tracemalloc.get_traced_memory()[0] - before
        del fold
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        gc.enable()
        tracemalloc.stop()
    assert held > 400 * USERS
    assert left < held / 10
