"""`hatcast feed`: send telemetry from live sources, from a recording, or from a synthetic city."""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from hatcast.agents.cli import feed_live
from hatcast.agents.cli.options import (
    METRICS_LISTEN,
    config_option,
    except_option,
    json_option,
    metrics_listen_option,
    parsed,
    stop_on_signals,
)
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import load_settings
from hatcast.agents.config.tables import Address
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.sources.replay import run_replay
from hatcast.agents.sources.synthetic import CityOptions, run_city
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.readings.reading import parse_time

_INTERRUPTED: Final = 130


@click.group(epilog="Each has an example:  hatcast feed mqtt --help")
def command() -> None:
    """Send telemetry: live from MQTT, GTFS-RT, SIRI or AMQP, a recording, or a synthetic city."""


for _live in (feed_live.mqtt, feed_live.gtfs_rt, feed_live.siri, feed_live.amqp):
    command.add_command(_live)


@command.command(
    short_help="Recordings, with their recorded arrival times.",
    epilog="Example:  hatcast feed replay 2017-03-21.csv.gz --format capmetro --speedup 60",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@format_options(files="files", of="files")
@click.option(
    "--speedup",
    type=click.FloatRange(min=0),
    default=1.0,
    help="60: a recorded hour per minute; 0: as fast as possible.",
)
@click.option("--no-end", is_flag=True, help="Omit the last heartbeat records, which close the last slot.")
@except_option
@metrics_listen_option
@config_option
@json_option
def replay(
    *,
    files: tuple[str, ...],
    feed_format: FormatChoice,
    speedup: float,
    no_end: bool,
    left_out: frozenset[str] | None,
    **shared: Any,
) -> None:
    """Send recordings in the order of their recorded arrival times; plain, packed or Parquet files.

    The topic must retain records of that age: telemetry_retention = "none". Ctrl-C stops it after the records sent.
    """
    settings = load_settings(shared["config"])
    with (
        open_recording(files, checked_format(feed_format, settings.policy, files)) as recording,
        stop_on_signals() as stop,
        _operator_server(shared["metrics_listen"]),
    ):
        summary = run_replay(settings, recording, speedup, stop, with_end=not no_end, left_out=left_out or frozenset())
    summary.show(as_json=shared["as_json"])
    if not summary.finished:
        sys.exit(_INTERRUPTED)


def _place(text: str) -> tuple[float, float]:
    lat, lon = (float(part) for part in text.split(","))
    if not (abs(lat) <= 85 and abs(lon) <= 180):
        raise ValueError
    return lat, lon


def _instant(text: str) -> int:
    instant = parse_time(text)
    if instant is None or not 0 < instant <= now_ms():
        raise ValueError
    return instant


@command.command(
    short_help="A synthetic city of buses.",
    epilog="Example:  hatcast feed synthetic --vehicles 1000 --speedup 60 --for 300",
)
@click.option("--vehicles", type=click.IntRange(1, 100_000), default=300)
@click.option(
    "--speedup",
    type=click.FloatRange(min=0),
    default=1.0,
    help="60: an hour per minute, from a past time on, in real time once it reaches now. 0: as fast as possible.",
)
@click.option("--for", "seconds", type=click.FloatRange(min=0), help="Stop after this many seconds.")
@click.option(
    "--start",
    callback=parsed(_instant, 'write a past time with its offset, such as "2026-01-31T06:00:00+05:30"'),
    metavar="TIME",
    help="Start of the city's time: ISO 8601 with an offset.",
)
@click.option(
    "--centre",
    callback=parsed(_place, 'write degrees as "21.2,72.8": latitude within 85, longitude within 180'),
    metavar="LAT,LON",
    help="Centre of the city.  [default: Surat, India]",
)
@click.option("--seed", type=int, help="Seed: the same city and traffic each time.")
@metrics_listen_option
@config_option
@json_option
def synthetic(
    *, config: Path, as_json: bool, seconds: float | None, metrics_listen: Address | None, **chosen: Any
) -> None:
    """Send the readings of a synthetic city of buses, until Ctrl-C or --for.

    Rush hours follow the policy's time zone. With a speed-up it starts 30 days ago, or half of the topic's retention.
    """
    settings = load_settings(config)
    with stop_on_signals(seconds) as stop, _operator_server(metrics_listen):
        summary = run_city(settings, CityOptions(**chosen), stop)
    summary.show(as_json=as_json)


def _operator_server(listen: Address | None) -> AbstractContextManager[None]:
    """Serve metrics and health checks during the feed."""
    if listen is None:
        return nullcontext()
    from hatcast.agents.monitoring.declarations import Process
    from hatcast.agents.monitoring.logs import configure_logs
    from hatcast.agents.monitoring.server import serve_in_thread

    configure_logs()
    return serve_in_thread(listen, Process.BRIDGE, METRICS_LISTEN)
