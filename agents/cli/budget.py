"""`hatcast budget`: the ledger, by day."""

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from agents.cli.options import config_option, json_option
from agents.redis_connection import connect_redis_async
from agents.settings import Settings, load_settings
from agents.store.ledger import LedgerStore
from stream.release import budget_record

_BAR_WIDTH = 12


@click.command(epilog="Example:  hatcast budget --json")
@config_option
@json_option
def command(config: Path, as_json: bool) -> None:
    """What has been spent, by day: the most that one bus's day may have cost, and its limit."""
    settings = load_settings(config)
    days = asyncio.run(read_budget(settings))
    if as_json:
        click.echo(msgspec.json.encode(days))
    elif not days:
        click.echo("nothing has been released yet")
    else:
        Console().print(budget_table(days))


async def read_budget(settings: Settings) -> list[dict[str, Any]]:
    """The records of `hats.budget`, made from the ledger itself; oldest day first."""
    policy = settings.policy
    redis = await connect_redis_async(settings)
    try:
        ledger = LedgerStore(redis, settings.topics.telemetry, policy)
        return [
            msgspec.json.decode(budget_record(policy, date, await ledger.summary(date)))
            for date in await ledger.dates()
        ]
    finally:
        await redis.aclose()


def budget_table(days: list[dict[str, Any]]) -> Table:
    """The days as a table for people."""
    caption = "in epsilon; 'at most': if every hour left is released; 'as (epsilon, delta)': the same loss, composed"
    table = Table(title="Privacy budget: what one bus's day may have cost", caption=caption)
    if days and "total_limit" in days[-1]:
        table.caption = (
            f"all days of a vehicle together: {days[-1]['total']:g} of {days[-1]['total_limit']:g}\n" + caption
        )
    table.add_column("day", no_wrap=True)
    for column in ("releases", "spent", "limit"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", width=_BAR_WIDTH)
    table.add_column("at most", justify="right", no_wrap=True)
    table.add_column("as (epsilon, delta)", justify="right")
    for day in days:
        finer = day["epsilon_delta"]
        table.add_row(
            day["date"],
            f"{day['releases']:,}",
            f"{day['epsilon_user_day']:g}",
            f"{day['limit']:g}",
            Bar(day["limit"], 0, day["epsilon_user_day"], width=_BAR_WIDTH),
            f"{day['day_bound']:g}",
            f"({finer['epsilon']:.4g}, {finer['delta']:g})",
        )
    return table
