"""Formats whose readings carry other values than the speed, such as a delay."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import BinaryIO

from hatcast.stream.readings.formats.interface import Format, Recorded
from hatcast.stream.readings.reading import Reading, ValuesReading

Extract = Callable[[bytes], Mapping[str, float | str] | None]
"""One record -> its further values by name, numbers or texts of `NOT_FINITE`; None if one is missing"""


def with_values(feed: Format, extract: Extract) -> Format:
    """Return a format whose readings are `ValuesReading`s. A record that lacks a value is undecodable."""

    def extended(reading: Reading | None, raw: bytes) -> Reading | None:
        others = None if reading is None else extract(raw)
        if reading is None or others is None:
            return None
        return ValuesReading(
            reading.vehicle, reading.time, reading.lat, reading.lon, reading.speed, reading.unit, dict(others)
        )

    def decode(value: bytes) -> Reading | None:
        return extended(feed.decode(value), value)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        for recorded in feed.records(stream, path):
            yield replace(recorded, reading=extended(recorded.reading, recorded.raw))

    speedless = None if feed.without_speed is None else with_values(feed.without_speed, extract)
    return replace(feed, decode=decode, records=records, without_speed=speedless)


def with_decoder(feed: Format, decode: Callable[[bytes], Reading | None]) -> Format:
    """Return a format with another decoder of its records."""

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        for recorded in feed.records(stream, path):
            yield replace(recorded, reading=decode(recorded.raw))

    return replace(feed, decode=decode, records=records, without_speed=None)
