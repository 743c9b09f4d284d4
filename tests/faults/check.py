"""Find violations of the guarantees after any faults: a pure function of what a run left.

`violations` compares what a run left (`Seen`: the output topics, aborted sends included, and Redis) with what one
process makes of the same log (`Log`: `batch --format kafka` on a dump). An empty answer means that all promises held.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from hatcast.stream.records.fields import date_of
from tests.faults.check_answers import answered_right, kept_right, requested_right, reserved_right
from tests.faults.check_running import running_right
from tests.faults.check_tracker import estimated_right, tracked_hats, tracked_right
from tests.faults.facts import GRID_STEPS, NANO, Ledger, Log, Promise, Record, Seen, Violation, release_id_of

RULES: Final = {
    "one value": "every HAT, and every answer, has one distinct value, also for readers of uncommitted records",
    "ledger first": "nothing is on a topic that the ledger does not know, byte for byte",
    "published": "what the ledger knows is on the topic",
    "charged": "a day's releases times epsilon are its epsilon_sum, and one charge for each release",
    "announced": "hats.budget tells what the ledger holds",
    "numbered": "no two releases or answers of a day have the same seq, none is above the ledger's",
    "reserved": "a day with a release has settled what reads it, in full where its limit is all that binds; no answer"
    " is released without its places on one of its days",
    "within budget": "the K largest charges of a day and what is reserved stay within its limit, and so do all days",
    "final": "exactly the HATs that are over are released, those of a tracker with or without a query; only where"
    " telemetry lacked records some are incomplete",
    "true value": "a release without noise worth the name is the log's mean",
    "due": "exactly the queries whose days are over are answered",
    "true answer": "an answer without noise worth the name is the log's",
    "requested": "a limit whose request was accepted is that of the period, and in every answer",
    "queries": "a tracker's queries of a date are numbered from 1, and are the first of those that its counts lead to",
    "predicted": "the value of a query is the prediction from the numbers released before it, and its own",
    "unstopped": "they are all of these where Redis has lost nothing",
    "paid": "no bus has paid more than the limit for them, and hats.budget says no other sum",
    "estimates": "what is on hats.estimates is what one process makes of hats.means",
    "open": "open contributions are the log's; a tracker's are open until their date is settled",
    "kept": "what is kept of released HATs is the log's, and nothing is kept that no query will read",
    "counted once": "the outcomes are the log's",
    "derived": "the log of a feed that derives speeds is what one process derives from the same positions",
    "cap": "no user is in more than K HATs of a day, or in two partitions",
}


def violations(seen: Seen, log: Log, promise: Promise) -> list[Violation]:
    """All that does not hold; empty where everything does."""
    releases, answers = _records(seen.published), _records(seen.answered)
    finals = tracked_hats if promise.tracks else _finals
    hats = [finals(releases, log, promise), _means(releases, log, promise)]
    if promise.cells is not None:
        hats = [running_right(seen, releases, log, promise)]
    checks = (
        _values(seen),
        _charges(seen, releases, [*releases.values(), *answers.values()], promise),
        reserved_right(seen, releases, answers, promise),
        _budget(seen, releases, promise),
        *hats,
        answered_right(answers, log, promise),
        requested_right(seen, answers),
        tracked_right(seen, releases, log, promise),
        estimated_right(seen, log),
        _state(seen, log, promise),
        kept_right(seen, log),
        _derived(seen, log),
        _cap(seen, promise),
    )
    return [violation for found in checks for violation in found]


def _records(published: Mapping[str, Sequence[bytes]]) -> dict[str, Record]:
    return {name: json.loads(values[0], parse_float=Fraction) for name, values in published.items()}


def _values(seen: Seen) -> Iterator[Violation]:
    """One value each, and both homes of the ledger agree."""
    on_topics = {**seen.published, **seen.answered}
    for name, values in on_topics.items():
        if len(set(values)) != 1:
            yield Violation("one value", f"{name} has {len(set(values))} of them: {sorted(set(values))}")
        if json.loads(values[0])["release_id"] != name:
            yield Violation("one value", f"{name} is the key of another release")
        if date_of(name) in seen.sealed:
            continue
        if name not in seen.stored:
            yield Violation("ledger first", f"{name} is published and not in the ledger")
        elif seen.stored[name] not in values:
            yield Violation("ledger first", f"{name} is published with other bytes than the ledger's")
    for name in seen.stored.keys() - on_topics.keys():
        yield Violation("published", f"{name} is in the ledger and was not published")
    numbers = Counter(map(date_of, on_topics))
    for date, commits in seen.sealed.items():
        if numbers[date] > commits:
            yield Violation("ledger first", f"{date}: {numbers[date]} records on the topics, {commits} commits")


def _charges(
    seen: Seen, releases: Mapping[str, Record], records: Sequence[Record], promise: Promise
) -> Iterator[Violation]:
    """One charge for each release, in Redis and on `hats.budget`; every `seq` once, those of answers too.

    A tracker's releases have none, nor have running sums: their date's reservation pays for all.
    """
    charged = () if promise.reserves else releases.values()
    released = Counter(record["date"] for record in charged if record["status"] == "released")
    dates = {record["date"] for record in records}
    for date in sorted(dates | seen.ledgers.keys() | seen.announced.keys()):
        ledger = seen.ledgers.get(date, Ledger(0, 0, 0))
        if ledger.releases != released[date]:
            yield Violation("charged", f"{date}: {released[date]} releases, {ledger.releases} charges")
        if ledger.releases * promise.epsilon != ledger.epsilon_sum:
            yield Violation("charged", f"{date}: {ledger.releases} charges sum to {ledger.epsilon_sum / NANO:g}")
        if seen.announced.get(date) != ledger:
            yield Violation("announced", f"{date}: {seen.announced.get(date)} on the topic, {ledger} in the ledger")
        numbers = Counter(record["seq"] for record in records if record["date"] == date)
        twice = sorted(number for number, times in numbers.items() if times > 1)
        if twice:
            yield Violation("numbered", f"{date}: numbers {twice} were given out twice")
        if numbers and max(numbers) > ledger.sequence:
            yield Violation("numbered", f"{date}: number {max(numbers)} is above the ledger's {ledger.sequence}")


def _budget(seen: Seen, releases: Mapping[str, Record], promise: Promise) -> Iterator[Violation]:
    """What a user's days may have cost: from the records of HATs, and what the ledger has reserved."""
    places: dict[str, Counter[tuple[str, str]]] = {date: Counter() for date in seen.ledgers}
    for record in () if promise.reserves else releases.values():
        if record["status"] == "released":
            places.setdefault(record["date"], Counter())[record["cell"], record["slot"]] += promise.epsilon
    costs = {}
    for date, charges in places.items():
        reserved = seen.ledgers[date].reserved if date in seen.ledgers else 0
        costs[date] = reserved + sum(sorted(charges.values(), reverse=True)[: promise.cap])
        if costs[date] > promise.limit:
            told = f"{date} may cost {costs[date] / NANO:g}, the limit is {promise.limit / NANO:g}"
            yield Violation("within budget", told)
    total = sum(costs.values())
    if promise.total is not None and total > promise.total:
        yield Violation("within budget", f"all days may cost {total / NANO:g}, the limit is {promise.total / NANO:g}")


