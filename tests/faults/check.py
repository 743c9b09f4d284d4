"""What has to hold after any faults, as a pure function over what was read.    [design 3: I1 to I4]

`violations` compares what a run left (`Seen`: the output topics, aborted sends included, and Redis) with what one
process makes of the same log (`Log`: `batch --format kafka` on a dump). An empty answer means that all promises held.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

Totals = tuple[int, int, int, int]  # users, readings, sum, maximum

NANO: Final = 10**9
GRID_STEPS: Final = 2  # of noise and rounding, where epsilon is so large that nothing is hidden


@dataclass(frozen=True)
class Promise:
    """What the policy says.

    epsilon, limit   1e-9
    grid             km/h
    exact            epsilon is so large that a mean is the true one; else the limit may bind
    """

    name: str
    epsilon: int
    cap: int
    limit: int
    grid: Fraction
    exact: bool


@dataclass(frozen=True)
class Ledger:
    """One day's charges: those of our policy, and the number of the day's changes. `epsilon_sum` in 1e-9."""

    releases: int
    epsilon_sum: int
    sequence: int


@dataclass(frozen=True)
class Log:
    """What one process makes of the dumped log.

    hats    `cell/date/slot` -> totals
    final   those whose slot is over in every partition
    """

    outcomes: Mapping[str, int]
    hats: Mapping[str, Totals]
    final: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """What is there after a run has settled.

    published   release_id -> every value on `hats.means`, also of transactions that were not committed
    stored      release_id -> record, in Redis
    ledgers     date -> ledger, in Redis
    announced   date -> ledger, as readers of `hats.budget` have it
    outcomes    stored, of all partitions together
    open_hats   `cell/date/slot` -> stored contributions
    users       (date, pseudonym) -> the HATs that it is found in, each with its partition
    """

    published: Mapping[str, Sequence[bytes]]
    stored: Mapping[str, bytes]
    ledgers: Mapping[str, Ledger]
    announced: Mapping[str, Ledger]
    outcomes: Mapping[str, int]
    open_hats: Mapping[str, Totals]
    users: Mapping[tuple[str, str], Sequence[tuple[str, int]]]


@dataclass(frozen=True)
class Violation:
    """A promise that was broken. `rule` is one of `RULES`."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


RULES: Final = {
    "one value": "every HAT has one distinct value, also for readers of uncommitted records",
    "ledger first": "nothing is on a topic that the ledger does not know, byte for byte",
    "published": "what the ledger knows is on the topic",
    "charged": "a day's releases times epsilon are its epsilon_sum, and one charge for each release",
    "announced": "hats.budget tells what the ledger holds",
    "numbered": "no two releases of a day have the same seq, none is above the ledger's",
    "within budget": "the K largest charges of a day stay within its limit",
    "final": "exactly the HATs that are over are released",
    "true value": "a release without noise worth the name is the log's mean",
    "open": "open contributions are the log's",
    "counted once": "the outcomes are the log's",
    "cap": "no user is in more than K HATs of a day, or in two partitions",
}


def violations(seen: Seen, log: Log, promise: Promise) -> list[Violation]:
    """All that does not hold; empty where everything does."""
    records = {name: json.loads(values[0], parse_float=Fraction) for name, values in seen.published.items()}
    checks = (
        _values(seen),
        _charges(seen, records, promise),
        _budget(records, promise),
        _finals(records, log, promise),
        _means(records, log, promise),
        _state(seen, log),
        _cap(seen, promise),
    )
    return [violation for found in checks for violation in found]


def _values(seen: Seen) -> Iterator[Violation]:
    """One value each, and both homes of the ledger agree."""
    for name, values in seen.published.items():
        if len(set(values)) != 1:
            yield Violation("one value", f"{name} has {len(set(values))} of them: {sorted(set(values))}")
        if json.loads(values[0])["release_id"] != name:
            yield Violation("one value", f"{name} is the key of another release")
        if name not in seen.stored:
            yield Violation("ledger first", f"{name} is published and not in the ledger")
        elif seen.stored[name] not in values:
            yield Violation("ledger first", f"{name} is published with other bytes than the ledger's")
    for name in seen.stored.keys() - seen.published.keys():
        yield Violation("published", f"{name} is in the ledger and was not published")


