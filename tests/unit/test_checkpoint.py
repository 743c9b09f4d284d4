"""What is written to the store, and what is read back; the law of cuts is in tests/laws/test_fold.py."""

import h3.api.basic_int as h3

from hatcast.stream.fold.checkpoint import StoredPartition, restore, take_changes, totals
from hatcast.stream.fold.journal import MOST_ROWS
from hatcast.stream.fold.open_slots import CHUNK_USERS
from hatcast.stream.fold.packing import unpack, unpack_day
from tests.folding import DAY, HOUR, MINUTE, NOON, apply, contributions, entered, fold_of, record
from tests.replayed import policy_of

POLICY = policy_of(lateness="5m")
SLOT = "2022-01-02/12:00"
CELL = h3.int_to_str(h3.latlng_to_cell(21.2, 72.8, 7))
BUSES = [record(vehicle=f"bus-{number}") for number in range(2 * CHUNK_USERS + 10)]


def test_the_first_changes_are_everything() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, value) for value in BUSES])
    changes = take_changes(fold)
    assert changes.watermark == NOON
    assert changes.outcomes["accepted"] == len(BUSES)
    assert changes.slots == {SLOT: NOON + HOUR}
    assert changes.hats == {SLOT: {CELL: len(BUSES)}}
    assert [len(list(unpack(changes.chunks[SLOT, CELL, chunk]))) for chunk in range(3)] == [64, 64, 10]
    assert changes.days == {"2022-01-02": len(BUSES)}
    assert [len(unpack_day(changes.day_chunks["2022-01-02", chunk])) for chunk in range(3)] == [64, 64, 10]
    assert changes.days_over == {}


def test_the_next_changes_are_the_chunks_that_changed() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, value) for value in BUSES])
    take_changes(fold)
    apply(fold, [(NOON, record(vehicle="bus-70", time=NOON + 1000))])
    changes = take_changes(fold)
    assert set(changes.chunks) == {(SLOT, CELL, 1)}
    assert changes.day_chunks == {}  # no user entered one more HAT


def test_readings_beyond_a_block_of_the_journal_are_in_chunks_and_the_next_one_in_a_block() -> None:
    fold, again = fold_of(POLICY), fold_of(POLICY)
    buses = [f"bus-{number}" for number in range(MOST_ROWS // 3 + 1)]
    for time in range(NOON, NOON + 4000, 1000):  # rows of the last second are not kept: there are too many for a block
        apply(fold, [(time, record(vehicle=bus, time=time)) for bus in buses])
    assert fold.outcomes["accepted"] == 4 * len(buses)
    written = take_changes(fold, journal=True)
    assert written.block is None
    chunks = [written.chunks[SLOT, CELL, chunk] for chunk in range(-(-len(buses) // CHUNK_USERS))]
    apply(fold, [(NOON + 4000, record(vehicle="bus-70", time=NOON + 4000))])
    added = take_changes(fold, journal=True)
    assert added.block is not None
    assert added.chunks == {}
    restore(
        again, StoredPartition(added.watermark, added.outcomes, {(SLOT, CELL): chunks}, {}, journal=[added.block[1]])
    )
    assert contributions(again) == contributions(fold)


def test_without_records_nothing_changed_but_clock_and_outcomes_are_there() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, value) for value in BUSES])
    take_changes(fold)
    changes = take_changes(fold)
    assert (changes.slots, changes.hats, changes.chunks, changes.days, changes.day_chunks) == ({}, {}, {}, {}, {})
    assert (changes.watermark, changes.outcomes) == (NOON, fold.outcomes)


def test_a_day_that_is_over_is_to_be_deleted_once() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, value) for value in BUSES])
    take_changes(fold)
    apply(fold, [(NOON + DAY, None)])
    assert take_changes(fold).days_over == {"2022-01-02": 3}
    fold.drop_closed()
    assert (fold.periods, fold.slots, take_changes(fold).days_over) == ({}, {}, {})


def test_what_is_restored_is_what_was_stored_in_the_same_order() -> None:
    fold, again = fold_of(POLICY), fold_of(POLICY)
    apply(fold, [(NOON, value) for value in BUSES])
    changes = take_changes(fold)
    restore(
        again,
        StoredPartition(
            changes.watermark,
            changes.outcomes,
            {(SLOT, CELL): [changes.chunks[SLOT, CELL, chunk] for chunk in range(3)]},
            {"2022-01-02": [changes.day_chunks["2022-01-02", chunk] for chunk in range(3)]},
        ),
    )
    assert (again.watermark, again.outcomes) == (fold.watermark, fold.outcomes)
    assert list(contributions(again).items()) == list(contributions(fold).items())
    assert list(entered(again).items()) == list(entered(fold).items())
    ordinals = [known.ordinal for known in again.slots[SLOT].hats[h3.str_to_int(CELL)].users.values()]
    assert ordinals == list(range(len(BUSES)))


def test_slots_that_the_stored_clock_has_closed_stay_out() -> None:
    fold, again = fold_of(POLICY), fold_of(POLICY)
    apply(fold, [(NOON, record()), (NOON + 65 * MINUTE, None)])
    changes = take_changes(fold)
    chunks = {(SLOT, CELL): [changes.chunks[SLOT, CELL, 0]]}
    restore(again, StoredPartition(changes.watermark, changes.outcomes, chunks, {}))
    assert contributions(again) == {}


def test_totals_are_those_of_the_goldens() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, record()), (NOON, record(vehicle="other", speed=50)), (NOON, record(time=NOON + 1000))])
    assert totals(fold.slots.values()) == {f"{CELL}/{SLOT}": (2, 3, 110_000, 50_000)}
