"""Where reading an output topic starts, and what shows that it lost records."""

import pytest

from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.outputs import LogRange
from hatcast.agents.recovery.starts import lost_topic, starts_of
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.ledger.sealed_days import Sealed, TopicStart

MEANS, BUDGET = OutputPartition("means", 0), OutputPartition("budget", 0)


def domain_of(*sealed: Position) -> Domain:
    """Each policy's seal says where unsealed days begin in both topics."""
    seals = {
        f"p{number}": Sealed(
            policy=f"p{number}",
            through="2026-03-01",
            rules="",
            partitions=1,
            starts={each.topic: TopicStart(at.topic_id, {0: at.offset}) for each in (MEANS, BUDGET)},
        )
        for number, at in enumerate(sealed)
    }
    return Domain(frozenset({"means"}), frozenset({"budget"}), sealed=seals)


@pytest.mark.parametrize(
    ("adopted", "sealed", "log", "first", "lost"),
    [
        (None, [], (0, "a", 9), 0, ""),
        (("a", 5), [], (0, "a", 9), 5, ""),
        (("a", 9), [], (0, "a", 9), 9, ""),
        (("a", 5), [("a", 7)], (7, "a", 9), 7, ""),
        (("a", 5), [("a", 7)], (0, "a", 9), 5, ""),
        (None, [("a", 7), ("a", 8)], (0, "a", 9), 8, ""),
        (("a", 5), [], (6, "a", 9), 0, "begins at offset 6, though it was read up to 5 only"),
        (None, [], (6, "a", 6), 0, "begins at offset 6, though it was read up to 0 only"),
        (("a", 10), [], (0, "a", 9), 0, "ends at offset 9, though it was read up to 10"),
        (("a", 10), [("a", 4)], (0, "a", 9), 4, "ends at offset 9, though it was read up to 10"),
        (("a", 5), [("a", 10)], (0, "a", 9), 5, ""),  # only the seal is of the longer log
        (("a", 5), [("a", 10)], (0, "a", 11), 5, ""),  # also once the log has grown past it
        (None, [("a", 4), ("a", 10)], (0, "a", 9), 4, "ends at offset 9, though it was read up to 10"),
        (("a", 5), [], (0, "b", 9), 0, "was deleted and created again"),
        (("a", 0), [], (0, "b", 0), 0, "was deleted and created again"),
        (None, [("a", 7)], (0, "b", 9), 0, "was deleted and created again"),
        (("b", 2), [("a", 7)], (0, "b", 9), 2, ""),  # a recovery knew that before it stored the position
        (None, [("a", 7), ("b", 3)], (0, "b", 9), 3, ""),
        (("a", 5), [("b", 3)], (0, "b", 9), 3, "was deleted and created again"),
        (("", 5), [], (0, "b", 9), 0, ""),  # of a broker without ids
        (("a", 5), [], (0, "", 9), 0, ""),
    ],
)
def test_reading_starts_after_what_was_read_unless_the_log_shows_that_it_lost_records(
    adopted: tuple[str, int] | None, sealed: list[tuple[str, int]], log: tuple[int, str, int], first: int, lost: str
) -> None:
    start, topic_id, end = log
    known = None if adopted is None else Position(*adopted)
    domain = domain_of(*(Position(*each) for each in sealed))
    ranges = {each: LogRange(start, Position(topic_id, end)) for each in (BUDGET, MEANS)}
    starts = starts_of(domain, {} if known is None else {MEANS: known, BUDGET: known}, ranges)
    for found in starts.values():
        assert (found.stored, found.first, found.lost) == (known, Position(topic_id, first), lost)
        again = starts_of(domain, dict.fromkeys(ranges, Position(topic_id, end)), ranges)
        assert not any(each.lost for each in again.values()), "it is shown once"
    assert lost_topic(domain, starts) == (("means", lost) if lost else None), "a topic of budgets alone shows no loss"
