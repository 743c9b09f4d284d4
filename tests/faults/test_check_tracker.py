"""The checker's rules about a tracker: quiet where all is well, and each of them can be broken."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import pytest

from tests.faults.check import violations
from tests.faults.facts import NANO, Asked, Ledger, Log, Promise, Seen
from tests.faults.test_check import CELLS, DATE, OVER, release_id

LIMIT: Final = 5 * NANO
PROMISE: Final = Promise(
    "p", LIMIT, cap=24, limit=LIMIT, grid=Fraction(1, 1000), exact=False, queries={"tracker": LIMIT}, min_users=3
)
NEXT: Final = "2022-01-03"
LATER: Final = [f"{cell}/{NEXT}/09:00" for cell in CELLS]  # over, and their date is not
FEW: Final = OVER[3]  # has too few users
SETTLEMENT: Final = f"p/{DATE}Tsettlement/00003"
ESTIMATES: Final = {f"p/{DATE}T09:00/{CELLS[0]}": b'{"mean": 20.0}'}


def query(number: int, **changes: Any) -> dict[str, Any]:
    """The fields that follow from counts."""
    made: dict[str, Any] = {
        "number": number,
        "clip": 0.5,
        "scale": 1_000_000,
        "steps": 1_000_000,
        "weight": 1.25,
        "kept": 0.38,
        "members": 4,
        "charges": 1.5,
        "limit": 5.0,
        "hats": [["09:00", 1.0, 0.5]],
        "variance": 2.5,
        "noise_variance": 0.5,
    }
    return made | changes


def asked(number: int, name: str, cell: str, spent: int, **changes: Any) -> Asked:
    fields = json.loads(json.dumps(query(number, **changes)), parse_float=Fraction)
    return Asked(name, cell, Fraction(1, 2), fields, 20.0, spent)


FULL: Final = [
    asked(1, release_id(OVER[0]), CELLS[0], NANO),
    asked(2, release_id(OVER[2]), CELLS[0], 2 * NANO),
    asked(3, SETTLEMENT, CELLS[1], LIMIT),
]
LOST: Final = [asked(1, release_id(OVER[0]), CELLS[0], NANO, variance=3.0)]  # from a state that was lost
HATS: Final = {hat: (2 if hat == FEW else 4, 8, 160_001, 30_000) for hat in (*OVER, *LATER)}
LOG: Final = Log(
    outcomes={"accepted": 48},
    hats=HATS,
    final=frozenset(HATS),
    courses={DATE: [FULL, LOST], NEXT: [[]]},
    settled=frozenset({DATE}),
    estimates=ESTIMATES,
)


def record(hat: str, seq: int, made: Mapping[str, Any] | None = None, **changes: Any) -> bytes:
    """The record of a HAT, released if it has a query."""
    cell, date, slot = hat.split("/")
    users, readings, *_ = HATS[hat]
    told: dict[str, Any] = {
        "release_id": release_id(hat),
        "status": "suppressed" if users < 3 else "deferred" if made is None else "released",
        "seq": seq,
        "cell": cell,
        "date": date,
        "slot": slot,
        "counts": {"users": users, "readings": readings},
        "epsilon": 0 if made is None else 0.5,
    }
    queried = {} if made is None else {"query": {**made, "sum": 17}, "raw": 20.001}
    return json.dumps(told | queried | changes).encode()


def settlement(number: int = 3, name: str = SETTLEMENT, **changes: Any) -> bytes:
    told = {"release_id": name, "status": "released", "seq": 5, "cell": CELLS[1], "date": DATE, "slot": "09:00"}
    return json.dumps(told | {"epsilon": 0.5, "query": {**query(number), "sum": -3}, "raw": 20.0} | changes).encode()


RECORDS: Final = {
    release_id(OVER[0]): record(OVER[0], 1, query(1)),
    release_id(OVER[1]): record(OVER[1], 2),
    release_id(OVER[2]): record(OVER[2], 3, query(2)),
    release_id(FEW): record(FEW, 4),
    SETTLEMENT: settlement(),
    **{release_id(hat): record(hat, seq) for seq, hat in enumerate(LATER, start=1)},
}


def seen(records: Mapping[str, bytes] = RECORDS) -> Seen:
    """What is left, with these records on the topic and in the ledger. With RECORDS all is well."""
    ledgers = {DATE: Ledger(0, 0, 9, {"tracker": (1, LIMIT)}), NEXT: Ledger(0, 0, 9, {"tracker": (1, LIMIT)})}
    return Seen(
        published={name: [value] for name, value in records.items()},
        stored=dict(records),
        ledgers=ledgers,
        announced=dict(ledgers),
        outcomes=dict(LOG.outcomes),
        open_hats={hat: HATS[hat] for hat in LATER},
        users={},
        spent={DATE: [NANO, LIMIT], NEXT: [0]},
        estimates=dict(ESTIMATES),
    )


def everywhere(*absent: str, change: Mapping[str, bytes]) -> Callable[[], Seen]:
    """A run without these records, and with other values of others (name -> record)."""
    return lambda: seen({name: value for name, value in {**RECORDS, **change}.items() if name not in absent})


def with_query(number: int, **changes: Any) -> Callable[[], Seen]:
    """The first query with other fields."""
    return everywhere(change={release_id(OVER[0]): record(OVER[0], 1, query(number, **changes))})


def reserving(places: int, epsilon: int) -> Seen:
    ledgers = {**seen().ledgers, DATE: Ledger(0, 0, 9, {"tracker": (places, epsilon)})}
    return replace(seen(), ledgers=ledgers, announced=ledgers)


BROKEN: Final[dict[str, list[Callable[[], Seen]]]] = {
    "one value": [
        lambda: replace(seen(), published={**seen().published, SETTLEMENT: [settlement(), settlement(seq=6)]})
    ],
    "charged": [lambda: replace(seen(), ledgers={**seen().ledgers, DATE: Ledger(3, 3 * LIMIT, 9)})],
    "reserved": [lambda: reserving(0, LIMIT), lambda: reserving(1, LIMIT - 1), lambda: reserving(2, LIMIT)],
    "within budget": [lambda: reserving(2, LIMIT), lambda: reserving(1, LIMIT + 1)],
    "final": [
        everywhere(release_id(OVER[1]), change={}),
        everywhere(change={release_id(OVER[1]): record(OVER[1], 2, status="suppressed")}),
        everywhere(change={release_id(OVER[1]): record(OVER[1], 2, status="released")}),
        everywhere(change={release_id(FEW): record(FEW, 4, query(4))}),
        everywhere(change={SETTLEMENT: settlement(status="deferred")}),
    ],
    "true value": [everywhere(change={release_id(OVER[1]): record(OVER[1], 2, counts={"users": 5, "readings": 8})})],
    "queries": [
        everywhere(change={release_id(OVER[2]): record(OVER[2], 3)}),  # a gap
        everywhere(change={release_id(OVER[2]): record(OVER[2], 3, query(1))}),  # a number twice
        with_query(1, scale=500_000),
        with_query(1, charges=1.500000001),
        with_query(1, members=3),
        with_query(1, variance=2.5001),
        with_query(1, hats=[["10:00", 1.0, 0.5]]),
        with_query(1, hats=[]),
        with_query(1, other=1),
        everywhere(change={release_id(OVER[0]): record(OVER[0], 1, query(1), epsilon=0.4)}),
        everywhere(change={release_id(OVER[0]): record(OVER[0], 1, query(1), cell=CELLS[1])}),
        everywhere(change={f"{SETTLEMENT[:-1]}4": settlement(4, f"{SETTLEMENT[:-1]}4")}),  # settled twice
        everywhere(change={release_id(LATER[0]): record(LATER[0], 1, query(1))}),
        # From the lost state, then from another: each alone would be allowed.
        everywhere(change={release_id(OVER[0]): record(OVER[0], 1, query(1, variance=3.0))}),
    ],
    "predicted": [
        everywhere(change={release_id(OVER[0]): record(OVER[0], 1, query(1), raw=20.003)}),
        everywhere(change={SETTLEMENT: settlement(raw=19.0)}),
    ],
    "unstopped": [everywhere(SETTLEMENT, change={})],
    "paid": [
        lambda: replace(seen(), spent={DATE: [LIMIT + 1]}),
        lambda: replace(seen(), spent={DATE: [NANO + 1]}),
        lambda: replace(seen(), spent={NEXT: [NANO]}),
        with_query(1, limit=6.0),
    ],
    "estimates": [
        lambda: replace(seen(), estimates={}),
        lambda: replace(seen(), estimates=dict.fromkeys(ESTIMATES, b'{"mean": 20.1}')),
        lambda: replace(seen(), estimates={**ESTIMATES, f"p/{DATE}T10:00/{CELLS[0]}": b"{}"}),
    ],
    "open": [
        lambda: replace(seen(), open_hats={}),
        lambda: replace(seen(), open_hats={hat: HATS[hat] for hat in (*LATER, OVER[0])}),
    ],
}


def rules(of: Seen, log: Log = LOG) -> set[str]:
    return {violation.rule for violation in violations(of, log, PROMISE)}


def test_a_tracker_that_kept_all_promises_has_no_violations() -> None:
    assert violations(seen(), LOG, PROMISE) == []


@pytest.mark.parametrize(("rule", "broken"), [(rule, broken) for rule, cases in BROKEN.items() for broken in cases])
def test_every_broken_promise_of_a_tracker_is_found_by_its_rule(rule: str, broken: Callable[[], Seen]) -> None:
    assert rule in rules(broken())


def test_designs_that_cost_a_bus_more_than_its_limit_are_found_though_all_records_agree() -> None:
    course = [*FULL[:2], replace(FULL[2], spent=LIMIT + 1)]
    assert "paid" in rules(seen(), replace(LOG, courses={**LOG.courses, DATE: [course]}))


def test_queries_may_stop_where_redis_has_lost_data_and_only_there() -> None:
    stopped = everywhere(SETTLEMENT, change={})()
    assert rules(stopped) == {"unstopped"}
    assert rules(replace(stopped, lost=True)) == set()


def test_a_date_that_began_without_a_state_follows_from_the_counts_only_where_redis_has_lost_data() -> None:
    anew = {release_id(OVER[0]): record(OVER[0], 1, query(1, variance=3.0)), release_id(OVER[2]): record(OVER[2], 3)}
    begun = everywhere(SETTLEMENT, change=anew)()
    assert rules(begun) == {"unstopped"}
    assert rules(replace(begun, lost=True)) == set()


def test_the_last_bits_of_floats_may_differ_and_no_charge_may() -> None:
    assert rules(with_query(1, variance=2.5 + 1e-12, noise_variance=0.5 - 1e-13)()) == set()
    assert rules(with_query(1, charges=1.500000001)()) >= {"queries"}
