"""`hatcast check`: describe a file, how its records are read, and which are left out. It publishes nothing."""

import codecs
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise
from math import ceil
from pathlib import Path
from statistics import median
from typing import Final

import click

from hatcast.agents.cli.recordings import format_options
from hatcast.agents.recordings.containers import head_of, plain, readable
from hatcast.agents.recordings.files import open_recording, open_records
from hatcast.stream.errors import HatcastError, RecordingError, SettingError
from hatcast.stream.readings.formats import PARQUET, Columns, FormatChoice, header_of, is_data
from hatcast.stream.readings.magic import container_of
from hatcast.stream.readings.reading import (
    DEGREES_AN_HOUR,
    MISSING,
    UNITS,
    Reading,
    ValueUnits,
    number,
    parse_time,
    place_doubts,
    places_of,
    speed_doubts,
)
from hatcast.stream.readings.recording import Recording
from hatcast.stream.time_zones import time_zone

_LOOKED_AT: Final = 1 << 20  # bytes, for encoding and separator
_SAMPLE: Final = 100_000  # readings, for the evidence
_LISTED: Final = 40  # columns
_STARTS: Final = {b"{": "jsonl", b"[": "jsonl", b"<": "siri", b"/hfp/": "hfp"}
_MARKS: Final = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}


@click.command(epilog="Example:  hatcast check export.csv --unit km/h")
@click.argument("file", type=click.Path(path_type=Path))
@format_options(derives=False, by_name_of="file", of="file")
def command(*, file: Path, feed_format: FormatChoice | None) -> None:
    """Print a file's format, encoding, separator and columns, and which records are left out and why.

    Needs no policy. Evidence of unit and time zone is computed from all vehicles: it is raw data, nothing of it is
    private, and no other command decides by it. The options are those that other commands take for this file.
    """
    click.echo("reads raw data; nothing that it prints is private")
    if not file.is_file():
        raise HatcastError(f"{file}: is not a file; name one")
    with readable(str(file)), file.open("rb") as opened:
        container = container_of(head_of(opened))
        head = b"" if container == "Parquet" else plain(opened, str(file)).read(_LOOKED_AT)
    encoding = _encoding(head)
    choice = feed_format or FormatChoice(_format_of(head, container))
    click.echo(f"format: {choice.name}" + (f", in {container}" if container else ""))
    if container != "Parquet" and not choice.name.startswith("gtfs-rt"):
        click.echo(f"encoding: {encoding}")
    if choice.name == "csv":
        _show_columns(head.decode("latin-1" if encoding.startswith("not") else encoding, errors="replace"), choice)
    if choice.mapped and encoding == "utf-16" and choice.columns is None:
        choice = FormatChoice(choice.name, Columns(encoding=encoding))
    try:
        _read(file, choice, "")
    except SettingError as error:
        if error.key != "unit":
            raise
        assumed = replace(choice, columns=replace(choice.columns or Columns(), unit="km/h"))
        _read(file, assumed, " (unit not stated: read as km/h)")


def _read(file: Path, choice: FormatChoice, note: str) -> None:
    feed = choice.format(ValueUnits(), time_zone("UTC"))
    lacking: RecordingError | None = None
    try:
        with open_records([file], feed) as records:
            next(records(), None)
    except RecordingError as error:
        if feed.without_speed is None:
            raise
        lacking = error  # of the speeds, if the positions can be read
    try:
        with open_recording([file], feed.without_speed or feed) as recording:
            _show(recording, note)
    except RecordingError as error:
        raise (lacking or error) from None
    if lacking is not None:
        click.echo(f"hint: {lacking}")


def sample_of(file: Path, choice: FormatChoice) -> list[Reading]:
    """Return the first readings of a recording."""
    feed = choice.format(ValueUnits(), time_zone("UTC"))
    with open_recording([file], feed.without_speed or feed) as recording:
        return _sample(recording)


def _sample(recording: Recording) -> list[Reading]:
    return [each.reading for _, each in islice(recording, _SAMPLE) if each.reading is not None]


def usual_interval(readings: Sequence[Reading]) -> float | None:
    """Return the median time between two readings of a vehicle, in seconds; None: no vehicle has two."""
    times = dict[str, set[int]]()
    for each in readings:
        if (at := parse_time(each.time)) is not None:
            times.setdefault(each.vehicle, set()).add(at)
    gaps = [later - at for of in times.values() for at, later in pairwise(sorted(of))]
    return median(gaps) / 1000 if gaps else None


def _format_of(head: bytes, container: str | None) -> str:
    if container == "Parquet":
        return PARQUET
    text = head.lstrip(b" \t\r\n\xef\xbb\xbf")
    found = next((name for start, name in _STARTS.items() if text.startswith(start)), None)
    return found or ("gtfs-rt" if head.startswith(b"\x0a") and not _is_text(head) else "csv")


def _encoding(head: bytes) -> str:
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    return marked or ("utf-8" if _is_text(head) else "not UTF-8: latin-1 or cp1252, or no text")


def _is_text(head: bytes) -> bool:
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)  # it may be cut in a character
    except UnicodeDecodeError:
        return False


def _show_columns(text: str, choice: FormatChoice) -> None:
    columns = choice.columns or Columns()
    lines = islice(text.removeprefix("\ufeff").splitlines(), columns.skip, None)
    first = next((line for line in lines if line.strip() and not line.lower().startswith("sep=")), "")
    delimiter, header = header_of(first, columns)
    click.echo(f"separator: {delimiter!r}")
    if columns.numbered or any(map(is_data, header)):
        click.echo(f"columns: {len(header)}, without a header")
        return
    more = ", .." if len(header) > _LISTED else ""
    click.echo(f"columns: {', '.join(header[:_LISTED])}{more}")


def _show(recording: Recording, note: str) -> None:
    """Print how many records can be decoded, why the others cannot, and evidence of times, places and speeds."""
    undecodable = sum(recording.problems.values())
    click.echo(f"records: {len(recording):,}; {len(recording) - undecodable:,} can be decoded")
    for reason, records in recording.problems.most_common():
        click.echo(f"left out: {records:,}: {reason}")
    readings = _sample(recording)
    if not readings:
        return
    click.echo(f"vehicles: {len({each.vehicle for each in readings}):,}")
    naive = sum(parse_time(each.time) is None for each in readings)
    if naive:
        click.echo(f"times: {naive:,} are no instants: name their zone with --times-in")
    if (interval := usual_interval(readings)) is not None:
        click.echo(f"reports: a vehicle sends one every {interval:g} s (median)")
    places = places_of(readings)
    if len(places) < len(readings):
        click.echo(f"places: {len(readings) - len(places):,} are not latitudes and longitudes in degrees")
    if places:
        hours = round(median(lon for _, lon in places) / DEGREES_AN_HOUR)
        click.echo(f"places: the sun's time there is about UTC{hours:+d}")
    _show_speeds(readings, note)
    for doubt in (*place_doubts(readings, "UTC"), *speed_doubts(readings)):
        click.echo(f"hint: {doubt}")


def _show_speeds(readings: Sequence[Reading], note: str) -> None:
    sent = sorted(
        speed * float(UNITS[each.unit]) / 1000
        for each in readings
        if each.speed is not MISSING and abs(speed := number(each.speed)) < 1e6
    )
    if not sent:
        click.echo("speeds: none; --derive-speed derives them from positions")
        return
    greatest = sent[ceil(0.95 * len(sent)) - 1]
    click.echo(f"speeds: median {median(sent):.0f} km/h, 95 % up to {greatest:.0f} km/h{note}")
