"""Interface of a telemetry format: it decodes records, splits messages into records, and reads recordings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Literal, Protocol

from hatcast.stream.errors import SettingError
from hatcast.stream.readings.positions import Derivation
from hatcast.stream.readings.reading import Reading


@dataclass(frozen=True, slots=True)
class Recorded:
    """One record of a recording.

    raw      its bytes in the file; replay sends them if the record is undecodable
    reading  None if undecodable
    arrival  ms UTC: the record's `arrival` field if the format has one, else its time; None if unreadable
    problem  why it is undecodable, without any of its data; None: decodable, or the format does not say
    """

    raw: bytes
    reading: Reading | None
    arrival: int | None
    problem: str | None = None


class Split(Protocol):
    """Splits a message of a live source into records."""

    def __call__(self, body: bytes, topic: str = "") -> list[bytes]:
        """Return the records as `decode` takes them. Raises nothing.

        body   payload of one HTTP poll, queue message or MQTT publication
        topic  MQTT topic, for formats in which it is part of the record
        Empty if the message holds no vehicle. Never contains an empty record, which would be a heartbeat record. A
        message that cannot be split is returned as one record, so that it is counted as undecodable.
        """
        ...


Table = Literal["json", "csv"]


def one_record(body: bytes, topic: str = "") -> list[bytes]:
    """Return the message as its only record."""
    return [body] if body else []


@dataclass(frozen=True, slots=True)
class Format:
    """A telemetry format.

    decode   decodes one record of the telemetry topic; None if undecodable; raises nothing
    records  reads a recording, uncompressed (the caller decompresses gzip), in file order. Raises RecordingError only
             if the file as a whole does not have this format (unterminated array, header without a required column)
    table    how Parquet rows are passed to `records`: as one JSON object a line, or as CSV; None: the format has no
             columns
    split    splits a message of a live source into records for `decode`
    values   returns the format with further values in its readings, from their units by name. Raises SettingError if
             its records do not have one of them. None: they have no values but the speed
    without_speed  the format whose decoders also accept a record in which the speed is absent, null or an empty cell:
             its reading has the speed `MISSING`. Only for deriving speeds from positions.
             None: its speeds cannot be derived
    derivation  of such a format: how readers of recordings and bridges derive speeds; None: they do not
    single   returns the format whose readings are `ValueReading`s of the value with this name and unit. Raises
             SettingError if its records do not have it. None: they have no value but the speed
    header_times  returns the format in which a record without a time has that of its message's header. None: messages
             have no header
    is_message  returns whether the body of a poll has this format, with or without vehicles
    encoding  of its files; None: that of the format. `records` gets UTF-8
    rows     returns the format of the rows of a table with columns of these names, passed as JSON objects. Raises
             RecordingError if a column is missing. None: the rows are records of this format
    """

    name: str
    decode: Callable[[bytes], Reading | None]
    records: Callable[[BinaryIO, str], Iterator[Recorded]]
    """(stream, path for error messages) -> records"""
    split: Split = one_record
    table: Table | None = None
    values: "Callable[[Mapping[str, str]], Format] | None" = None
    without_speed: "Format | None" = None
    derivation: Derivation | None = None
    single: "Callable[[str, str], Format] | None" = None
    header_times: "Callable[[], Format] | None" = None
    is_message: Callable[[bytes], bool] = bool
    encoding: str | None = None
    rows: "Callable[[Sequence[str], str], Format] | None" = None
    """(names of the columns, path for error messages) -> format"""

    def with_derived_speeds(self, derivation: Derivation) -> "Format":
        """Return the format for recordings and bridges that derive speeds from positions. Raises SettingError."""
        if self.without_speed is None:
            raise SettingError("derive_speed", f"{self.name} records have no speed to derive", "leave it out")
        return replace(self.without_speed, derivation=derivation)
