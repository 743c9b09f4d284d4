"""`hatcast contributions`: print the open contributions, in the format of `batch --contributions`."""

import asyncio
from pathlib import Path

import click
import h3.api.basic_int as h3
import msgspec

from hatcast.agents.batch.retention import in_unit
from hatcast.agents.cli.options import config_option, json_option
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.identity import started_partitions
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.tables.terminal import hat_lines
from hatcast.stream.fold.checkpoint import StoredPartition

Totals = tuple[int, int, int, int]


@click.command(epilog="Example:  hatcast contributions --json > open.json")
@config_option
@json_option
def command(config: Path, as_json: bool) -> None:
    """Print the users, readings, sum and maximum (in milli-units) of open HATs. Reads raw data, not private."""
    settings = load_settings(config)
    click.echo("reads raw data, not private", err=True)
    outcomes, hats = asyncio.run(read_contributions(settings))
    hats = {hat: in_unit(totals, settings.policy) for hat, totals in hats.items()}
    if as_json:
        click.echo(msgspec.json.encode({"outcomes": outcomes, "hats": hats}, order="sorted"))
        return
    for line in hat_lines(hats):
        click.echo(line)


async def read_contributions(settings: Settings) -> tuple[dict[str, int], dict[str, Totals]]:
    """Return outcomes, and HAT `cell/date/slot` -> (users, count, sum, max), from the stored state."""
    redis = await connect_redis_async(settings)
    name = settings.policy.name
    try:
        store = PartitionStore(
            redis, name, await started_partitions(redis, DomainKeys(settings.topics.telemetry), name)
        )
        hats: dict[str, Totals] = {}
        for partition in range(store.partitions):
            _, found = await store.read_until(partition, await store.read(partition), StoredPartition.open_hats)
            for (slot, cell), hat in found.items():
                key = f"{h3.int_to_str(cell)}/{slot}"
                users, readings, total, maximum = hats.get(key, (0, 0, 0, 0))
                for user in hat.users.values():
                    users, readings, total = users + 1, readings + user.count, total + user.total
                    maximum = max(maximum, user.maximum)
                hats[key] = (users, readings, total, maximum)
        outcomes = {outcome: records for outcome, records in (await store.outcomes()).items() if records}
    finally:
        await redis.aclose()
    return outcomes, hats
