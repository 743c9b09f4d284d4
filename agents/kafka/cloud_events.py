"""The headers of what hatcast sends: CloudEvents 1.0, Kafka protocol binding, binary mode.    [docs/contracts.md]

Everything in them follows from the record, so that a record that is sent again has equal headers too (I1). Two records
with equal `ce_source` and `ce_id` are one event.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

Headers = list[tuple[str, bytes]]

CONTENT_TYPE: Final = "application/json"
SPEC_VERSION: Final = "1.0"
_SOURCE: Final = "ce_source"


class _Release(msgspec.Struct):
    released_at: str


_RELEASE: Final = msgspec.json.Decoder(_Release)


def event_type(name: str) -> str:
    """`ce_type` of a record: its name in `tools.schemas.RECORDS`, and the version of its schema."""
    return f"hatcast.{name}.v1"


def cloud_event(name: str, event_id: str, telemetry: str, time: str | None = None) -> Headers:
    """The headers of a record.

    name        in `tools.schemas.RECORDS`
    event_id    no other event of this telemetry topic has it
    telemetry   the topic that the event comes of: a relative URI reference, since Kafka's names need no escapes
    time        RFC 3339; None for what has no time of its own
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
    """`ce_source` of everything that comes of a telemetry topic."""
    return f"hatcast/{telemetry}".encode()


def is_from_other_domain(headers: Iterable[tuple[str, bytes | None]], telemetry: str) -> bool:
    """Whether a record says that it comes of another telemetry topic: several may share output topics."""
    return any(name == _SOURCE and value != source_of(telemetry) for name, value in headers)


def release_event(name: str, release_id: str, telemetry: str, record: bytes) -> Headers:
    """The headers of a release or an answer: its time is `released_at`, as the bytes that are sent have it.

    Raises msgspec.DecodeError if they have none.
    """
    return cloud_event(name, release_id, telemetry, _RELEASE.decode(record).released_at)
