"""What has to hold of queries over days: reserved before, answered once, and nothing kept after.    [decisions/0014]"""

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Final

from tests.faults.facts import GRID_STEPS, NANO, Ledger, Log, Promise, Record, Seen, Violation

# Of an answer without noise worth the name; the rest is a matter of the ledger.
_TOLD: Final = ("status", "reason", "missing", "user_days", "days_used", "speed_limit")


def reserved_right(
    seen: Seen, releases: Mapping[str, Record], answers: Mapping[str, Record], promise: Promise
) -> Iterator[Violation]:
    """Places are settled with a day's first release, and an answer that costs them has them on all its days."""
    for day in sorted({record["date"] for record in releases.values()}):
        for name, epsilon in promise.queries.items():
            found = seen.ledgers.get(day, Ledger(0, 0, 0)).queries.get(name)
            # A policy is refused whose limit of a day has no room for all of its queries; that of all days may have
            # none where other days were first.
            allowed = {(promise.places, epsilon)} | ({(0, epsilon)} if promise.total is not None else set())
            if found not in allowed:
                yield Violation("reserved", f"{day} has releases, and {_told(found)} for {name}")
    for name, record in answers.items():
        if record["status"] != "released":
            continue
        for day in days_of(record):
            found = seen.ledgers.get(day, Ledger(0, 0, 0)).queries.get(record["query"])
            if found != (promise.cap, promise.queries.get(record["query"])):
                yield Violation("reserved", f"{name} is released, and {day} has {_told(found)} for it")


def days_of(record: Record) -> list[str]:
    """The local dates of an answer's period."""
    first, last = date.fromisoformat(record["first_date"]), date.fromisoformat(record["last_date"])
    return [(first + timedelta(days=day)).isoformat() for day in range((last - first).days + 1)]


def answered_right(answers: Mapping[str, Record], log: Log, promise: Promise) -> Iterator[Violation]:
    """Each that is due has its answer, and where nothing is hidden it is what one process answers."""
    for name in sorted(log.answers.keys() - answers.keys()):
        yield Violation("due", f"{name} is over and was not answered")
    for name in sorted(answers.keys() - log.answers.keys()):
        yield Violation("due", f"{name} was answered and is not over, or never was")
    if not promise.exact:
        return
    for name in sorted(answers.keys() & log.answers.keys()):
        record, true = answers[name], log.answers[name]
        different = {key: (record.get(key), true.get(key)) for key in _TOLD if record.get(key) != true.get(key)}
        if different:
            yield Violation("true answer", f"{name}, answered and in the log: {different}")
        elif "mean" in true and abs(record["mean"] - true["mean"]) > GRID_STEPS * promise.grid:
            yield Violation("true answer", f"{name} is {float(record['mean']):g}, the log says {float(true['mean']):g}")


def requested_right(seen: Seen, answers: Mapping[str, Record]) -> Iterator[Violation]:
    """Each period has one limit, which is the one that was accepted, if one was."""
    for query, day, limit in seen.accepted:
        decided = seen.limits.get((query, day))
        if decided != limit:
            yield Violation("requested", f"{limit} for {query} of {day} was accepted, and {decided} is its limit")
    for name, record in answers.items():
        decided = seen.limits.get((record["query"], record["first_date"]))
        if decided is not None and record["status"] == "released" and record.get("speed_limit") != decided:
            yield Violation("requested", f"{name} is about {record.get('speed_limit')}, its period about {decided}")


def kept_right(seen: Seen, log: Log) -> Iterator[Violation]:
    """What is kept of released HATs is what a query will read."""
    for hat in sorted(log.waiting | seen.kept.keys()):
        true = log.hats.get(hat) if hat in log.waiting else None
        if seen.kept.get(hat) != true:
            yield Violation("kept", f"{hat}: {seen.kept.get(hat)} kept, {true} in the log")


def _told(places: tuple[int, int] | None) -> str:
    return "no places" if places is None else f"{places[0]} places of {places[1] / NANO:g}"
