"""The checker's rules about queries over days: quiet where all is well, and each of them can be broken."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import pytest

from tests.faults import test_check as of_hats
from tests.faults import test_check_tracker as of_a_tracker
from tests.faults.check import RULES, violations
from tests.faults.facts import NANO, Ledger, Places, Seen
from tests.faults.test_check import DATE, OVER, release_id

BEFORE: Final = "2022-01-01"  # the first day of `both`; the second is DATE
EPSILON: Final = 10**6 * NANO
PROMISE: Final = replace(of_hats.PROMISE, queries={"daily": EPSILON, "both": EPSILON})
FULL: Final[Places] = (PROMISE.cap, EPSILON)
WAITING: Final = OVER[3]  # of a period that is not over
FIRST: Final = f"{release_id(OVER[0])}/daily"


def answer(name: str, seq: int, **changes: Any) -> bytes:
    """An answer as `hats.queries` has it; None takes a key away."""
    query = name.rpartition("/")[2]
    told = {
        "release_id": name,
        "status": "released",
        "seq": seq,
        "query": query,
        "date": DATE,
        "first_date": DATE if query == "daily" else BEFORE,
        "last_date": DATE,
        "user_days": 2,
        "mean": 20.0,
    }
    return json.dumps({key: value for key, value in (told | changes).items() if value is not None}).encode()


ANSWERS: Final = {
    name: answer(name, seq)
    for seq, name in enumerate((f"{release_id(hat)}/{query}" for hat in OVER for query in PROMISE.queries), start=5)
}
LOG: Final = replace(
    of_hats.LOG,
    answers={name: json.loads(value, parse_float=Fraction) for name, value in ANSWERS.items()},
    waiting=frozenset({WAITING}),
)


def seen() -> Seen:
    """All is well."""
    hats = of_hats.seen()
    ledgers = {
        BEFORE: Ledger(0, 0, 1, {"both": FULL}),
        DATE: Ledger(len(OVER), len(OVER) * EPSILON, len(OVER) + len(ANSWERS), {"daily": FULL, "both": FULL}),
    }
    return replace(
        hats,
        stored={**hats.stored, **ANSWERS},
        ledgers=ledgers,
        announced=ledgers,
        answered={name: [value, value] for name, value in ANSWERS.items()},
        kept={WAITING: LOG.hats[WAITING]},
    )


def on_topic(name: str, *values: bytes) -> Seen:
    """Other values of an answer on the topic; none: it is not there."""
    answered = {key: value for key, value in seen().answered.items() if key != name}
    return replace(seen(), answered={**answered, **({name: values} if values else {})})


def everywhere(name: str, seq: int = 5, **changes: Any) -> Seen:
    """A record that the ledger and the topic agree on."""
    record = answer(name, seq, **changes)
    return replace(on_topic(name, record), stored={**seen().stored, name: record})


def with_places(date: str, **places: Places) -> Seen:
    """What queries have on a day, wherever it is told."""
    ledgers = {**seen().ledgers, date: replace(seen().ledgers[date], queries=places)}
    return replace(seen(), ledgers=ledgers, announced=ledgers)


BROKEN: Final[dict[str, list[Callable[[], Seen]]]] = {
    "one value": [lambda: on_topic(FIRST, ANSWERS[FIRST], answer(FIRST, 5, mean=20.001))],
    "ledger first": [
        lambda: replace(seen(), stored={name: value for name, value in seen().stored.items() if name != FIRST}),
        lambda: on_topic(FIRST, answer(FIRST, 5, mean=20.001)),
    ],
    "published": [lambda: on_topic(FIRST)],
    "announced": [
        lambda: replace(seen(), announced={**seen().announced, BEFORE: Ledger(0, 0, 1, {"both": (0, EPSILON)})}),
        lambda: replace(seen(), announced={DATE: seen().announced[DATE]}),
    ],
    "numbered": [lambda: everywhere(FIRST, seq=1), lambda: everywhere(FIRST, seq=13)],
    "reserved": [
        lambda: with_places(DATE, both=FULL),
        lambda: with_places(DATE, both=FULL, daily=(0, EPSILON)),
        lambda: with_places(DATE, both=FULL, daily=(PROMISE.cap - 1, EPSILON)),
        lambda: with_places(DATE, both=FULL, daily=(PROMISE.cap, EPSILON - 1)),
        lambda: with_places(BEFORE),
        lambda: with_places(BEFORE, both=(0, EPSILON)),
        lambda: replace(seen(), ledgers={}, announced={}),
    ],
    "due": [lambda: on_topic(FIRST), lambda: everywhere(f"{release_id(WAITING)}/week")],
    "true answer": [
        lambda: everywhere(FIRST, mean=20.003),
        lambda: everywhere(FIRST, user_days=3),
        lambda: everywhere(FIRST, status="suppressed", reason="too_few_user_days", mean=None),
        lambda: everywhere(FIRST, status="budget_exhausted", user_days=None, mean=None),
        lambda: everywhere(FIRST, missing=[DATE]),
        lambda: everywhere(FIRST, speed_limit=40.0),
    ],
    "requested": [
        lambda: replace(seen(), accepted=[("over", DATE, 30.0)], limits={("over", DATE): 40.0}),
        lambda: replace(seen(), accepted=[("over", DATE, 30.0)]),
        lambda: replace(everywhere(FIRST, speed_limit=40.0), limits={("daily", DATE): 30.0}),
    ],
    "kept": [
        lambda: replace(seen(), kept={}),
        lambda: replace(seen(), kept={WAITING: (1, 8, 8 * 20_000 + 1, 30_000)}),
        lambda: replace(seen(), kept={hat: LOG.hats[hat] for hat in OVER}),
    ],
}


def test_answers_that_kept_all_promises_have_no_violations() -> None:
    assert violations(seen(), LOG, PROMISE) == []
    assert violations(seen(), LOG, replace(PROMISE, exact=False)) == []


@pytest.mark.parametrize(("rule", "broken"), [(rule, broken) for rule, cases in BROKEN.items() for broken in cases])
def test_every_broken_promise_about_answers_is_found_by_its_rule(rule: str, broken: Callable[[], Seen]) -> None:
    assert rule in {violation.rule for violation in violations(broken(), LOG, PROMISE)}


def test_what_is_reserved_counts_towards_the_limits_of_a_day_and_of_all_days() -> None:
    day, both = (2 + 2 * 2) * EPSILON, (2 + 2 * 2 + 2) * EPSILON  # K = 2: two HATs, and each query in two places
    assert violations(seen(), LOG, replace(PROMISE, limit=day, total=both)) == []
    for broken in (replace(PROMISE, limit=day - 1), replace(PROMISE, total=both - 1)):
        assert [violation.rule for violation in violations(seen(), LOG, broken)] == ["within budget"]


def test_a_query_may_have_no_room_on_a_day_where_all_days_have_a_limit_and_is_exhausted_then() -> None:
    promise = replace(PROMISE, exact=False, total=10**9 * NANO)
    changes = {"status": "budget_exhausted", "mean": None, "user_days": None}
    exhausted = {
        name: answer(name, json.loads(value)["seq"], **changes)
        for name, value in ANSWERS.items()
        if name.endswith("both")
    }
    ledgers = {**seen().ledgers, DATE: replace(seen().ledgers[DATE], queries={"daily": FULL, "both": (0, EPSILON)})}
    well = replace(
        seen(),
        stored={**seen().stored, **exhausted},
        answered={**seen().answered, **{name: [value] for name, value in exhausted.items()}},
        ledgers=ledgers,
        announced=ledgers,
    )
    assert violations(well, LOG, promise) == []
    assert "reserved" in {violation.rule for violation in violations(well, LOG, replace(promise, total=None))}


def test_every_rule_has_a_run_that_breaks_it() -> None:
    assert of_hats.BROKEN.keys() | BROKEN.keys() | of_a_tracker.BROKEN.keys() == RULES.keys()
