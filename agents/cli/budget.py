"""`hatcast budget`: the ledger by day, what a policy can cost in words, the papers' report, a ledger's backup."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from redis.exceptions import RedisError
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.cli.budget_horizon import Paragraph
from hatcast.agents.cli.budget_tables import BudgetTable, query_table, report_cost_table, today_line
from hatcast.agents.cli.options import FILE, config_option, json_option
from hatcast.agents.cli.report import output_option, write_records
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.redis.connection import CONNECT_SECONDS, connect_redis_async, redis_error
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.tables.terminal import print_fitted
from hatcast.stream.budget import LEAST_USER_DAYS, REPORT, report_table
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import DAYS_MAX
from hatcast.stream.release.budget_records import budget_record

_EXPLAIN_TIMEOUT_S: Final = 2.0  # it also works without the ledger
_WIDTH_MAX: Final = 100
_REPORT_TEXT: Final = """\
The report adds up its two monthly queries only. The mean of every HAT, hour by hour, reads the same bus's day too, \
and losses add up: a bus in {k} HATs loses {k} x {epsilon:g} more, so its day costs {whole:.3f}, not {cumulative:.3f}.
Here K and N are settings, max_hats_per_day and min_n. The report computes both from its data, which leaks information \
and does not bind the next day. The only N that it prints is the least, {least}: as min_n it would charge \
{charged:.3f} for query 1. {n} is the one N, the same in all {k} HATs, that gives its {q1:.3f}."""

ledger_option = click.option(
    "--ledger", type=FILE, metavar="FILE", help="Read this ledger file of `hatcast batch --ledger` and not Redis."
)


@click.group(epilog="Each has an example:  hatcast budget explain --help")
def command() -> None:
    """Show the privacy budget: what is spent, what a bus's day can lose, and a backup of a ledger file."""


@command.command(
    short_help="The spent budget, by day.", epilog="Example:  hatcast budget show --ledger day.ledger -o days.csv"
)
@config_option
@json_option
@ledger_option
@output_option("the records of the days", has_places=False, of_records=True)
def show(*, config: Path, as_json: bool, ledger: Path | None, output: Path | None) -> None:
    """Show the spent budget by day: the most that one bus's day may have cost, its limit, what today can still cost.

    With --json the days are the records of hats.budget, and -o writes them to a file. With --ledger they are those of a
    file of `hatcast batch`.
    """
    settings = load_settings(config)
    days, next_policy = _read_days(settings, ledger)
    if output is not None:
        from hatcast.agents.tables.records import BUDGET_DAYS

        write_records(output, [BUDGET_DAYS], map(msgspec.json.encode, days))
    elif as_json:
        click.echo(msgspec.json.encode(days))
    else:
        _show(settings.policy, days, next_policy)


@command.command(
    short_help="What one bus's day can lose, in words.", epilog="Example:  hatcast budget explain --days 31"
)
@config_option
@json_option
@ledger_option
@click.option("--days", type=click.IntRange(1, DAYS_MAX), default=30, help="Also over so many days.")
def explain(*, config: Path, as_json: bool, ledger: Path | None, days: int) -> None:
    """Explain in words what one bus's day can lose, by the policy; then what it has lost. Works without Redis."""
    settings = load_settings(config)
    found: list[dict[str, Any]] | str
    try:
        found, _ = _read_days(settings, ledger, _EXPLAIN_TIMEOUT_S)
    except HatcastError as error:
        if ledger is not None:  # which was named; Redis need not be there
            raise
        found = str(error)
    if as_json:
        click.echo(msgspec.json.encode(figures(settings.policy, days, found)))
        return
    console = _console()
    for paragraph in explanation(settings.policy, days, found):
        _show_paragraph(console, paragraph)