def _charges(seen: Seen, records: Mapping[str, Mapping[str, Any]], promise: Promise) -> Iterator[Violation]:
    """One charge for each release, in Redis and on `hats.budget`; every `seq` once."""
    released = Counter(record["date"] for record in records.values() if record["status"] == "released")
    dates = {record["date"] for record in records.values()}
    for date in sorted(dates | seen.ledgers.keys() | seen.announced.keys()):
        ledger = seen.ledgers.get(date, Ledger(0, 0, 0))
        if ledger.releases != released[date]:
            yield Violation("charged", f"{date}: {released[date]} releases, {ledger.releases} charges")
        if ledger.releases * promise.epsilon != ledger.epsilon_sum:
            yield Violation("charged", f"{date}: {ledger.releases} charges sum to {ledger.epsilon_sum / NANO:g}")
        if seen.announced.get(date) != ledger:
            yield Violation("announced", f"{date}: {seen.announced.get(date)} on the topic, {ledger} in the ledger")
        numbers = Counter(record["seq"] for record in records.values() if record["date"] == date)
        twice = sorted(number for number, times in numbers.items() if times > 1)
        if twice:
            yield Violation("numbered", f"{date}: numbers {twice} were given out twice")
        if numbers and max(numbers) > ledger.sequence:
            yield Violation("numbered", f"{date}: number {max(numbers)} is above the ledger's {ledger.sequence}")


def _budget(records: Mapping[str, Mapping[str, Any]], promise: Promise) -> Iterator[Violation]:
    """What a user's day may have cost, from the records alone."""
    costs: dict[str, Counter[tuple[str, str]]] = {}
    for record in records.values():
        if record["status"] == "released":
            costs.setdefault(record["date"], Counter())[record["cell"], record["slot"]] += promise.epsilon
    for date, places in costs.items():
        cost = sum(sorted(places.values(), reverse=True)[: promise.cap])
        if cost > promise.limit:
            yield Violation("within budget", f"{date} may cost {cost / NANO:g}, the limit is {promise.limit / NANO:g}")


def _finals(records: Mapping[str, Mapping[str, Any]], log: Log, promise: Promise) -> Iterator[Violation]:
    expected = {_release_id(promise.name, hat) for hat in log.final}
    for name in sorted(expected - records.keys()):
        yield Violation("final", f"{name} is over and was not released")
    for name in sorted(records.keys() - expected):
        yield Violation("final", f"{name} was released and is not over, or never was")
    allowed = {"released"} if promise.exact else {"released", "budget_exhausted"}
    for name, record in records.items():
        if record["status"] not in allowed:
            yield Violation("final", f"{name} is {record['status']}")


def _means(records: Mapping[str, Mapping[str, Any]], log: Log, promise: Promise) -> Iterator[Violation]:
    if not promise.exact:
        return
    for hat in sorted(log.final):
        record = records.get(_release_id(promise.name, hat))
        if record is not None and "mean" in record:
            _, readings, total, _ = log.hats[hat]
            true = Fraction(total, readings) / 1000
            if abs(record["mean"] - true) > GRID_STEPS * promise.grid:
                yield Violation("true value", f"{hat} is {float(record['mean']):g}, the log says {float(true):g}")


def _state(seen: Seen, log: Log) -> Iterator[Violation]:
    if seen.outcomes != log.outcomes:
        different = sorted(set(seen.outcomes.items()) ^ set(log.outcomes.items()))
        yield Violation("counted once", f"stored and in the log: {different}")
    still_open = {hat: totals for hat, totals in log.hats.items() if hat not in log.final}
    for hat in sorted(still_open.keys() | seen.open_hats.keys()):
        if seen.open_hats.get(hat) != still_open.get(hat):
            yield Violation("open", f"{hat}: {seen.open_hats.get(hat)} stored, {still_open.get(hat)} in the log")


def _cap(seen: Seen, promise: Promise) -> Iterator[Violation]:
    for (date, user), places in seen.users.items():
        hats = {hat for hat, _ in places}
        if len(hats) > promise.cap:
            yield Violation("cap", f"user {user} is in {len(hats)} HATs of {date}")
        if len(places) > len(hats) or len({partition for _, partition in places}) > 1:
            yield Violation("cap", f"user {user} entered {date} through several partitions, or a HAT twice")


def _release_id(name: str, hat: str) -> str:
    cell, date, slot = hat.split("/")
    return f"{name}/{date}T{slot}/{cell}"
