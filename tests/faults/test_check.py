"""The checker by itself: it is quiet where all is well, and every rule can be broken.

The rules about queries over days, and that no rule was forgotten, are in tests/faults/test_check_answers.py.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import pytest

from tests.faults.check import violations
from tests.faults.facts import NANO, Ledger, Log, Promise, Seen

CELLS: Final = ("87608b0d2ffffff", "87608b0d3ffffff")
DATE: Final = "2022-01-02"
PROMISE: Final = Promise("p", 10**6 * NANO, cap=2, limit=10**9 * NANO, grid=Fraction(1, 1000), exact=True)
TIGHT: Final = Promise("p", NANO, cap=2, limit=2 * NANO, grid=Fraction(1, 1000), exact=False)
OVER: Final = [f"{cell}/{DATE}/{slot}" for slot in ("09:00", "10:00") for cell in CELLS]
OPEN: Final = f"{CELLS[0]}/{DATE}/11:00"
LOG: Final = Log(
    outcomes={"accepted": 41, "late": 1, "tick": 8},
    hats={**dict.fromkeys(OVER, (2, 8, 8 * 20_000 + 1, 30_000)), OPEN: (1, 9, 90_000, 10_000)},
    final=frozenset(OVER),
)


def release_id(hat: str) -> str:
    cell, date, slot = hat.split("/")
    return f"p/{date}T{slot}/{cell}"


def record(hat: str, seq: int, mean: float = 20.0, status: str = "released") -> bytes:
    cell, date, slot = hat.split("/")
    told = {"release_id": release_id(hat), "status": status, "seq": seq, "cell": cell, "date": date, "slot": slot}
    return json.dumps(told if status != "released" else {**told, "mean": mean}).encode()


def seen(epsilon: int = PROMISE.epsilon) -> Seen:
    """All is well."""
    records = {release_id(hat): record(hat, seq) for seq, hat in enumerate(OVER, start=1)}
    ledgers = {DATE: Ledger(len(OVER), len(OVER) * epsilon, len(OVER))}
    return Seen(
        published={name: [value, value] for name, value in records.items()},  # duplicates are not second values
        stored=records,
        ledgers=ledgers,
        announced=dict(ledgers),
        outcomes=dict(LOG.outcomes),
        open_hats={OPEN: LOG.hats[OPEN]},
        users={(DATE, "u1"): [(OVER[0], 3), (OPEN, 3)]},
    )


FIRST: Final = release_id(OVER[0])


def with_value(change: bytes, *, kept: bool = True, hat: str = OVER[0]) -> Seen:
    """Another value of a HAT on the topic, beside its own or in its place."""
    well = seen()
    name = release_id(hat)
    before = list(well.published.get(name, [])) if kept else []
    return replace(well, published={**well.published, name: [*before, change]})


def everywhere(change: bytes, hat: str = OVER[0]) -> Seen:
    """A record that the ledger and the topic agree on."""
    well = with_value(change, kept=False, hat=hat)
    return replace(well, stored={**well.stored, release_id(hat): change})


def with_ledger(**changes: Any) -> Seen:
    ledgers = {DATE: replace(seen().ledgers[DATE], **changes)}
    return replace(seen(), ledgers=ledgers, announced=ledgers)


def with_sealed_day(commits: int) -> Seen:
    """Of the day's records only their number is left."""
    return replace(seen(), stored={}, sealed={DATE: commits})


