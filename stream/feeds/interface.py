"""What every feed offers: one record's bytes to a reading, and a recording's bytes to records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from stream.reading import Reading


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


@dataclass(frozen=True, slots=True)
class Feed:
    """A format of telemetry.

    decode   one record as it stands on the telemetry topic; None if undecodable; raises nothing
    records  a whole recording, plain bytes (gzip is undone by the caller), in file order.
             Raises BadRecording only where the file as a whole is no such recording (an array that never ends,
             a header without the needed columns).
    """

    name: str
    decode: Callable[[bytes], Reading | None]
    records: Callable[[BinaryIO, str], Iterator[Recorded]]
    """(stream, path for error messages) -> records"""
