"""`hatcast tail`: follow the releases."""

import signal
import threading
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TypedDict, Unpack

import click
from rich.console import Console
from rich.text import Text

from hatcast.agents.cli.options import config_option, json_option
from hatcast.agents.cli.output import check_reader, write_output
from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.tail import DisplayedNormal, DisplayedRelease, follow, read_release
from hatcast.stream.records.fields import is_settlement


class _Options(TypedDict):
    """Parsed command-line options."""

    config: Path
    as_json: bool
    means: bool
    queries: bool
    estimates: bool
    from_beginning: bool
    seconds: float | None
    most: int | None


@click.command(epilog="Example:  hatcast tail --from-beginning --json --for 10 > releases.jsonl")
@config_option
@json_option
@click.option("--means", is_flag=True, help="Only the means: hats.means.")
@click.option("--queries", is_flag=True, help="Only the answers to queries over days: hats.queries.")
@click.option("--estimates", is_flag=True, help="Only the estimates of all cells: hats.estimates.")
@click.option("--from-beginning", is_flag=True, help="Also show earlier releases.")
@click.option("--for", "seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after this many seconds.")
@click.option("--max", "most", type=click.IntRange(min=1), help="Stop after this many releases.")
def command(**given: Unpack[_Options]) -> None:
    """Show new means and answers to queries, or new estimates, until Ctrl-C.

    With --json each line is the original record; a record with "query" is the answer to a query. A release may appear
    twice, with the same release_id and the same bytes.
    """
    settings = load_settings(given["config"])
    topics = [getattr(settings.topics, name) for name in _chosen(given)]
    console = Console(highlight=False, soft_wrap=True)
    stopping = threading.Event()
    # The Kafka client may swallow a KeyboardInterrupt: an event stops the loop reliably.
    signal.signal(signal.SIGINT, lambda _signal, _frame: stopping.set())

    def is_stopping() -> bool:
        check_reader()
        return stopping.is_set()

    records = follow(settings, topics, is_stopping, from_beginning=given["from_beginning"], seconds=given["seconds"])
    for value in islice(records, given["most"]):
        if given["as_json"]:
            write_output(value + b"\n")
        else:
            console.print(release_line(read_release(value)))


def _chosen(given: _Options) -> list[str]:
    """Return the keys of the topics to show: those that are named, by default means and answers."""
    named = {"means": given["means"], "queries": given["queries"], "estimates": given["estimates"]}
    return [name for name, is_named in named.items() if is_named] or ["means", "queries"]


def release_line(release: DisplayedRelease | None) -> Text:
    """Return a release, or the answer to a query, as a line of text."""
    if release is None:
        return Text("a record that is not a release", style="dim")
    dates = f"{release.first_date} to {release.date}" if release.days > 1 else release.date
    line = Text.assemble(f"{dates} {release.slot}-{release.end[11:16]}  ", (release.cell, "cyan"), "  ")
    if isinstance(release.query, str) and release.query:
        line.append(f"{release.query}  ", style="magenta")
    if release.road is not None:
        return _with_estimate(line, release, release.road)
    if not isinstance(release.mean, Decimal):
        return line.append(release.status + (f" ({release.reason})" if release.reason else ""), style="yellow")
    line.append(f"{release.mean!s:>8} {release.unit}", style="bold")
    if release.interval95 is not None:
        low, high = release.interval95
        line.append(f"  {low} to {high}".ljust(22), style="dim")
    # A query of a settlement may be about one hour, of which there is a release too.
    line.append("  settlement" if is_settlement(release.release_id) else f"  {release.status}", style="green")
    if release.days_used < release.days:
        line.append(f" from {release.days_used} of {release.days} days", style="yellow")
    for name, group in release.groups.items():
        line.append(f"  {name} {group.mean} ({group.users:,} users)")
    return line


def _with_estimate(line: Text, estimate: DisplayedRelease, road: DisplayedNormal) -> Text:
    """Add an estimate: the road's mean speed, and that of the HAT if there is a release."""
    low, high = road.interval95
    line.append(f"{road.value!s:>8} {estimate.unit}", style="bold")
    line.append(f"  {low} to {high}".ljust(22), style="dim")
    if isinstance(estimate.mean, DisplayedNormal):
        line.append(f"  HAT {estimate.mean.value}")
    return line.append(f"  {estimate.stage}", style="green")