BROKEN: Final[dict[str, list[Callable[[], Seen]]]] = {
    "one value": [
        lambda: with_value(record(OVER[0], 1, 20.001)),
        lambda: with_value(record(OVER[1], 1), kept=False),
    ],
    "ledger first": [
        lambda: replace(seen(), stored={name: value for name, value in seen().stored.items() if name != FIRST}),
        lambda: with_value(record(OVER[0], 1, 20.001), kept=False),
        lambda: with_sealed_day(commits=len(OVER) - 1),
    ],
    "published": [lambda: replace(seen(), stored={**seen().stored, release_id(OPEN): record(OPEN, 5)})],
    "charged": [
        lambda: with_ledger(releases=3, epsilon_sum=3 * PROMISE.epsilon),
        lambda: with_ledger(epsilon_sum=3 * PROMISE.epsilon),
        lambda: replace(seen(), ledgers={}, announced={}),
    ],
    "announced": [
        lambda: replace(seen(), announced={}),
        lambda: replace(seen(), announced={DATE: Ledger(3, 3 * PROMISE.epsilon, 3)}),
    ],
    "numbered": [lambda: everywhere(record(OVER[0], 2)), lambda: with_ledger(sequence=3)],
    "final": [
        lambda: replace(seen(), published={name: v for name, v in seen().published.items() if name != FIRST}),
        lambda: everywhere(record(OPEN, 5), OPEN),
        lambda: everywhere(record(OVER[0], 1, status="suppressed")),
    ],
    "true value": [lambda: everywhere(record(OVER[0], 1, 20.003))],
    "open": [
        lambda: replace(seen(), open_hats={}),
        lambda: replace(seen(), open_hats={OPEN: (1, 10, 100_000, 10_000)}),
        lambda: replace(seen(), open_hats={**seen().open_hats, OVER[0]: LOG.hats[OVER[0]]}),
    ],
    "derived": [
        lambda: replace(seen(), derived={}),
        lambda: replace(seen(), derived={**LOG.hats, OPEN: (1, 10, 100_000, 10_000)}),
    ],
    "counted once": [lambda: replace(seen(), outcomes={**LOG.outcomes, "accepted": 42})],
    "cap": [
        lambda: replace(seen(), users={(DATE, "u1"): [(hat, 3) for hat in OVER[:3]]}),
        lambda: replace(seen(), users={(DATE, "u1"): [(OVER[0], 3), (OPEN, 4)]}),
        lambda: replace(seen(), users={(DATE, "u1"): [(OVER[0], 3), (OVER[0], 3)]}),
    ],
}


def test_a_run_that_kept_all_promises_has_no_violations() -> None:
    assert violations(seen(), LOG, PROMISE) == []
    assert violations(replace(seen(), derived=LOG.hats), LOG, PROMISE) == []


def test_a_sealed_day_needs_no_records_and_one_value_all_the_same() -> None:
    assert violations(with_sealed_day(len(OVER)), LOG, PROMISE) == []
    twice = replace(with_value(record(OVER[0], 1, 20.001)), stored={}, sealed={DATE: len(OVER)})
    assert {violation.rule for violation in violations(twice, LOG, PROMISE)} == {"one value"}


@pytest.mark.parametrize(("rule", "broken"), [(rule, broken) for rule, cases in BROKEN.items() for broken in cases])
def test_every_broken_promise_is_found_by_its_rule(rule: str, broken: Callable[[], Seen]) -> None:
    assert rule in {violation.rule for violation in violations(broken(), LOG, PROMISE)}


def test_a_day_whose_releases_cost_more_than_its_limit_is_found_and_exhausted_ones_cost_nothing() -> None:
    over = violations(seen(NANO), LOG, replace(TIGHT, limit=NANO))
    assert [violation.rule for violation in over] == ["within budget"]
    assert violations(seen(NANO), LOG, TIGHT) == []
    exhausted = {release_id(hat): record(hat, seq, status="budget_exhausted") for seq, hat in enumerate(OVER, start=1)}
    ledgers = {DATE: Ledger(0, 0, len(OVER))}
    well = replace(
        seen(NANO),
        published={name: [value] for name, value in exhausted.items()},
        stored=exhausted,
        ledgers=ledgers,
        announced=ledgers,
    )
    assert violations(well, LOG, replace(TIGHT, limit=0)) == []
    assert {violation.rule for violation in violations(well, LOG, PROMISE)} == {"final"}


def test_where_telemetry_lacked_records_hats_may_be_incomplete_and_none_is_passed_off_as_complete() -> None:
    def rules(found: Seen, log: Log) -> set[str]:
        return {violation.rule for violation in violations(found, log, PROMISE)}

    thinned = replace(LOG, thinned=frozenset({DATE}))
    incomplete = everywhere(record(OVER[0], 1, status="incomplete"))
    ledgers = {DATE: Ledger(3, 3 * PROMISE.epsilon, len(OVER))}
    found = replace(incomplete, ledgers=ledgers, announced=ledgers, outcomes={"accepted": 40, "tick": 8}, open_hats={})
    assert rules(found, thinned) == set()
    assert rules(found, LOG) == {"final", "open", "counted once"}
    assert rules(found, replace(LOG, thinned=frozenset({"2022-01-01"}))) == {"final", "open"}
    assert rules(everywhere(record(OVER[0], 1, 20.003)), thinned) == {"true value"}
    assert rules(everywhere(record(OVER[0], 1, status="suppressed")), thinned) >= {"final"}
    assert rules(replace(seen(), outcomes={**LOG.outcomes, "accepted": 42}), thinned) == {"counted once"}
