"""`hatcast tail`: follow the releases."""

import signal
import sys
import threading
from itertools import islice
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from agents.cli.options import config_option, json_option
from agents.cli.output import write_all
from agents.settings import load_settings
from agents.tail import Shown, follow, read_release


@click.command(epilog="Example:  hatcast tail --from-beginning --json --for 10 > releases.jsonl")
@config_option
@json_option
@click.option("--from-beginning", is_flag=True, help="Show what was published before, too.")
@click.option("--for", "seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after so many seconds.")
@click.option("--max", "most", type=click.IntRange(min=1), help="Stop after so many releases.")
def command(config: Path, *, as_json: bool, from_beginning: bool, seconds: float | None, most: int | None) -> None:
    """Show releases as they are published, until Ctrl-C.

    With --json each line is a record's bytes as they stand on the topic. A release may come twice: then its
    release_id and all its bytes are equal.
    """
    settings = load_settings(config)
    console = Console(highlight=False, soft_wrap=True)
    stopping = threading.Event()
    # Raised anywhere in the Kafka client, KeyboardInterrupt may be swallowed there: this is how one leaves for sure.
    signal.signal(signal.SIGINT, lambda _signal, _frame: stopping.set())
    for value in islice(follow(settings, stopping.is_set, from_beginning=from_beginning, seconds=seconds), most):
        if as_json:
            write_all(sys.stdout.fileno(), value + b"\n")
        else:
            console.print(_line(read_release(value)))


def _line(release: Shown | None) -> Text:
    if release is None:
        return Text("a record that is no release", style="dim")
    line = Text.assemble(f"{release.date} {release.slot}-{release.end[11:16]}  ", (release.cell, "cyan"), "  ")
    if release.mean is None:
        return line.append(release.status, style="yellow")
    line.append(f"{release.mean!s:>8} {release.unit}", style="bold")
    if release.interval95 is not None:
        low, high = release.interval95
        line.append(f"  {low} to {high}".ljust(22), style="dim")
    return line.append(f"  {release.status}", style="green")
