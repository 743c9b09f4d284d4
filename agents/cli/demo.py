"""`hatcast demo`: run the demo."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from hatcast.agents.cli.options import FILE, PATH
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.demo.defaults import TOPICS
from hatcast.agents.demo.embedded import Addresses, Services
from hatcast.stream.readings.formats import FormatChoice


@click.command(epilog="Example:  hatcast demo --feed 2017-03-21.csv.gz --format capmetro")
@click.option(
    "--feed",
    "files",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="A recording, plain, packed or Parquet. Repeatable: all are sent together, in the order of arrival.",
)
@format_options(files="files", of="recordings")
@click.option(
    "--speedup",
    type=click.FloatRange(min=0),
    help="600: an hour in 6 s; 0: as fast as possible.  [default: 600, of a city with --hybrid 300; a long recording in"
    " about a minute]",
)
@click.option("--for", "seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop after this time.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the map; 0: any free port.  [default: 8080, if free]"
)
@click.option("--config", type=PATH, metavar="FILE", help="Take [policy] from this hatcast.toml.")
@click.option(
    "--hybrid",
    is_flag=True,
    help="Blend readings of vehicles that trust the operator with noisy reports of the others' devices, by the"
    " estimator pwh (docs/hybrid.md) or by the policy in --config.",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1),
    metavar="C",
    help="Share of the vehicles that trust the operator, for --hybrid; the others get devices.  [default: 0.1]",
)
@click.option("--keep", is_flag=True, help="Keep the map after the end of the recordings, until Ctrl-C or --for.")
@click.option(
    "--gtfs",
    type=FILE,
    metavar="FILE",
    help="A timetable (zip): the map draws its routes and stops; of recordings, the tracker knows its speeds.",
)
@click.option("--basemap", type=FILE, metavar="FILE", help="A PMTiles archive: the map draws it under the hexagons.")
@click.option("--json", "as_json", is_flag=True, help="Print releases and answers as JSON lines, for programs.")
def command(*, files: tuple[Path, ...], feed_format: FormatChoice | None, as_json: bool, **given: Any) -> None:
    """Run everything on this machine: a feed, Kafka, Redis, a worker and a live map; show the releases.

    Without options it follows a synthetic city until Ctrl-C. With --feed it ends when the last slot of the recordings
    is released, and the queries over days are answered whose periods they complete. It needs no installation or
    configuration, and leaves nothing behind.

    With --hybrid, or a --config whose policy takes reports of devices, only a share of the vehicles sends readings.
    Each of the others has a device, the code of `hatcast device`, which adds its own noise before it sends.
    """
    if feed_format is not None and not files:
        raise click.UsageError("--format is for --feed")
    if given["share"] is not None and not given["hybrid"] and given["config"] is None:
        raise click.UsageError("--share is for --hybrid: give both")
    if given["keep"] and not files:
        raise click.UsageError("--keep is for recordings: the synthetic city, and its map, run until Ctrl-C")
    # Ctrl-C ends the command silently until the demo's event loop handles it. The services start during the imports.
    with suppress(KeyboardInterrupt), Services(TOPICS.names) as services:
        from hatcast.agents.demo.defaults import demo_settings
        from hatcast.agents.demo.rendering import Json, Lines, Screen
        from hatcast.agents.demo.run import run_demo
        from hatcast.agents.demo.state import DemoOptions

        console = Console()
        live = console.is_terminal and not console.is_dumb_terminal
        view = Json() if as_json else Screen(console) if live else Lines()
        given["hybrid"] |= given["share"] is not None
        options = DemoOptions(files=files, format=feed_format, **given)
        if feed_format is not None:  # show how named columns are read, before the demo begins
            settings = demo_settings(Addresses("", ""), options.config, feed_format, hybrid=options.hybrid)
            checked_format(feed_format, settings.policy, files)
        run_demo(services, options, view)
