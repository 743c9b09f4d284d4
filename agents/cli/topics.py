"""`hatcast topics`: the topics of a configuration, and more partitions for them."""

from pathlib import Path

import click

from hatcast.agents.cli.options import config_option
from hatcast.agents.config.settings import load_settings
from hatcast.stream.errors import HatcastError


@click.command(epilog="Example:  hatcast topics --grow 12")
@config_option
@click.option(
    "--grow",
    type=click.IntRange(2, 10_000),
    metavar="N",
    help="Add partitions to telemetry and to the topics that have as many, up to N. They cannot be taken away again.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before.")
def command(*, config: Path, grow: int | None, yes: bool) -> None:
    """Show the topics of the configuration with their partitions; with --grow, add partitions.

    A policy keeps the partitions of its first start. So drain it first (`hatcast worker --drain`), with all feeds
    stopped; another policy, which replaces it, then begins with the new ones (docs/runbook.md).
    """
    settings = load_settings(config)
    # Imported after the configuration is read, so that its errors are reported at once.
    from hatcast.agents.kafka.topics import check_topics, grow_topics

    report = check_topics(settings)
    if grow is None:
        for name, count in report.partitions.items():
            click.echo(f"{name}  {count} partition{'s' if count > 1 else ''}")
        for name in report.missing:
            click.echo(f"{name}  missing: the first worker makes it")
        return
    telemetry = settings.topics.telemetry
    now = report.partitions.get(telemetry)
    if now is None:
        raise HatcastError(f"topic {telemetry!r} does not exist: the first worker makes it; there is nothing to grow")
    if now > grow:
        raise HatcastError(f"topic {telemetry!r} has {now} partitions: Kafka cannot take any away; name {now} or more")
    if not yes:
        click.confirm(
            f"Grow to {grow} partitions? Policies that were started with {now} end, and have to be drained", abort=True
        )
    grown = grow_topics(settings, grow)
    for name, before in grown.items():
        click.echo(f"{name}  {before} -> {grow} partitions")
    if not grown:
        click.echo(f"all topics have {grow} partitions already")
