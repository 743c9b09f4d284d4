"""What every feed offers: one record's bytes to a reading, a message's to its records, and a recording's to records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol

from hatcast.stream.readings.reading import Reading


@dataclass(frozen=True, slots=True)
class Recorded:
    """One record of a recording.

    raw      its bytes as they stand in the file: what replay sends if it cannot be decoded
    reading  None if undecodable
    arrival  ms UTC: the record's own `arrival` where the format has one, else its time; None if unreadable
    """

    raw: bytes
    reading: Reading | None
    arrival: int | None


class Split(Protocol):
    """One message of a live source to the records in it."""

    def __call__(self, body: bytes, topic: str = "") -> list[bytes]:
        """Each record as `decode` takes it; raises nothing.

        body   what one HTTP poll, queue message or MQTT publication holds
        topic  where it was published, for feeds that say a part of the record there
        Never holds an empty record, since that would be a tick. Empty if the message holds no vehicle. A message that
        cannot be taken apart is one record, itself, so that it is counted as undecodable.
        """
        ...


Table = Literal["json", "csv"]


def one_record(body: bytes, topic: str = "") -> list[bytes]:
    """A message that is a record."""
    return [body] if body else []


@dataclass(frozen=True, slots=True)
class Feed:
    """A format of telemetry.

    decode   one record as it stands on the telemetry topic; None if undecodable; raises nothing
    records  a whole recording, plain bytes (gzip is undone by the caller), in file order.
             Raises RecordingError only where the file as a whole is no such recording (an array that never ends,
             a header without the needed columns).
    table    how `records` reads rows of named columns, so that they may come from Parquet: as JSON objects, one a line,
             or as CSV; None: a record has no columns
    split    one message of a live source to records as `decode` takes them
    """

    name: str
    decode: Callable[[bytes], Reading | None]
    records: Callable[[BinaryIO, str], Iterator[Recorded]]
    """(stream, path for error messages) -> records"""
    split: Split = one_record
    table: Table | None = None
