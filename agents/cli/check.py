"""`hatcast check`: describe a file, how its records are read, and which are left out. It publishes nothing."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise
from math import ceil
from pathlib import Path
from statistics import median
from typing import Final

import click

from hatcast.agents.cli.options import PATH
from hatcast.agents.cli.recordings import format_options
from hatcast.agents.demo.defaults import RECORDED_ZONES
from hatcast.agents.kafka.dump import DUMP
from hatcast.agents.recordings.containers import head_of, plain, readable
from hatcast.agents.recordings.files import open_recording, open_records
from hatcast.agents.recordings.parquet import parquet_names
from hatcast.stream.errors import HatcastError, RecordingError, SettingError
from hatcast.stream.readings.formats import CSV, FORMATS, Columns, FormatChoice, first_members, header_line, is_header
from hatcast.stream.readings.magic import container_of, encoding_of
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


@click.command(epilog="Example:  hatcast check export.csv --unit km/h")
@click.argument("file", type=PATH)
@format_options(files="file", also=(DUMP,), derives=False, of="file")
def command(*, file: Path, feed_format: FormatChoice) -> None:
    """Print a file's format, encoding, separator and columns, and which records are left out and why.

    Needs no policy. Evidence of unit and time zone is computed from all vehicles: it is raw data, nothing of it is
    private, and no other command decides by it. The options are those that other commands take for this file.
    """
    click.echo("reads raw data; nothing that it prints is private")
    if not file.is_file():
        raise HatcastError(f"{file}: is not a file; name one")
    _show_layout(file, feed_format)
    if feed_format.name == DUMP.name:
        click.echo("a topic, as `hatcast dump` writes it: `hatcast batch` folds it")
        return
    try:
        _read(file, feed_format, "")
    except SettingError as error:
        if error.key != "unit":
            raise
        assumed = replace(feed_format, columns=replace(feed_format.columns or Columns(), unit="km/h"))
        _read(file, assumed, " (unit not stated: read as km/h; other commands need --unit)")


def _show_layout(file: Path, choice: FormatChoice) -> None:
    """Print format, container, encoding, separator and columns."""
    with readable(str(file)), file.open("rb") as opened:
        container, names = container_of(head_of(opened)), list[str]()
        if container == "Parquet":
            head, names = b"", parquet_names(opened, str(file))
        else:
            head = plain(opened, str(file)).read(_LOOKED_AT)
    click.echo(f"format: {choice.name}" + (f", in {container}" if container else ""))
    columns = choice.columns or Columns()
    if head and not choice.name.startswith("gtfs-rt"):
        encoding = columns.encoding or encoding_of(head)
        click.echo(f"encoding: {encoding}")
        text = head.decode("latin-1" if encoding.startswith("not") else encoding, errors="replace")
        text = text.removeprefix("\ufeff")
        if text.lstrip().startswith(("{", "[")):
            names = first_members(text.encode(errors="replace"), columns)
        elif choice.name == CSV or (choice.name in FORMATS and FORMATS[choice.name].table is not None):
            delimiter, names = header_line(text, columns)
            click.echo(f"separator: {delimiter!r}")
            if columns.numbered or not is_header(names, columns):
                click.echo(f"columns: {len(names)}, without a header")
                return
    if names:
        click.echo(f"columns: {', '.join(names[:_LISTED])}" + (", .." if len(names) > _LISTED else ""))


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
            _show(recording, RECORDED_ZONES.get(choice.name), note)
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


def _show(recording: Recording, zone: str | None, note: str) -> None:
    """Print how many records can be decoded, why the others cannot, and evidence of times, places and speeds.

    zone   time zone of all recordings of the format; None: it has none
    """
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
    if zone is not None:
        click.echo(f"time zone: {zone}, that of the format's only city")
    elif places:
        hours = round(median(lon for _, lon in places) / DEGREES_AN_HOUR)
        click.echo(
            f"time zone: not in a file. The longitude suggests about UTC{hours:+d}, which may be two hours off: give"
            " `hatcast init --timezone` the city's, by name"
        )
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
