"""Records under `add_remove`: nothing in them differs between two inputs, except through the noise."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.recovery.published_records import Contents
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.records.fields import Status
from hatcast.stream.release.hats import HatChunks, is_charged, release_of, undrawn_release
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import fineness_of
from tests.folding import NOW
from tests.support import Scripted
from tests.unit.test_policy_add_remove import CELLS, policy
from tools.schemas import schema_of

POLICY = policy(name="hidden")
SLOT = "2022-01-02/09:00"
SCHEMA = jsonschema.Draft202012Validator(schema_of("release"))
ANSWER = {"status", "mean", "raw", "unit", "noise", "interval95", "covers"}

readings = st.integers(1, 3600).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 65_000 * n)))
hats = st.lists(readings, max_size=200)


class Deaf(Scripted):
    """Noise that drowns everything: what it returns has nothing to do with what it is given."""

    def __init__(self, results: list[int]) -> None:
        super().__init__()
        self._results = iter(results)

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        self.asked.append((0, distance, epsilon))  # without the value: what is asked for may not depend on it either
        return Noisy(next(self._results), distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError


def chunks(hat: list[tuple[int, int]]) -> list[bytes]:
    rows = [Row(i.to_bytes(8, "big"), count, total, total // count, 1) for i, (count, total) in enumerate(hat)]
    return [pack(rows[at : at + 64]) for at in range(0, len(rows), 64)]


def record(hat: list[tuple[int, int]], noise: Scripted, now_ms: int = NOW, of: Policy = POLICY) -> bytes:
    release = release_of(of, Calendar(of), SLOT, CELLS[0], HatChunks(chunks(hat)), noise)
    return numbered(release.record(now_ms), 4711)


@given(hats, hats, st.tuples(st.integers(-(10**9), 10**9), st.integers(-5000, 5000)))
def test_where_noise_drowns_the_values_any_two_inputs_give_the_same_bytes(
    one: list[tuple[int, int]], other: list[tuple[int, int]], drawn: tuple[int, int]
) -> None:
    first, second = Deaf([*drawn]), Deaf([*drawn])
    assert record(one, first, NOW) == record(other, second, NOW + 12_345)
    assert first.asked == second.asked
    assert len(first.asked) == 2, "both sums are drawn for, also where nobody was"


@given(hats, st.integers(0, 199))
def test_of_neighbours_only_status_and_answer_differ(hat: list[tuple[int, int]], gone: int) -> None:
    neighbour = [each for i, each in enumerate(hat) if i != gone]
    records = [json.loads(record(each, Scripted([0, 0]))) for each in (hat, neighbour)]
    public = [{key: value for key, value in each.items() if key not in ANSWER} for each in records]
    assert public[0] == public[1]
    for each in records:
        answers = each.keys() & ANSWER
        assert answers == (ANSWER if each["status"] == "released" else {"status"})
        SCHEMA.validate(each)


def test_what_needs_counts_is_absent_and_the_time_is_that_of_the_slot() -> None:
    found = json.loads(record([(400, 400 * 30_000)] * 24, Scripted([0, 0])))
    assert found["status"] == "released"
    assert (found["raw"], found["noise"]) == (30.0, {"kind": "laplace_ratio"})
    assert not {"seq", "counts"} & found.keys()
    assert found["released_at"] == "2022-01-02T04:35:00.000Z"
    suppressed = json.loads(record([], Scripted([0, 0])))
    assert (suppressed["status"], suppressed["released_at"]) == ("suppressed", found["released_at"])


def suppressed(of: Policy) -> Any:
    return release_of(of, Calendar(of), SLOT, CELLS[0], HatChunks([]), Scripted([0, 0]))


@pytest.mark.parametrize("mutant", [None, "free"])
def test_what_was_drawn_is_charged_whatever_came_of_it(mutant: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant:
        monkeypatch.setattr("hatcast.stream.release.hats.is_charged", lambda status, _: status == Status.RELEASED)
    charged = suppressed(POLICY).charge == POLICY.epsilon_nano == 10**9
    assert charged == (mutant is None)
    assert undrawn_release(POLICY, Calendar(POLICY), SLOT, CELLS[0], Status.INCOMPLETE).charge == 0
    assert suppressed(POLICY).exhausted().charge == 0


def test_under_replace_what_is_suppressed_was_not_drawn_and_costs_nothing() -> None:
    assert {status for status in Status if is_charged(status, Relation.REPLACE)} == {Status.RELEASED}
    assert {status for status in Status if is_charged(status, Relation.ADD_REMOVE)} == {
        Status.RELEASED,
        Status.SUPPRESSED,
    }


CHARGES: list[tuple[Callable[[], Any], int]] = [
    (lambda: suppressed(POLICY), 10**9),
    (lambda: suppressed(POLICY).exhausted(), 0),
    (lambda: undrawn_release(POLICY, Calendar(POLICY), SLOT, CELLS[0], Status.INCOMPLETE), 0),
]


@pytest.mark.parametrize(("made", "charge"), CHARGES)
def test_a_record_that_is_read_back_from_the_topic_brings_its_charge_with_it(
    made: Callable[[], Any], charge: int
) -> None:
    release = made()
    value = numbered(release.record(NOW), 1)
    read = published_of(value, POLICY.policy_id, fineness_of(POLICY))
    assert (read.charge, read.seq, read.record) == (charge, 0, value)
    assert read.fineness == release.fineness > 0, "the same whatever came of it"
    assert (read.release_id, read.date, read.place) == (release.release_id, release.date, release.place)
    found = Contents()
    found.add_release(0, read)
    (span,) = found.spans.values()
    assert span.first_ms == span.last_ms == release.slot.start_ms


def test_under_replace_records_tell_nothing_about_slots() -> None:
    replaced = replace(POLICY, relation=Relation.REPLACE)
    value = numbered(undrawn_release(replaced, Calendar(replaced), SLOT, CELLS[0], Status.INCOMPLETE).record(NOW), 1)
    found = Contents()
    found.add_release(0, published_of(value, POLICY.policy_id, fineness_of(POLICY)))
    assert found.spans == {}
    assert json.loads(value)["seq"] == 1


def test_the_width_of_the_noise_has_nothing_to_do_with_who_is_there() -> None:
    few, many = Scripted([0, 0]), Scripted([0, 0])
    record([], few)
    record([(3600, 3600 * 65_000)] * 200, many)
    distances = [[(distance, epsilon) for _, distance, epsilon in each.asked] for each in (few, many)]
    assert distances[0] == distances[1]
    assert [value for value, _, _ in few.asked] == [0, 0]
    assert many.asked[1][0] == 200 * 40
    assert Fraction(many.asked[0][0]) == 200 * 40 * 32_500  # in steps of 0.001 km/h
