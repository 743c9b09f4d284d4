"""Rules about a tracker: its queries are those that the counts lead to, and no bus pays more than its limit for them.

Every query is drawn once, so its design (all but the released number) has to be the one that the same counts lead to
from one of the states that the tracker may have begun the date with. What buses have paid follows from the designs.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from hatcast.stream.records.fields import date_of, is_settlement, query_kind
from tests.faults.facts import GRID_STEPS, NANO, Course, Log, Promise, Record, Seen, Totals, Violation, release_id_of

_EXACT: Final = ("number", "scale", "steps", "clip", "members", "charges", "limit")  # what buses pay depends on these
_ALIKE: Final = 1e-9  # of floats: the order of users, and with it the last bits, follows from the user key


def tracked_right(seen: Seen, releases: Mapping[str, Record], log: Log, promise: Promise) -> Iterator[Violation]:
    """Everything about a tracker but its HATs."""
    if not promise.tracks:
        return
    by_date: dict[str, list[Record]] = {date: [] for date in log.settled | log.courses.keys()}
    for name, record in releases.items():
        if "query" in record:
            by_date.setdefault(date_of(name), []).append(record)
    for date, queries in sorted(by_date.items()):
        queries.sort(key=lambda record: int(record["query"]["number"]))
        yield from _queried(date, queries, seen, log)
        yield from _predicted(queries, log.courses.get(date, ()), promise)
        yield from _paid(date, queries, seen, log, promise)


def _queried(date: str, queries: Sequence[Record], seen: Seen, log: Log) -> Iterator[Violation]:
    """Numbered from 1, and the first of one course; all of them, unless Redis has lost the tracker's state."""
    numbers = [record["query"]["number"] for record in queries]
    if numbers != list(range(1, len(numbers) + 1)):
        yield Violation("queries", f"{date}: they have the numbers {numbers}")
    courses = log.courses.get(date, ())
    following = [course for course in courses if _follows(queries, course)]
    if not following:
        found = [difference for course in courses if (difference := _difference(queries, course))]
        yield Violation("queries", f"{date}: the {len(queries)} queries follow from no state: {found}")
    elif not seen.lost and not (courses[0] in following and len(queries) == len(courses[0])):
        yield Violation("unstopped", f"{date}: {len(queries)} queries without a loss, {len(courses[0])} in the log")
    settling = [record["release_id"] for record in queries if is_settlement(record["release_id"])]
    if settling and date not in log.settled:
        yield Violation("queries", f"{date} is not over and has {settling}")


def _predicted(queries: Sequence[Record], courses: Sequence[Course], promise: Promise) -> Iterator[Violation]:
    """What was released of a query, and what was predicted from the numbers released before, is its `raw`."""
    for course in courses:
        if _follows(queries, course):
            for record, asked in zip(queries, course, strict=False):
                if abs(record["raw"] - Fraction(asked.raw)) > GRID_STEPS * promise.grid:
                    raw = float(record["raw"])
                    yield Violation("predicted", f"{record['release_id']} is {raw:g}, {asked.raw:g} was released")
            return


def _follows(queries: Sequence[Record], course: Course) -> bool:
    return _difference(queries, course) is None


def _difference(queries: Sequence[Record], course: Course) -> str | None:
    """Return the first difference from a course; None if the queries are its first ones."""
    for number, record in enumerate(queries, start=1):
        if number > len(course):
            return f"number {number} is beyond the {len(course)} of the log"
        asked = course[number - 1]
        ours = {"release_id": asked.release_id, "cell": asked.cell, "epsilon": asked.epsilon}
        different = [field for field, value in ours.items() if record.get(field) != value]
        made = {field: value for field, value in record["query"].items() if field != "sum"}
        different += [field for field in _EXACT if made.get(field) != asked.query.get(field)]
        different += [field for field in made.keys() | asked.query.keys() if not _alike(made, asked.query, field)]
        if different:
            return f"number {number}, {record['release_id']}, differs in {sorted(set(different))}"
    return None


def _alike(one: Record, other: Record, field: str) -> bool:
    return field in one and field in other and _is_alike(one[field], other[field])


def _is_alike(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_is_alike, one, other))
    if isinstance(one, str):
        return bool(one == other)
    return math.isclose(float(one), float(other), rel_tol=_ALIKE, abs_tol=_ALIKE)


def _paid(date: str, queries: Sequence[Record], seen: Seen, log: Log, promise: Promise) -> Iterator[Violation]:
    """What buses have paid, by the designs that the records follow from; and what `hats.budget` says of it."""
    courses = log.courses.get(date, ())
    paid = [course[len(queries) - 1].spent for course in courses if queries and _follows(queries, course)]
    for spent in paid:
        if spent > promise.limit:
            yield Violation("paid", f"{date}: a bus has paid {spent / NANO:g}, the limit is {promise.limit / NANO:g}")
    for record in queries:
        if record["query"]["limit"] * NANO != promise.limit:
            yield Violation("paid", f"{record['release_id']} has the limit {float(record['query']['limit']):g}")
    possible = {0} | {asked.spent for course in courses for asked in course}
    for told in seen.spent.get(date, ()):
        if told > promise.limit or told not in possible:
            yield Violation("paid", f"{date}: hats.budget says that a bus has spent {told / NANO:g}")


def tracked_hats(records: Mapping[str, Record], log: Log, promise: Promise) -> Iterator[Violation]:
    """Every HAT that is over has one record, with its counts, and a query if and only if it is released."""
    expected = {release_id_of(promise.name, hat): log.hats[hat] for hat in log.final}
    found = {name: record for name, record in records.items() if not query_kind(name)}
    for name in sorted(expected.keys() - found.keys()):
        yield Violation("final", f"{name} is over and was not released")
    for name in sorted(found.keys() - expected.keys()):
        yield Violation("final", f"{name} was released and is not over, or never was")
    for name in sorted(found.keys() & expected.keys()):
        yield from _hat(name, found[name], expected[name], promise)
    queries = Counter(record["status"] for name, record in records.items() if query_kind(name))
    if queries.keys() - {"released"}:
        yield Violation("final", f"queries of several HATs have the statuses {dict(queries)}")


def _hat(name: str, record: Record, totals: Totals, promise: Promise) -> Iterator[Violation]:
    users, readings, _, _ = totals
    allowed = {"suppressed"} if users < (promise.min_users or 0) else {"released", "deferred"}
    if record["status"] not in allowed:
        yield Violation("final", f"{name} of {users} users is {record['status']}")
    if ("query" in record) != (record["status"] == "released"):
        yield Violation("final", f"{name} is {record['status']}, and has {'a' if 'query' in record else 'no'} query")
    counts = record.get("counts", {})
    if (counts.get("users"), counts.get("readings")) != (users, readings):
        yield Violation("true value", f"{name} counts {counts}, the log has {users} users, {readings} readings")


def estimated_right(seen: Seen, log: Log) -> Iterator[Violation]:
    """What compaction leaves on `hats.estimates` is what one process makes of `hats.means`."""
    for key in sorted(seen.estimates.keys() | log.estimates.keys()):
        ours, true = seen.estimates.get(key), log.estimates.get(key)
        if ours != true:
            yield Violation("estimates", f"{key}: {ours!r} published, {true!r} follows from hats.means")
