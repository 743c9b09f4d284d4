"""`hatcast demo`: run the demo."""

from contextlib import suppress
from pathlib import Path
from typing import TypedDict, Unpack

import click
from rich.console import Console

from hatcast.agents.demo.defaults import TOPIC_NAMES
from hatcast.agents.demo.embedded import Services
from hatcast.stream.readings.formats import FORMATS


class _Options(TypedDict):
    """Parsed command-line options."""

    file: Path | None
    feed_format: str | None
    speedup: float | None
    seconds: float | None
    port: int | None
    config: Path | None
    as_json: bool


@click.command(epilog="Example:  hatcast demo --feed 2017-03-21.csv.gz --format capmetro")
@click.option("--feed", "file", type=click.Path(path_type=Path), metavar="FILE", help="A recording, plain or gzip.")
@click.option("--format", "feed_format", type=click.Choice(list(FORMATS)), help="Format of the recording.")
@click.option(
    "--speedup",
    type=click.FloatRange(min=0),
    help="600: an hour in 6 s; 0: as fast as possible.  [default: 600; a long recording in about a minute]",
)
@click.option("--for", "seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop after this time.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the map; 0: any free port.  [default: 8080, if free]"
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Take [policy] from this hatcast.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print the releases as JSON lines, for programs.")
def command(**given: Unpack[_Options]) -> None:
    """Run everything on this machine: a feed, Kafka, Redis, a worker and a live map; show the releases.

    Without options it follows a synthetic city until Ctrl-C. With --feed it ends when the recording's last slot is
    released. It needs no installation or configuration, and leaves nothing behind.
    """
    if (given["file"] is None) != (given["feed_format"] is None):
        raise click.UsageError("give --feed and --format together: a file and its format")
    # Ctrl-C ends the command silently until the demo's event loop handles it. The services start during the imports.
    with suppress(KeyboardInterrupt), Services(TOPIC_NAMES) as services:
        from hatcast.agents.demo.rendering import Json, Lines, Screen
        from hatcast.agents.demo.run import DemoOptions, run_demo

        console = Console()
        live = console.is_terminal and not console.is_dumb_terminal
        view = Json() if given["as_json"] else Screen(console) if live else Lines()
        options = DemoOptions(
            config=given["config"],
            file=given["file"],
            format=given["feed_format"],
            speedup=given["speedup"],
            seconds=given["seconds"],
            port=given["port"],
        )
        run_demo(services, options, view)
