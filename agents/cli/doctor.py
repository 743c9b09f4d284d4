"""`hatcast doctor`: check the configuration and the services."""

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hatcast.agents.cli.options import accept_gap_option, accept_volatile_state_option, config_option, json_option
from hatcast.agents.worker.checks import Accepted, Check, State
from hatcast.agents.worker.preflight import examine

_STYLES = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "bold red"}


@click.command(epilog="Example:  hatcast doctor --config hatcast.toml")
@config_option
@json_option
@accept_gap_option
@accept_volatile_state_option
def command(config: Path, as_json: bool, accept_gap: bool, accept_volatile_state: bool) -> None:
    """Check the configuration, brokers, topics, Redis, clocks and stored policy; name the fix for each problem.

    Changes nothing. Exits with 1 if a problem would keep a worker from starting or break its guarantees. Give it the
    options that the workers have.
    """
    checks = list(examine(config, Accepted(gap=accept_gap, volatile_state=accept_volatile_state)))
    problems = sum(check.state is State.PROBLEM for check in checks)
    if as_json:
        click.echo(msgspec.json.encode({"problems": problems, "checks": checks}))
    else:
        _show(checks)
    if problems:
        sys.exit(1)


def _show(checks: list[Check]) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("check", "state", "found"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(Text(check.name), Text(check.state, style=_STYLES[check.state]), Text(check.found))
    console.print(table)
    # Below the table and unwrapped, so that commands can be copied.
    for check in checks:
        if check.fix:
            line = Text.assemble((check.state, _STYLES[check.state]), f"  {check.name}: {check.fix}")
            console.print(line, soft_wrap=True)