def _finals(releases: Mapping[str, Record], log: Log, promise: Promise) -> Iterator[Violation]:
    """Of dates whose telemetry lacked records, HATs may be incomplete, and others: users had room for those."""
    records = {
        name: record
        for name, record in releases.items()
        if record["status"] != "incomplete" or date_of(name) not in log.thinned
    }
    expected = {release_id_of(promise.name, hat) for hat in log.final}
    for name in sorted(expected - records.keys()):
        if date_of(name) not in log.thinned:
            yield Violation("final", f"{name} is over and was not released")
    for name in sorted(records.keys() - expected):
        yield Violation("final", f"{name} was released and is not over, or never was")
    allowed = {"released"} if promise.exact else {"released", "budget_exhausted"}
    for name, record in records.items():
        if record["status"] not in allowed:
            yield Violation("final", f"{name} is {record['status']}")


def _means(records: Mapping[str, Record], log: Log, promise: Promise) -> Iterator[Violation]:
    if not promise.exact:
        return
    for hat in sorted(log.final):
        record = records.get(release_id_of(promise.name, hat))
        if record is not None and "mean" in record:
            _, readings, total, _ = log.hats[hat]
            true = Fraction(total, readings) / 1000
            if abs(record["mean"] - true) > GRID_STEPS * promise.grid:
                yield Violation("true value", f"{hat} is {float(record['mean']):g}, the log says {float(true):g}")
            yield from _other_means(record, log, promise)


def _other_means(record: Record, log: Log, promise: Promise) -> Iterator[Violation]:
    """Of the values besides the speed."""
    name = record["release_id"]
    means, true = (
        {v["name"]: v["mean"] for v in each.get("values", ())} for each in (record, log.releases.get(name, {}))
    )
    for value, grid in promise.grids.items():
        if value not in means or value not in true or abs(means[value] - true[value]) > GRID_STEPS * grid:
            yield Violation("true value", f"{value} of {name} is {means.get(value)}, the log says {true.get(value)}")


def _state(seen: Seen, log: Log, promise: Promise) -> Iterator[Violation]:
    are_fewer = log.thinned and sum(seen.outcomes.values()) < sum(log.outcomes.values())
    if seen.outcomes != log.outcomes and not are_fewer:
        different = sorted(set(seen.outcomes.items()) ^ set(log.outcomes.items()))
        yield Violation("counted once", f"stored and in the log: {different}")
    closed = {hat for hat in log.final if not promise.tracks or hat.split("/")[1] in log.settled}
    still_open = {hat: totals for hat, totals in log.hats.items() if hat not in closed}
    for hat in sorted(still_open.keys() | seen.open_hats.keys()):
        if seen.open_hats.get(hat) != still_open.get(hat) and hat.split("/")[1] not in log.thinned:
            yield Violation("open", f"{hat}: {seen.open_hats.get(hat)} stored, {still_open.get(hat)} in the log")


def _derived(seen: Seen, log: Log) -> Iterator[Violation]:
    if seen.derived is not None:
        for hat in sorted(log.hats.keys() | seen.derived.keys()):
            if log.hats.get(hat) != seen.derived.get(hat):
                yield Violation("derived", f"{hat}: {log.hats.get(hat)} in the log, {seen.derived.get(hat)} derived")


def _cap(seen: Seen, promise: Promise) -> Iterator[Violation]:
    for (date, user), places in seen.users.items():
        hats = {hat for hat, _ in places}
        if len(hats) > promise.cap:
            yield Violation("cap", f"user {user} is in {len(hats)} HATs of {date}")
        if len(places) > len(hats) or len({partition for _, partition in places}) > 1:
            yield Violation("cap", f"user {user} entered {date} through several partitions, or a HAT twice")
