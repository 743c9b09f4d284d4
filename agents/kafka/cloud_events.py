"""Record headers: CloudEvents 1.0, Kafka protocol binding, binary mode.    [docs/consume.md]

All headers are derived from the record, so that a record that is sent again has the same headers
(docs/specification/release.md, Invariants, I1). Two records with equal `ce_source` and `ce_id` are the same event.
"""

from collections.abc import Iterable
from typing import Final

from hatcast.stream.records.projections import Head

Headers = list[tuple[str, bytes]]

CONTENT_TYPE: Final = "application/json"
SPEC_VERSION: Final = "1.0"
_SOURCE: Final = "ce_source"


def event_type(name: str) -> str:
    """Return the `ce_type` of a record: its name in `tools.schemas.RECORDS` and the version of its schema."""
    return f"hatcast.{name}.v1"


def cloud_event(name: str, event_id: str, telemetry: str, time: str | None = None) -> Headers:
    """Return the headers of a record.

    name        the record's name in `tools.schemas.RECORDS`
    event_id    unique among the events of this telemetry topic
    telemetry   the topic that the event is derived from; a relative URI reference, as topic names need no escapes
    time        RFC 3339; None for a record without a time of its own
    """
    headers = [
        ("ce_specversion", SPEC_VERSION.encode()),
        ("ce_id", event_id.encode()),
        (_SOURCE, source_of(telemetry)),
        ("ce_type", event_type(name).encode()),
    ]
    if time is not None:
        headers.append(("ce_time", time.encode()))
    return [*headers, ("content-type", CONTENT_TYPE.encode())]


def source_of(telemetry: str) -> bytes:
    """Return the `ce_source` of all events that are derived from a telemetry topic."""
    return f"hatcast/{telemetry}".encode()


def is_from_other_domain(headers: Iterable[tuple[str, bytes | None]], telemetry: str) -> bool:
    """Return whether `ce_source` names another telemetry topic: several may share output topics."""
    return any(name == _SOURCE and value != source_of(telemetry) for name, value in headers)


def release_event(release_id: str, telemetry: str, head: Head) -> Headers:
    """Return the headers of a release or an answer; its time is `released_at` in the record."""
    return cloud_event("query" if head.is_answer else "release", release_id, telemetry, head.released_at)