@command.command(
    short_help="What one bus's day costs in the papers' technical report.", epilog="Example:  hatcast budget report"
)
@json_option
def report(*, as_json: bool) -> None:
    """Recompute what one bus's day costs in the technical report that hatcast follows, next to the total cost.

    The report is [T] of docs/specification/estimators.md. Needs no configuration.
    """
    costs = report_table(REPORT)
    if as_json:
        parts = {"query_1": float(costs.query_1), "query_2": float(costs.query_2)}
        click.echo(
            msgspec.json.encode(
                {
                    "settings": {
                        "max_hats_per_day": REPORT.most_hats,
                        "upper_bound": float(REPORT.upper_bound),
                        "user_days": REPORT.user_days,
                        "days": REPORT.days,
                        "scale": float(REPORT.scale),
                        "epsilon": float(REPORT.epsilon),
                    },
                    "report": parts | {"cumulative": float(costs.cumulative)},
                    "in_all": {"hats": float(costs.hats)} | parts | {"cumulative": float(costs.total)},
                }
            )
        )
        return
    console = _console()
    print_fitted(console, report_cost_table(REPORT))
    least = replace(REPORT, user_days=LEAST_USER_DAYS)
    text = _REPORT_TEXT.format(
        least=least.user_days,
        charged=float(report_table(least).query_1),
        k=REPORT.most_hats,
        n=REPORT.user_days,
        epsilon=float(REPORT.epsilon),
        q1=float(costs.query_1),
        cumulative=float(costs.cumulative),
        whole=float(costs.total),
    )
    console.print(text, highlight=False)


@command.command(
    short_help="Copy a ledger file of `hatcast batch`, checked.",
    epilog="Example:  hatcast budget backup day.ledger day.ledger.backup",
)
@click.argument("ledger", type=FILE, metavar="LEDGER")
@click.argument("copy", type=FILE, metavar="COPY")
def backup(*, ledger: Path, copy: Path) -> None:
    """Copy LEDGER, a file of `hatcast batch --ledger`, to COPY, checked, in place of an older backup of it."""
    from hatcast.agents.batch.ledger_database import back_up

    days = back_up(ledger, copy)
    click.echo(f"copied {ledger} with {days} day{'' if days == 1 else 's'} to {copy}; it is not private")


def _show(policy: Policy, days: list[dict[str, Any]], next_policy: tuple[str, str] | None) -> None:
    console = Console()
    today = Calendar(policy).local(now_ms()).date().isoformat()
    if days:
        print_fitted(console, BudgetTable(days))
    else:
        console.print("nothing has been released yet")
    console.print(today_line(policy, days, today, next_policy))
    if policy.queries or policy.selection_cost is not None:
        print_fitted(console, query_table(policy, days, today))


def _read_days(
    settings: Settings, ledger: Path | None, timeout_s: float = CONNECT_SECONDS
) -> tuple[list[dict[str, Any]], tuple[str, str] | None]:
    """Return what `read_budget` does, of a ledger file or of Redis."""
    if ledger is None:
        return asyncio.run(read_budget(settings, timeout_s))
    from hatcast.agents.batch.ledger_days import read_ledger

    policy = settings.policy
    with read_ledger(ledger, policy) as file:
        days = [msgspec.json.decode(budget_record(policy, date, file.summary(date))) for date in file.dates]
        return days, file.next_policy


async def read_budget(
    settings: Settings, timeout_s: float = CONNECT_SECONDS
) -> tuple[list[dict[str, Any]], tuple[str, str] | None]:
    """Return the records of `hats.budget`, made from the ledger in Redis, oldest day first, and the next policy.

    It has name and first date; None: there is none. Raises HatcastError.
    """
    policy = settings.policy
    redis = await connect_redis_async(settings, timeout_s)
    try:
        ledger = LedgerStore(redis, settings.topics.telemetry, policy)
        days = [
            msgspec.json.decode(budget_record(policy, date, await ledger.summary(date)))
            for date in await ledger.dates()
        ]
        next_policy = await ledger.next_policy()
    except RedisError as error:
        raise redis_error(settings, error) from None
    finally:
        await redis.aclose()
    return days, None if next_policy is None else (next_policy.name, next_policy.from_date)


def _show_paragraph(console: Console, paragraph: Paragraph) -> None:
    console.print(paragraph.heading, style="bold")
    if paragraph.sums:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for row in paragraph.sums:
            table.add_row(*row)
        print_fitted(console, Padding(table, (0, 0, 1, 2)))
    console.print(Padding(paragraph.text, (0, 0, 1, 2)), highlight=False)


def _console() -> Console:
    console = Console()
    return Console(width=min(console.width, _WIDTH_MAX))
