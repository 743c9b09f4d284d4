"""The survey's counts are those of the fold's oracle; a private selection moves by no more than is claimed."""

import math
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import date
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hatcast.lab.survey.counts import Counts, busy_cells, capped_counts, noisy_counts
from hatcast.lab.survey.rows import MemoryLimits, RowCollector, minutes_of, open_spill, slots_of
from hatcast.lab.survey.run import SURVEYED, Survey, SurveyJob, survey
from hatcast.stream.errors import RecordingError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Recorded, jsonl
from tests.folding import PSEUDONYMS
from tests.laws import fold_oracle, survey_oracle
from tests.laws.fold_logs import Case, Log, cases
from tests.replayed import policy_of
from tests.support import Scripted

few = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
SMALL = MemoryLimits(chunk_rows=7, part_rows=5)
ALL_DAYS = date(2, 1, 1), date(9998, 12, 31)


def job_of(case: Case, path: Path, users: Fraction) -> SurveyJob:
    return SurveyJob([path], jsonl.FORMAT, case.policy, None, users, case.now, lambda _, __: None, SMALL)


@few
@given(cases(mixed=False), st.fractions(0, 3, max_denominator=4), st.randoms(use_true_random=False))
def test_a_survey_is_what_the_oracle_of_the_fold_counts_in_whatever_order_records_stand(
    case: Case, users: Fraction, chance: Random
) -> None:
    log = survey_oracle.as_recorded(case.log)
    shuffled = chance.sample(log, len(log))
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(case, survey_oracle.written(Path(folder) / "log.jsonl", shuffled), users)
        expected = fold_oracle.fold(survey_oracle.rules_of(case, 7), case.now, log)
        if not expected.contributions:
            with pytest.raises(RecordingError):
                survey(job)
            return
        found = survey(job)
    outcomes = expected.outcomes
    counted = {**outcomes, "accepted": outcomes["accepted"] + outcomes["duplicate"]}
    assert found.outcomes == {name: n for name, n in counted.items() if n and name != "duplicate"}
    assert [each.resolution for each in found.resolutions] == [*SURVEYED]
    for resolution in SURVEYED:
        state = fold_oracle.fold(survey_oracle.rules_of(case, resolution), case.now, log)
        is_as_counted(found, resolution, state)
        busy = the_busy(state, slots_of(case.policy), users, found.number_of_days)
        assert next(each for each in found.resolutions if each.resolution == resolution).busy_cells == len(busy)
        assert resolution != case.policy.h3_resolution or found.busy == busy
        assert resolution != case.policy.h3_resolution or found.cells == sorted({key[2] for key in state.contributions})


def the_busy(state: fold_oracle.State, slots: list[int], users: Fraction, days: int) -> list[int]:
    sums = Counter((cell, minutes_of(slot)) for _, slot, cell, _ in state.contributions)
    cells = sorted({cell for cell, _ in sums})
    return [cell for cell in cells if slots and all(Fraction(sums[cell, slot], days) > users for slot in slots)]


def is_as_counted(found: Survey, resolution: int, state: fold_oracle.State) -> None:
    each = next(one for one in found.resolutions if one.resolution == resolution)
    keys = state.contributions
    users = Counter((day, slot, cell) for day, slot, cell, _ in keys)
    assert each.users == Counter(users.values())
    assert each.readings == Counter(count for count, *_ in keys.values())
    readings: Counter[tuple[str, str, int]] = Counter()
    for (day, slot, cell, _), (count, *_) in keys.items():
        readings[day, slot, cell] += count
    assert each.hat_readings == Counter(readings.values())
    assert each.cell_slots == len({(slot, cell) for _, slot, cell in users})
    assert each.hats_per_user_day == Counter(Counter((day, user) for day, _, _, user in keys).values())
    assert (each.cells, each.hats) == (len({cell for _, _, cell in users}), len(users))
    assert found.number_of_days == len({day for day, *_ in keys})


@few
@given(cases(mixed=False), st.integers(1, 4))
def test_counts_of_a_private_selection_are_those_of_the_first_k_pairs_of_each_user_day(case: Case, cap: int) -> None:
    rules = survey_oracle.rules_of(case, 7)
    pairs = survey_oracle.entered(rules, case.now, case.log)
    candidates = sorted({cell for _, _, cell, _ in pairs})[:2]
    sums = survey_oracle.capped_sums(pairs, candidates, cap)
    slots = slots_of(case.policy)
    assert counts_of(case.policy, case.now, case.log, candidates, cap).tolist() == [
        [sums[cell, slot] for slot in slots] for cell in candidates
    ]


@few
@given(cases(mixed=False), st.integers(1, 3), st.data())
def test_one_user_day_less_moves_at_most_k_counts_by_one_each(case: Case, cap: int, data: st.DataObject) -> None:
    rules = survey_oracle.rules_of(case, 7)
    pairs = survey_oracle.entered(rules, case.now, case.log)
    candidates = sorted({cell for _, _, cell, _ in pairs})
    if not candidates:
        return
    user_day = data.draw(st.sampled_from(sorted({(user, day) for day, _, _, user in pairs})))
    before = counts_of(case.policy, case.now, case.log, candidates, cap)
    less = survey_oracle.without_user_day(rules, case.log, *user_day)
    moved = before - counts_of(case.policy, case.now, less, candidates, cap)
    assert moved.min() >= 0
    assert moved.max() <= 1
    own = sum((user, day) == user_day for day, _, _, user in pairs)
    assert moved.sum() == min(cap, own), "no other user gains or loses, and the cap is used"


