"""`hatcast doctor`: check the configuration and the services."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from hatcast.agents.cli.options import accept_gap_option, accept_volatile_state_option, config_option, json_option
from hatcast.agents.doctor.brought_topic import SAMPLE_RECORDS, examine_topic
from hatcast.agents.doctor.checks import Accepted, Check, CheckState
from hatcast.agents.doctor.preflight import examine
from hatcast.agents.tables.terminal import print_fitted, table
from hatcast.stream.readings.formats import FORMATS

_STYLES = {CheckState.OK: "green", CheckState.WARNING: "yellow", CheckState.PROBLEM: "bold red"}


@click.command(epilog="Example:  hatcast doctor --topic positions --format hfp")
@config_option
@json_option
@accept_gap_option
@accept_volatile_state_option
@click.option("--topic", metavar="NAME", help="Check only a telemetry topic that exists: settings and newest records.")
@click.option(
    "--format",
    "feed",
    type=click.Choice(list(FORMATS)),
    help="Format of that topic's records.  [default: topics.telemetry_format]",
)
@click.option(
    "--records",
    type=click.IntRange(1, 1_000_000),
    default=SAMPLE_RECORDS,
    help="Number of that topic's newest records to read.",
)
def command(*, config: Path, as_json: bool, topic: str | None, feed: str | None, **chosen: Any) -> None:
    """Check the configuration, brokers, topics, Redis, clocks and stored policy; name the fix for each problem.

    Changes nothing. Exits with 1 if a problem would keep a worker from starting or break its guarantees. Give it the
    options that the workers have. What --topic prints counts raw records: it is for operators, not to be published.
    """
    if feed is not None and topic is None:
        raise click.UsageError("--format is the format of --topic NAME")
    if topic is None:
        checks = list(
            examine(config, Accepted(gap=chosen["accept_gap"], volatile_state=chosen["accept_volatile_state"]))
        )
    else:
        checks = list(examine_topic(config, topic, feed, chosen["records"]))
    problems = sum(check.state is CheckState.PROBLEM for check in checks)
    if as_json:
        click.echo(msgspec.json.encode({"problems": problems, "checks": checks}))
    else:
        _show(checks)
    if problems:
        sys.exit(1)


def _show(checks: list[Check]) -> None:
    console = Console(highlight=False)
    rows = ((Text(each.name), Text(each.state, _STYLES[each.state]), Text(each.found)) for each in checks)
    print_fitted(console, table("", "", ("check", "state", "found"), rows, left=3))
    # Below the table and unwrapped, so that commands can be copied.
    for check in checks:
        if check.fix:
            line = Text.assemble((check.state, _STYLES[check.state]), f"  {check.name}: {check.fix}")
            console.print(line, soft_wrap=True)
