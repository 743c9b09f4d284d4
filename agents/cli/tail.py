"""`hatcast tail`: follow the releases."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TypedDict, Unpack

import click
from rich.console import Console
from rich.text import Text

from hatcast.agents.cli.files import check_one_output, output_option, report_written
from hatcast.agents.cli.options import config_option, json_option
from hatcast.agents.cli.output import check_reader, write_output
from hatcast.agents.cli.signals import stop_on_signals
from hatcast.agents.cli.tail_answers import answer_row, header
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
    running: bool
    from_beginning: bool
    seconds: float | None
    most: int | None
    policy: str | None
    output: Path | None


@click.command(epilog="Example:  hatcast tail --from-beginning --json --for 10 > releases.jsonl")
@config_option
@json_option
@click.option("--means", is_flag=True, help="Only the means: hats.means.")
@click.option("--queries", is_flag=True, help="Only the answers to queries over days, as a table: hats.queries.")
@click.option("--estimates", is_flag=True, help="Only the estimates of all cells: hats.estimates.")
@click.option("--running", is_flag=True, help="Only the running means: hats.running.")
@click.option("--policy", metavar="NAME", help="Only the records of this policy.")
@click.option("--from-beginning", is_flag=True, help="Also show earlier releases.")
@click.option("--for", "seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after this many seconds.")
@click.option("--max", "most", type=click.IntRange(min=1), help="Stop after this many releases.")
@output_option("the records")
def command(**given: Unpack[_Options]) -> None:
    """Show new means and answers to queries, or new estimates or running means, until Ctrl-C or SIGTERM.

    Each line begins with the record's policy: the topics have those of all policies. With --json each line is the
    original record; a record with "query" is the answer to a query. A release may appear twice, with the same
    release_id and the same bytes.

    With -o the records are written to a file and not printed. JSON lines and CSV grow line by line; a Parquet or
    GeoJSON file gets its name at the end. With records of several topics, as by default, the first column of CSV and
    Parquet is `table`: releases, answers, estimates or running.
    """
    check_one_output(given["output"], as_json=given["as_json"])
    settings = load_settings(given["config"])
    chosen = _chosen(given)
    topics = [getattr(settings.topics, name) for name in chosen]
    # The Kafka client may swallow a KeyboardInterrupt: an event stops the loop reliably.
    with stop_on_signals() as stopping, _open_output(given, chosen) as write:

        def is_stopping() -> bool:
            if given["output"] is None:
                check_reader()
            return stopping.is_set()

        records = follow(
            settings, topics, is_stopping, from_beginning=given["from_beginning"], seconds=given["seconds"]
        )
        for value in islice(_of_policy(records, given["policy"]), given["most"]):
            write(value)


@contextmanager
def _open_output(given: _Options, chosen: list[str]) -> Iterator[Callable[[bytes], object]]:
    """Yield the function that writes a record: to the file, or to standard output as JSON or as a line of text."""
    output = given["output"]
    if output is None:
        yield (lambda value: write_output(value + b"\n")) if given["as_json"] else _printer(chosen)
        return
    from hatcast.agents.tables.columns import layout_of
    from hatcast.agents.tables.files import open_growing_file
    from hatcast.agents.tables.records import TABLES

    written = [0, 0]  # left out, written

    with open_growing_file(output, layout_of([TABLES[name] for name in chosen])) as file:

        def write(value: bytes) -> None:
            written[file.write(value)] += 1

        yield write
    report_written(output, written[1], written[0])


def _printer(chosen: list[str]) -> Callable[[bytes], object]:
    """Return the function that prints a record as a line of text."""
    console = Console(highlight=False, soft_wrap=True)
    line = release_line if chosen != ["queries"] else answer_row
    if line is answer_row:
        console.print(header())
    return lambda value: console.print(line(read_release(value)))


def _of_policy(records: Iterator[bytes], policy: str | None) -> Iterator[bytes]:
    """Return the records of a policy, or all if it is None."""
    if policy is None:
        return records
    return (value for value in records if (read := read_release(value)) is not None and read.policy == policy)


def _chosen(given: _Options) -> list[str]:
    """Return the keys of the topics to show: those that are named, by default means and answers."""
    named = (
        ("means", given["means"]),
        ("queries", given["queries"]),
        ("estimates", given["estimates"]),
        ("running", given["running"]),
    )
    return [name for name, is_named in named if is_named] or ["means", "queries"]


def release_line(release: DisplayedRelease | None) -> Text:
    """Return a release, or the answer to a query, as a line of text."""
    if release is None:
        return Text("a record that is not a release", style="dim")
    dates = f"{release.first_date} to {release.date}" if release.days > 1 else release.date
    line = Text.assemble((release.policy, "blue"), "  ") if release.policy else Text()
    hour = f"until {release.end[11:16]}" if release.running_id else f"{release.slot}-{release.end[11:16]}"
    line.append(f"{dates} {hour}  ").append(release.cell, "cyan").append("  ")
    if isinstance(release.query, str) and release.query:
        line.append(f"{release.query}  ", style="magenta")
    if release.road is not None:
        return _with_estimate(line, release, release.road)
    if release.running_id:
        return _with_running_mean(line, release)
    if not isinstance(release.mean, Decimal):
        return line.append(release.status + (f" ({release.reason})" if release.reason else ""), style="yellow")
    line.append(f"{release.mean!s:>8} {release.unit}{_named(release)}", style="bold")
    if release.interval95 is not None:
        low, high = release.interval95
        line.append(f"  {low} to {high}".ljust(22), style="dim")
    for value in release.values[1:]:  # the first is the speed, which the record's own fields are about
        line.append(f"  {value.name} {value.mean} {value.unit}", style="bold")
        line.append("  {} to {}".format(*value.interval95), style="dim")
    line.append(f"  {_kind(release)}", style="green")
    if release.days_used < release.days:
        line.append(f" from {release.days_used} of {release.days} days", style="yellow")
    for name, group in release.groups.items():
        line.append(f"  {name} {group.mean} ({group.users:,} users)")
    return line


def _kind(release: DisplayedRelease) -> str:
    """Return the status; of a release that is not of one slot, which time it is about."""
    if is_settlement(release.release_id):  # it may be about one hour, of which there is a release too
        return "settlement"
    return release.status if release.running is None else f"running mean since {release.running.horizon}"


def _named(record: DisplayedRelease) -> str:
    """Return the name of a value other than the speed, of a mean of it."""
    return f" {record.value}" if record.value and not record.unit.startswith("vehicles") else ""


def _with_estimate(line: Text, estimate: DisplayedRelease, road: DisplayedNormal) -> Text:
    """Add an estimate: the road's mean speed, and that of the HAT if there is a release."""
    _add_normal(line, estimate, road)
    if isinstance(estimate.mean, DisplayedNormal):
        line.append(f"  mean of buses {estimate.mean.value:6.2f}")
    return line.append(f"  {estimate.stage}", style="green")


def _with_running_mean(line: Text, running: DisplayedRelease) -> Text:
    """Add a running mean: its name, the mean, and the number of slots in it."""
    line.append(f"{running.name}  ", style="magenta")
    if not isinstance(running.mean, DisplayedNormal):
        return line.append("no slot with a number", style="yellow")
    _add_normal(line, running, running.mean)
    return line.append(f"  mean of {running.slots} slot{'' if running.slots == 1 else 's'}", style="green")


def _add_normal(line: Text, record: DisplayedRelease, normal: DisplayedNormal) -> None:
    low, high = normal.interval95
    # With two decimals each, so that they are below each other: the record may have fewer.
    line.append(f"{normal.value:8.2f} {record.unit}{_named(record)}", style="bold")
    line.append(f"  {low:6.2f} to {high:6.2f}".ljust(22), style="dim")
