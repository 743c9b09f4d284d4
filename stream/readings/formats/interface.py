"""Interface of a telemetry format: it decodes records, splits messages into records, and reads recordings."""

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO, Final, Literal, Protocol

import msgspec

from hatcast.stream.errors import RecordingError, SettingError
from hatcast.stream.readings.positions import Derivation
from hatcast.stream.readings.reading import Reading, ValueUnits, parse_time

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
OUT_OF_SERVICE: Final = "is of a vehicle without a trip or journey"
WHITE_SPACE: Final = b" \t\r\n"
DERIVE_FIX: Final = "derive the speeds from positions with `--derive-speed` (in Python `derive_speed`)"
INT64: Final = 1 << 63  # Kafka timestamps are int64: an arrival outside is unreadable


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """One record of a recording."""

    raw: bytes  # its bytes in the file; replay sends them if the record is undecodable
    reading: Reading | None  # None if undecodable
    arrival: int | None  # ms UTC: the record's `arrival` field if the format has one, else its time; None if unreadable
    # why it is undecodable, without any of its data; None: decodable, or the format does not say
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


Table = Literal["json", "csv"]


def one_record(body: bytes, topic: str = "") -> list[bytes]:
    """Return the message as its only record."""
    return [body] if body else []


@dataclass(frozen=True, slots=True)
class Format:
    """A telemetry format."""

    name: str
    # decodes one record of the telemetry topic; None if undecodable; raises nothing
    decode: Callable[[bytes], Reading | None]
    # reads a recording, uncompressed (the caller decompresses gzip), in file order. Raises RecordingError only if the
    # file as a whole does not have this format (unterminated array, header without a required column)
    records: Callable[[BinaryIO, str], Iterator[Recorded]]  # (stream, path for error messages) -> records
    split: Split = one_record  # splits a message of a live source into records for `decode`
    # how Parquet rows are passed to `records`: as one JSON object a line, or as CSV; None: the format has no columns
    table: Table | None = None
    # returns the format whose readings are `ValuesReading`s or `ValueReading`s of these values. Raises SettingError if
    # its records do not have one of them. None: they have no values but the speed
    carrying: "Callable[[ValueUnits], Format] | None" = None
    # the format whose decoders also accept a record in which the speed is absent, null or an empty cell: its reading
    # has the speed `MISSING`. Only for deriving speeds from positions. None: its speeds cannot be derived
    without_speed: "Format | None" = None
    # of such a format: how readers of recordings and bridges derive speeds; None: they do not
    derivation: Derivation | None = None
    # returns the format in which a record without a time has that of its message's header. None: messages have no
    # header
    header_times: "Callable[[], Format] | None" = None
    # returns whether a decodable record counts, once speeds are derived; None: all do. `decode` obeys it
    counts: Callable[[bytes], bool] | None = None
    # returns whether the body of a poll has this format, with or without vehicles
    is_message: Callable[[bytes], bool] = bool
    encoding: str | None = None  # of its files; None: that of the format. `records` gets UTF-8
    # returns the format of the rows of a table with columns of these names, passed as JSON objects. Raises
    # RecordingError if a column is missing. None: the rows are records of this format
    rows: "Callable[[Sequence[str], str], Format] | None" = None
    """(names of the columns, path for error messages) -> format"""
    # returns whether a recording plainly has this format, by the text of its first bytes and the names of its columns
    # or of its records' members
    shows: Callable[[str, Collection[str]], bool] = lambda _, __: False

    def with_derived_speeds(self, derivation: Derivation) -> "Format":
        """Return the format for recordings and bridges that derive speeds from positions. Raises SettingError."""
        if self.without_speed is None:
            raise SettingError("derive_speed", f"{self.name} records have no speed to derive", "leave it out")
        return replace(self.without_speed, derivation=replace(derivation, counts=self.counts), counts=self.counts)

    def lacks_only_its_speed(self, record: bytes) -> bool:
        """Return whether an undecodable record has a position, from which its speed may be derived."""
        counts = self.counts is None or self.counts(record)
        return counts and self.without_speed is not None and self.without_speed.decode(record) is not None


def lines(stream: BinaryIO, head: bytes = b"") -> Iterator[bytes]:
    """Yield the lines without line ends, in file order; skip blank lines and a byte order mark.

    head   bytes already read from the stream
    """
    first = (head + stream.readline()).removeprefix(BYTE_ORDER_MARK)
    for line in chain((first,), stream):
        text = line.rstrip(b"\r\n")
        if text and not text.isspace():
            yield text


def split_lines(body: bytes, topic: str = "") -> list[bytes]:
    """Split a message with one record a line; blank lines are skipped."""
    return list(lines(io.BytesIO(body)))


def first_byte(stream: BinaryIO) -> bytes:
    """Read the first byte after white space and a byte order mark; empty at the end of the file."""
    while (byte := stream.read(1)) and byte in WHITE_SPACE + BYTE_ORDER_MARK:
        pass
    return byte


def arrival_ms(stamp: object) -> int | None:
    """Convert an `arrival` or time field of any type to milliseconds UTC; None if unreadable."""
    if stamp.__class__ is bool or not isinstance(stamp, (str, int, float)):
        return None
    instant = parse_time(stamp)
    return instant if instant is not None and -INT64 <= instant < INT64 else None


Decode = Callable[[bytes], Reading | None]
Why = Callable[[bytes], str | None]
Inspect = Callable[[bytes, Reading | None], tuple[object, bool]]
"""(record, its reading) -> (its time or arrival field of any type or None, whether it looks like this format)"""


def decode_all(
    raws: Iterable[bytes], decode: Decode, inspect: Inspect, error: RecordingError, why: Why = lambda _: None
) -> Iterator[Recorded]:
    """Yield the decoded records. Raises `error` at the end if there are records and none has this format.

    why   says why a record is undecodable
    """
    seen = matched = False
    for raw in raws:
        seen = True
        reading = decode(raw)
        stamp, matches = inspect(raw, reading)
        matched = matched or matches
        yield Recorded(raw, reading, arrival_ms(stamp), why(raw) if reading is None else None)
    if seen and not matched:
        raise error


def wrong_format(path: str, name: str, expected: str) -> RecordingError:
    """Return the error for a file in which no record has the given format."""
    return RecordingError(path, f"has no {name} record", f"name the file's format, or use a file of {expected}")