def counts_of(policy: Policy, now: int, log: Log, candidates: list[int], cap: int) -> Counts:
    rows = RowCollector(replace(policy, cells=frozenset(candidates)), PSEUDONYMS, (7,), ALL_DAYS, now)
    with open_spill((7,), part_rows=5) as spill:
        for arrival, value in log:
            rows.add(Recorded(value or b"", jsonl.decode(value or b""), arrival))
            if rows.pending == 7:
                spill.write(rows.take())
        spill.write(rows.take())
        return capped_counts(spill, spill.dates(), candidates, slots_of(policy), cap)


def test_what_becomes_of_a_record_without_an_arrival_depends_on_itself_alone() -> None:
    """`batch` would take it as arrived with the record before it, which may be another user's."""
    lost = Recorded(b"", jsonl.decode(b'{"vehicle":"a","time":1641124800000,"lat":21.2,"lon":72.8,"speed":30.0}'), None)
    late = Recorded(
        b"", jsonl.decode(b'{"vehicle":"b","time":1641124800000,"lat":21.2,"lon":72.8,"speed":30.0}'), 1_700_000_000_000
    )
    outcomes = []
    for log in ([lost], [late, lost], [lost, late]):
        rows = RowCollector(policy_of(), PSEUDONYMS, (7,), None, 1_800_000_000_000)
        for recorded in log:
            rows.add(recorded)
        assert rows.outcomes["late"] == len(log) - 1
        outcomes.append(rows.outcomes["accepted"])
    assert outcomes == [1, 1, 1]


@given(
    st.lists(st.lists(st.integers(-50, 400), min_size=2, max_size=2), min_size=1, max_size=8),
    st.fractions(0, 40, max_denominator=7),
    st.integers(1, 40),
)
def test_a_cell_is_kept_if_its_mean_is_above_the_bound_in_every_slot(
    sums: list[list[int]], users: Fraction, days: int
) -> None:
    cells = [*range(len(sums), 0, -1)]
    kept = [cell for cell, row in zip(cells, sums, strict=True) if all(Fraction(each, days) > users for each in row)]
    assert busy_cells(cells, np.array(sums, np.int64), users, days) == sorted(kept)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=3),
    st.sampled_from([0.1, 0.5, 1.0, 3.0]),
    st.data(),
)
def test_every_choice_of_cells_is_about_as_likely_with_a_user_day_as_without(
    counts: list[tuple[int, int]], epsilon: float, data: st.DataObject
) -> None:
    """Exact chances of every choice, of neighbours that differ in K numbers by 1."""
    pairs = [(cell, slot) for cell in range(len(counts)) for slot in range(2)]
    entered = data.draw(st.sets(st.sampled_from(pairs), min_size=1))
    before = np.array(counts, np.int64)
    after = before.copy()
    for pair in entered:
        after[pair] += 1
    worst = greatest_loss(before, after, scale_for(before, len(entered), epsilon))
    assert worst <= epsilon * (1 + 1e-9)


def test_noise_for_a_distance_of_1_would_lose_more_than_epsilon() -> None:
    """The mutant: each number for itself, as if a vehicle entered one HAT a day."""
    before = np.zeros((3, 2), np.int64)
    assert greatest_loss(before, before + 1, scale_for(before, 1, 1.0)) > 5
    assert greatest_loss(before, before + 1, scale_for(before, 6, 1.0)) <= 1


def scale_for(counts: Counts, cap: int, epsilon: float) -> float:
    return noisy_counts(counts, cap, 1, epsilon, Scripted([0] * counts.size)).scale


def greatest_loss(before: Counts, after: Counts, scale: float) -> float:
    """The greatest |log ratio| of chances over all choices of cells; more than 40 users have to be in both slots."""

    def of(choice: tuple[bool, ...], counts: Counts) -> float:
        return sum(math.log(each_of(row, scale)[not kept]) for kept, row in zip(choice, counts.tolist(), strict=True))

    return max(abs(of(choice, before) - of(choice, after)) for choice in product([True, False], repeat=len(before)))


def each_of(row: list[int], scale: float) -> tuple[float, float]:
    """The chances that a cell is kept, and that it is not; both without a difference of nearly equal numbers."""
    (above, below), (other_above, other_below) = (sides(count, scale) for count in row)
    return above * other_above, below + above * other_below


def sides(count: int, scale: float) -> tuple[float, float]:
    """P(count + X > 40) and P(count + X <= 40) of the discrete Laplace X."""
    p, x = math.exp(-1 / scale), 40 - count
    tail = p**-x / (1 + p) if x < 0 else p ** (x + 1) / (1 + p)
    return (1 - tail, tail) if x < 0 else (tail, 1 - tail)


def test_a_slot_is_named_by_its_minutes() -> None:
    assert [minutes_of(name) for name in ("00:00", "09:15", "23:45")] == [0, 555, 1425]
