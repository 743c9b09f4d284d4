"""The checker's rules about running sums, and about values besides the speed: each of them can be broken."""

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import pytest

from tests.faults import test_check as of_hats
from tests.faults.check import violations
from tests.faults.facts import NANO, Ledger, Seen
from tests.faults.test_check import DATE, OVER, release_id

EPSILON: Final = 10**5 * NANO
PROMISE: Final = replace(of_hats.PROMISE, epsilon=0, queries={"continual": EPSILON}, cells=3)
TRUE: Final[dict[str, Mapping[str, Any]]] = {
    release_id(hat): {
        "release_id": release_id(hat),
        "status": "released",
        "seq": seq,
        "date": DATE,
        "cell": hat.partition("/")[0],
        "end": f"{DATE}T{hat.rpartition('/')[2]}",
        "running": {"horizon": DATE, "count": 2 * seq, "sum": {"value": 40.0 * seq, "sd": 0.01}},
    }
    for seq, hat in enumerate(OVER, start=1)
}
LOG: Final = replace(
    of_hats.LOG, releases={name: json.loads(json.dumps(each), parse_float=Fraction) for name, each in TRUE.items()}
)
FIRST, *_, LAST = TRUE


def seen(changes: Mapping[str, Mapping[str, Any]] = MappingProxyType({}), *, lost: bool = False) -> Seen:
    """All is well, but for these records; lost: Redis has lost data."""
    well = of_hats.seen()
    records = {name: json.dumps({**each, **changes.get(name, {})}).encode() for name, each in TRUE.items()}
    ledgers = {DATE: Ledger(0, 0, len(OVER), {"continual": (3, EPSILON)})}
    published = {name: [value] for name, value in records.items()}
    return replace(well, published=published, stored=records, ledgers=ledgers, announced=ledgers, lost=lost)


def with_sum(name: str, value: float, count: int) -> Seen:
    return seen({name: {"running": {"horizon": DATE, "count": count, "sum": {"value": value, "sd": 0.01}}}})


def rules(found: Seen) -> set[str]:
    return {violation.rule for violation in violations(found, LOG, PROMISE)}


def test_sums_that_are_the_logs_and_a_horizon_that_ends_after_a_loss_have_no_violations() -> None:
    assert violations(seen(), LOG, PROMISE) == []
    ended = {name: {"status": "incomplete", "running": {"horizon": DATE}} for name in list(TRUE)[2:]}
    assert violations(seen(ended, lost=True), LOG, PROMISE) == []
    assert rules(seen(ended)) == {"final"}


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (with_sum(FIRST, 40.5, 2), "true value"),
        (with_sum(FIRST, 40.0, 3), "true value"),
        (seen({FIRST: {"status": "incomplete", "running": {"horizon": DATE}}}, lost=True), "final"),
        (seen({FIRST: {"status": "budget_exhausted", "running": {"horizon": DATE}}}, lost=True), "final"),
        (replace(seen(), published={name: each for name, each in seen().published.items() if name != LAST}), "final"),
        (replace(seen(), ledgers={DATE: Ledger(1, EPSILON, 4, {"continual": (3, EPSILON)})}), "charged"),
        (replace(seen(), ledgers={DATE: Ledger(0, 0, 4, {"continual": (2, EPSILON)})}), "reserved"),
    ],
)
def test_every_broken_promise_about_running_sums_is_found(broken: Seen, rule: str) -> None:
    assert rule in rules(broken)


@pytest.mark.parametrize(("delay", "rules"), [(90.0, set()), (90.03, {"true value"}), (None, {"true value"})])
def test_a_value_besides_the_speed_that_is_not_the_logs_is_found(delay: float | None, rules: set[str]) -> None:
    promise = replace(of_hats.PROMISE, grids={"delay": Fraction(1, 100)})
    true = {release_id(hat): {"values": [{"name": "delay", "mean": Fraction(90)}]} for hat in OVER}
    told = {} if delay is None else {"values": [{"name": "speed", "mean": 20.0}, {"name": "delay", "mean": delay}]}
    records = {
        release_id(hat): json.dumps({**json.loads(of_hats.record(hat, seq)), **told}).encode()
        for seq, hat in enumerate(OVER, start=1)
    }
    published = {name: [value] for name, value in records.items()}
    found = replace(of_hats.seen(), published=published, stored=records)
    assert {each.rule for each in violations(found, replace(of_hats.LOG, releases=true), promise)} == rules
