"""`hatcast budget`: show the ledger, by day."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

import click
import msgspec
from redis.exceptions import RedisError
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.cli.budget_tables import BudgetTable, query_table, report_cost_table, today_line
from hatcast.agents.cli.budget_words import Paragraph
from hatcast.agents.cli.files import check_one_output, output_option, write_records
from hatcast.agents.cli.options import config_option, json_option
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.redis.connection import CONNECT_SECONDS, connect_redis_async, redis_error
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.stream.budget.report_table import LEAST_USER_DAYS, REPORT, report_table
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query_keys import DAYS_MAX
from hatcast.stream.release.spending import budget_record

_DAYS: Final = 30
_EXPLAIN_TIMEOUT_S: Final = 2.0  # --explain also works without the ledger
_WIDTH_MAX: Final = 100
_REPORT_TEXT: Final = """\
The report adds up its two monthly queries only. The mean of every HAT, hour by hour, reads the same bus's day too, \
and losses add up: a bus in {k} HATs loses {k} x {epsilon:g} more, so its day costs {whole:.3f}, not {cumulative:.3f}.
Here K and N are settings, max_hats_per_day and min_n. The report computes both from its data, which leaks information \
and does not bind the next day. The only N that it prints is the least, {least}: as min_n it would charge \
{charged:.3f} for query 1. {n} is the one N, the same in all {k} HATs, that gives its {q1:.3f}."""


class _Options(TypedDict):
    """Parsed command-line options."""

    config: Path
    as_json: bool
    explain: bool
    days: int | None
    report: bool
    ledger: Path | None
    copy: Path | None
    output: Path | None


@click.command(epilog="Example:  hatcast budget --explain --days 31")
@config_option
@json_option
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read this ledger file of `hatcast batch --ledger` and not Redis.",
)
@click.option(
    "--backup",
    "copy",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="COPY",
    help="With --ledger: copy the file to COPY, checked, in place of an older backup of it.",
)
@click.option("--explain", is_flag=True, help="Explain in words what one bus's day can lose. Works without Redis.")
@click.option(
    "--days", type=click.IntRange(1, DAYS_MAX), help=f"With --explain: also over this many days.  [default: {_DAYS}]"
)
@click.option(
    "--report",
    is_flag=True,
    help="Recompute what one bus's day costs in the technical report that hatcast follows"
    " (docs/specification/estimators.md, [T]), next to the total cost. Needs no configuration.",
)
@output_option("the records of the days", has_places=False)
def command(**given: Unpack[_Options]) -> None:
    """Show the spent budget by day: the most that one bus's day may have cost, its limit, what today can still cost.

    With --json the days are the records of hats.budget, and -o writes them to a file. With --ledger they are those of a
    file of `hatcast batch`.
    """
    _check_usage(given)
    if given["copy"] is not None:
        _back_up(given)
        return
    if given["report"]:
        _report(as_json=given["as_json"])
        return
    settings = load_settings(given["config"])
    if given["explain"]:
        _explain(settings, given["days"] or _DAYS, given["ledger"], as_json=given["as_json"])
        return
    days, next_policy = _read_days(settings, given["ledger"])
    if given["output"] is not None:
        from hatcast.agents.tables.records import BUDGET_DAYS

        write_records(given["output"], BUDGET_DAYS, map(msgspec.json.encode, days))
    elif given["as_json"]:
        click.echo(msgspec.json.encode(days))
    else:
        _show(settings.policy, days, next_policy)


def _check_usage(given: _Options) -> None:
    if given["explain"] and given["report"]:
        raise click.UsageError("choose one of --explain and --report")
    if given["days"] is not None and not given["explain"]:
        raise click.UsageError("--days belongs to --explain")
    if given["report"] and given["ledger"] is not None:
        raise click.UsageError("--report has the settings of a technical report: leave --ledger out")
    check_one_output(given["output"], as_json=given["as_json"])
    if given["output"] is not None and (given["explain"] or given["report"] or given["copy"] is not None):
        raise click.UsageError("-o writes the days of a ledger: leave --explain, --report and --backup out")


def _show(policy: Policy, days: list[dict[str, Any]], next_policy: tuple[str, str] | None) -> None:
    console = Console()
    today = Calendar(policy).local(now_ms()).date().isoformat()
    if days:
        console.print(BudgetTable(days))
    else:
        console.print("nothing has been released yet")
    console.print(today_line(policy, days, today, next_policy))
    if policy.queries or policy.selection_cost is not None:
        console.print(query_table(policy, days, today))


def _back_up(given: _Options) -> None:
    from hatcast.agents.batch.ledger_database import back_up

    ledger, copy = given["ledger"], given["copy"]
    if ledger is None or copy is None:
        raise click.UsageError("--backup copies a ledger file: name it with --ledger")
    if given["explain"] or given["report"] or given["as_json"]:
        raise click.UsageError("--backup shows nothing: leave --explain, --report and --json out")
    days = back_up(ledger, copy)
    click.echo(f"copied {ledger} with {days} day{'' if days == 1 else 's'} to {copy}; it is not private")


async def read_budget(settings: Settings, timeout_s: float = CONNECT_SECONDS) -> list[dict[str, Any]]:
    """Return the records of `hats.budget`, made from the ledger, oldest day first. Raises HatcastError."""
    days, _ = await _read(settings, timeout_s)
    return days


def _read_days(
    settings: Settings, ledger: Path | None, timeout_s: float = CONNECT_SECONDS
) -> tuple[list[dict[str, Any]], tuple[str, str] | None]:
    """Return the records, and (name, first date) of the next policy, from a ledger file or from Redis."""
    if ledger is None:
        return asyncio.run(_read(settings, timeout_s))
    from hatcast.agents.batch.ledger_days import read_ledger

    policy = settings.policy
    with read_ledger(ledger, policy) as file:
        days = [msgspec.json.decode(budget_record(policy, date, file.summary(date))) for date in file.dates]
        return days, file.next_policy


async def _read(
    settings: Settings, timeout_s: float = CONNECT_SECONDS
) -> tuple[list[dict[str, Any]], tuple[str, str] | None]:
    """Return the records, and (name, first date) of the next policy, if any."""
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


def _explain(settings: Settings, days: int, file: Path | None, *, as_json: bool) -> None:
    ledger: list[dict[str, Any]] | str
    try:
        ledger, _ = _read_days(settings, file, _EXPLAIN_TIMEOUT_S)
    except HatcastError as error:
        if file is not None:  # which was named; Redis need not be there
            raise
        ledger = str(error)
    if as_json:
        click.echo(msgspec.json.encode(figures(settings.policy, days, ledger)))
        return
    console = _console()
    for paragraph in explanation(settings.policy, days, ledger):
        show_paragraph(console, paragraph)


def show_paragraph(console: Console, paragraph: Paragraph) -> None:
    """Print a heading, its sums and its text."""
    console.print(paragraph.heading, style="bold")
    if paragraph.sums:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for row in paragraph.sums:
            table.add_row(*row)
        console.print(Padding(table, (0, 0, 1, 2)))
    console.print(Padding(paragraph.text, (0, 0, 1, 2)), highlight=False)


def _report(*, as_json: bool) -> None:
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
    console.print(report_cost_table(REPORT))
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


def _console() -> Console:
    console = Console()
    return Console(width=min(console.width, _WIDTH_MAX))
