"""Start of reading in each output partition, and signs that a topic lost records.

Of a topic of releases the adopted position shows a loss until it is replaced, which only a recovery does that has kept
what the topic may have had.    [docs/proofs.md, "One ledger", step 9]
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.outputs import LogRange
from hatcast.stream.ledger.adoption import OutputPartition, Position


@dataclass(frozen=True, slots=True)
class Start:
    """Start of reading in one output partition."""

    stored: Position | None  # the adopted position in Redis
    first: Position  # the first record to read
    unsealed: int  # offset before which all records are of sealed days
    end: int  # offset after the last record there is now
    lost: str  # what shows that the partition lost records; "" if nothing does


def starts_of(
    domain: Domain, adopted: Mapping[OutputPartition, Position], logs: Mapping[OutputPartition, LogRange]
) -> dict[OutputPartition, Start]:
    """Return where to start in each partition.

    logs   asked for after `adopted` was read: other workers, and others that share a topic, may be further by then
    """
    return {each: _start_of(adopted.get(each), domain.unsealed_from(each), log) for each, log in logs.items()}


def lost_topic(domain: Domain, starts: Mapping[OutputPartition, Start]) -> tuple[str, str] | None:
    """Return the first topic of releases, by name, that lost records, and what shows it; None if none did."""
    found = ((each.topic, start.lost) for each, start in starts.items() if start.lost and each.topic in domain.releases)
    return min(found, default=None)


def offset_of(known: Position | None, topic_id: str) -> int:
    """Return the offset of a known position of a partition; 0 if it is None or of another topic of the same name."""
    return known.offset if known is not None and known.topic_id == topic_id else 0


def is_other_topic(one: Position, other: Position) -> bool:
    """Return whether two positions are of different topics of one name. Brokers without ids do not show it."""
    return bool(one.topic_id and other.topic_id) and one.topic_id != other.topic_id


def _start_of(adopted: Position | None, unsealed_from: Iterable[Position], log: LogRange) -> Start:
    topic_id, end = log.end
    sealed = [*unsealed_from]
    unsealed = max((at for each in sealed if (at := offset_of(each, topic_id)) <= end), default=0)
    known = sealed if adopted is None else [adopted]
    # A seal stays as it is, also where its log was cut off and has grown past it. So where a position is stored, a seal
    # shows no loss, and only says that records which are deleted were of sealed days. Others are read and left out.
    skipped = unsealed if adopted is None else min(unsealed, log.start)
    read_to, lost = max([skipped, *(offset_of(each, topic_id) for each in known)]), ""
    if known and all(is_other_topic(each, log.end) for each in known):
        lost = "was deleted and created again"
    elif end < read_to:
        lost = f"ends at offset {end}, though it was read up to {read_to}"
    elif log.start > read_to:
        lost = f"begins at offset {log.start}, though it was read up to {read_to} only"
    # A log that was cut off may have grown again since, from an offset that nobody knows.
    return Start(adopted, Position(topic_id, unsealed if lost else read_to), unsealed, end, lost)
