"""Laws of the fold: it is what the spec says (an oracle in Fractions), and no cut or restart of it shows."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import hatcast.stream.fold.partition_fold
import hatcast.stream.fold.reading_fold
from hatcast.stream.fold.checkpoint import FoldChanges, StoredPartition, restore, take_changes
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.readings.reading import Outcome
from tests.folding import PSEUDONYMS, apply, contributions, entered, occurring, other_totals
from tests.laws import fold_oracle
from tests.laws.fold_logs import Case, cases
from tests.support import examples

ANY_TIME = 1 << 62  # ms UTC, later than every record
often = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def as_the_oracle_says(case: Case) -> bool:
    """Outcomes, clock, every contribution with its intervals, and how many HATs every user entered."""
    expected = fold_oracle.fold(case.rules(), case.now, case.log)
    fold = case.empty_fold()
    apply(fold, case.log, case.now)
    table: dict[tuple[str, int, bytes], tuple[int, int, int, int]] = {}
    hats_entered: dict[tuple[str, bytes], int] = {}
    others: dict[tuple[str, int, bytes], tuple[int, ...]] = {}
    for (date, slot, cell, vehicle), (count, total, greatest, seen) in expected.contributions.items():
        day = fold.limit.period_of(date)
        user = PSEUDONYMS.of(vehicle, day)
        table[f"{date}/{slot}", cell, user] = (count, total, greatest, sum(1 << step for step in seen))
        hats_entered[day, user] = hats_entered.get((day, user), 0) + 1
        sums = expected.others[date, slot, cell, vehicle]
        lower = (value.lower for value in case.policy.released_values[1:])
        others[f"{date}/{slot}", cell, user] = tuple(s - count * low for s, low in zip(sums, lower, strict=True))
    assert other_totals(fold) == others
    return (occurring(fold), fold.watermark, contributions(fold), {k: n for k, n in entered(fold).items() if n}) == (
        dict(expected.outcomes),
        expected.clock,
        table,
        hats_entered,
    )


@often
@given(cases())
def test_the_fold_is_what_the_spec_says(case: Case) -> None:
    assert as_the_oracle_says(case)


@often
@given(cases(several=True))
def test_the_fold_of_several_values_is_what_the_spec_says(case: Case) -> None:
    assert as_the_oracle_says(case)


@often
@given(cases(horizon=True))
def test_the_fold_of_running_sums_is_what_the_spec_says(case: Case) -> None:
    assert as_the_oracle_says(case)


@often
@given(cases(several=True), st.lists(st.integers(0, 80), min_size=1, max_size=3), st.booleans())
def test_a_restart_does_not_show_in_several_values(case: Case, cuts: list[int], journal: bool) -> None:  # noqa: FBT001 - hypothesis' way
    whole, first, second, store, cut = case.empty_fold(), case.empty_fold(), case.empty_fold(), Store(), 0
    apply(whole, case.log, case.now)
    for end in sorted(cuts):
        apply(first, case.log[cut:end], case.now)
        store.write(take_changes(first, journal=journal))
        cut = end
    restore(second, store.read())
    apply(second, case.log[cut:], case.now)
    first.drop_closed()
    assert second.outcomes == whole.outcomes
    left = other_totals(second)
    assert left == {key: totals for key, totals in other_totals(whole).items() if key in left}
    assert contributions(second) == {key: known for key, known in contributions(whole).items() if key in left}


OF_REPORTS = {Outcome.OTHER_POLICY, Outcome.BAD_SIGNATURE}  # devices' reports alone have them


@pytest.mark.parametrize("outcome", [each for each in Outcome if each not in OF_REPORTS])
def test_the_logs_that_are_tried_meet_every_outcome(outcome: Outcome) -> None:
    find(
        cases(horizon=outcome is Outcome.OVER_PARTICIPATION),
        lambda case: fold_oracle.fold(case.rules(), case.now, case.log).outcomes[outcome.value] > 0,
        settings=settings(max_examples=1000, phases=[Phase.generate], deadline=None, database=None),
    )


MUTANTS: dict[str, Callable[[Case], Case]] = {
    "a slot that closes a millisecond late": lambda case: with_policy(case, lateness_ms=case.policy.lateness_ms + 1),
    "a cap of one more": lambda case: with_policy(case, max_hats_per_day=case.policy.max_hats_per_day + 1),
    "longer intervals": lambda case: with_policy(case, min_interval_ms=case.policy.min_interval_ms + 1),
    "a second of hurry": lambda case: with_policy(case, max_ahead_ms=case.policy.max_ahead_ms - 1000),
    "zeros kept or not": lambda case: with_policy(case, drop_zero=not case.policy.drop_zero),
    "days before the first one kept": lambda case: with_policy(case, from_date=None),
    "the other partitioner": lambda case: replace(
        case, partitioner="crc32" if case.partitioner == "murmur2" else "murmur2"
    ),
}


def with_policy(case: Case, **changes: object) -> Case:
    return replace(case, policy=replace(case.policy, **changes))  # type: ignore[arg-type]  # the keys are of many types


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_fold_with_another_rule_is_told_apart(mutant: Callable[[Case], Case]) -> None:
    def differs(case: Case) -> bool:
        fold = mutant(case).empty_fold()
        apply(fold, case.log, case.now)
        return occurring(fold) != dict(fold_oracle.fold(case.rules(), case.now, case.log).outcomes)

    find(
        cases(),
        differs,
        settings=settings(max_examples=1000, phases=[Phase.generate], deadline=None, database=None),
    )


@often
@given(cases() | cases(horizon=True), st.lists(st.integers(0, 40)))
def test_lists_of_any_length_fold_to_the_same(case: Case, cuts: list[int]) -> None:
    whole, cut = case.empty_fold(), case.empty_fold()
    undecodable = apply(whole, case.log, case.now)
    found, at = [], 0
    for end in [*sorted(min(one, len(case.log)) for one in cuts), len(case.log)]:
        found += [at + index for index in apply(cut, case.log[at:end], case.now)]
        at = end
    assert (found, cut.watermark, cut.outcomes) == (undecodable, whole.watermark, whole.outcomes)
    assert contributions(cut) == contributions(whole)


@often
@given(cases())
def test_look_up_tables_that_are_full_change_nothing(case: Case) -> None:
    whole, small = case.empty_fold(), case.empty_fold()
    apply(whole, case.log, case.now)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hatcast.stream.fold.partition_fold, "_VEHICLE_CACHE_SIZE", 1)
        patched.setattr(hatcast.stream.fold.reading_fold, "CACHE_SIZE", 1)
        apply(small, case.log, case.now)
    assert (small.outcomes, contributions(small)) == (whole.outcomes, contributions(whole))


Allowed = Callable[[Fold, int, list[int]], int]


def folded_by_a_worker(case: Case, clocks: list[int], allowed: Allowed = Fold.count_within_max_ahead) -> Fold:
    """The log as a worker folds it whose clock says these times, one at each look, and in the end one that is right."""
    fold, at = case.empty_fold(), 0
    for now in [*clocks, ANY_TIME]:
        timestamps = [arrival for arrival, _ in case.log[at:]]
        count = allowed(fold, now, timestamps)
        apply(fold, case.log[at : at + count], now)
        at += count
    assert at == len(case.log)
    return fold


def is_of_the_log(case: Case, fold: Fold) -> bool:
    """Whether a fold is what the log says, whatever any clock said meanwhile."""
    whole = case.empty_fold()
    apply(whole, case.log, ANY_TIME)
    return (fold.outcomes, fold.watermark, contributions(fold)) == (
        whole.outcomes,
        whole.watermark,
        contributions(whole),
    )


def some_clocks(case: Case) -> st.SearchStrategy[list[int]]:
    """Behind the log, within it, and ahead of it, in any order: a clock may be set back as well."""
    return st.lists(st.sampled_from([0, case.now, *(arrival - 1 for arrival, _ in case.log)]), max_size=12)


@often
@given(cases(), st.data())
def test_what_a_workers_clock_says_does_not_show(case: Case, data: st.DataObject) -> None:
    fold = folded_by_a_worker(case, data.draw(some_clocks(case)))
    assert is_of_the_log(case, fold)
    assert fold.outcomes[Outcome.ARRIVED_IN_FUTURE.value] == 0


def all_of_them(fold: Fold, now: int, timestamps: list[int]) -> int:
    """Nothing waits: what is dated ahead is handed over all the same, and rejected."""
    del fold, now
    return len(timestamps)


def those_that_are_not_ahead(fold: Fold, now: int, timestamps: list[int]) -> int:
    """A record that is ahead is passed over if the last of its frame is not."""
    return (
        len(timestamps)
        if Fold.count_within_max_ahead(fold, now, timestamps[-1:])
        else Fold.count_within_max_ahead(fold, now, timestamps)
    )


@pytest.mark.parametrize("mutant", [all_of_them, those_that_are_not_ahead])
def test_a_worker_that_does_not_wait_for_its_clock_is_told_apart(mutant: Allowed) -> None:
    def shows(case: Case) -> bool:
        behind = [case.log[len(case.log) // 2][0]] if case.log else []
        return not is_of_the_log(case, folded_by_a_worker(case, behind, mutant))

    find(cases(), shows, settings=settings(max_examples=1000, phases=[Phase.generate], deadline=None, database=None))


class Store:
    """What a checkpoint writes: absolute values, as agents/redis/checkpoint.lua writes them."""

    def __init__(self) -> None:
        self.clock: int | None = None
        self.outcomes: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.hats: dict[tuple[str, str], int] = {}
        self.chunks: dict[tuple[str, str, int], bytes] = {}
        self.days: dict[str, int] = {}
        self.day_chunks: dict[tuple[str, int], bytes] = {}
        self.journal: dict[int, bytes] = {}

    def write(self, changes: FoldChanges) -> None:
        self.clock = changes.watermark
        self.outcomes |= changes.outcomes
        self.ends |= changes.slots
        self.hats |= {(slot, cell): users for slot, cells in changes.hats.items() for cell, users in cells.items()}
        self.chunks |= changes.chunks
        if changes.ends_journal:
            self.journal.clear()
        if changes.block is not None:
            number, packed = changes.block
            self.journal[number] = packed
        self.days |= changes.days
        self.day_chunks |= changes.day_chunks
        for date, chunks in changes.days_over.items():
            self.days.pop(date, None)
            for chunk in range(chunks):
                self.day_chunks.pop((date, chunk), None)

    def read(self) -> StoredPartition:
        return StoredPartition(
            watermark=self.clock,
            outcomes=self.outcomes,
            hats={hat: [packed for key, packed in sorted(self.chunks.items()) if key[:2] == hat] for hat in self.hats},
            days={
                day: [packed for key, packed in sorted(self.day_chunks.items()) if key[0] == day] for day in self.days
            },
            journal=[packed for _, packed in sorted(self.journal.items())],
        )


@often
@given(
    cases() | cases(horizon=True),
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["go on", "forget", "restart", "crash"]), st.booleans()),
    ),
)
def test_checkpoints_forgetting_and_restarts_do_not_show(case: Case, cuts: list[tuple[int, str, bool]]) -> None:
    whole = case.empty_fold()
    apply(whole, case.log, case.now)
    expected = Store()
    expected.write(take_changes(whole))

    fold, store, at = case.empty_fold(), Store(), 0
    for end, then, journal in sorted(cuts, key=lambda cut: cut[0]):
        apply(fold, case.log[at:end], case.now)
        if then == "crash":  # what was folded since the last checkpoint is lost, and folded again
            fold = case.empty_fold()
            restore(fold, store.read())
            continue
        store.write(take_changes(fold, journal=journal))
        at = max(at, min(end, len(case.log)))
        assert_closed_are_in_chunks(case, store)
        if then == "forget":
            fold.drop_closed()
        if then == "restart":
            fold = case.empty_fold()
            restore(fold, store.read())
    apply(fold, case.log[at:], case.now)
    store.write(take_changes(fold))

    assert vars(store) == vars(expected)
    still_open = {key for key, slot in whole.slots.items() if (whole.watermark or 0) < slot.closes_ms}
    assert of_slots(fold, still_open) == of_slots(whole, still_open)


def assert_closed_are_in_chunks(case: Case, store: Store) -> None:
    """A release of a slot that the stored watermark has closed reads the chunks, not the journal."""
    fold = case.empty_fold()
    with_journal, without = store.read().open_hats(), replace(store.read(), journal=()).open_hats()
    for (key, cell), hat in with_journal.items():
        if (store.clock or 0) >= fold.slot_named(key).closes_ms:
            assert without[key, cell].users == hat.users


@often
@given(cases(), st.integers(0, 40), st.integers(0, 40))
def test_readings_folded_while_a_checkpoint_is_written_are_in_chunks_once_their_slot_has_closed(
    case: Case, first: int, second: int
) -> None:
    fold, store = case.empty_fold(), Store()
    apply(fold, case.log[:first], case.now)
    changes = take_changes(fold, journal=True)
    apply(fold, case.log[first : first + second], case.now)  # before the answer of the store
    store.write(changes)
    fold.drop_closed()
    store.write(take_changes(fold, journal=True))
    assert_closed_are_in_chunks(case, store)


def of_slots(fold: Fold, keys: set[str]) -> dict[tuple[str, int, bytes], tuple[int, int, int, int]]:
    return {hat: known for hat, known in contributions(fold).items() if hat[0] in keys}
