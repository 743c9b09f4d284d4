"""`hatcast worker`: run one worker."""

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from hatcast.agents.cli.options import config_option, metrics_listen_option
from hatcast.agents.config.settings import Address, load_settings
from hatcast.agents.monitoring.logs import configure_logs


@click.command(epilog="Example:  hatcast worker --config hatcast.toml")
@config_option
@metrics_listen_option
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Continue after telemetry was deleted unread; unreleased HATs of those days are published as incomplete.",
)
@click.option(
    "--accept-volatile-state",
    is_flag=True,
    help="Start on a Redis that evicts keys or does not persist: for trials, where state may be lost.",
)
def command(
    config: Path, metrics_listen: Address | None, log_level: str, accept_gap: bool, accept_volatile_state: bool
) -> None:
    """Fold telemetry and release private means, until Ctrl-C or SIGTERM.

    Run any number of workers: they share the partitions, and each may be killed at any time.
    """
    settings = load_settings(config)
    if metrics_listen is not None:
        settings = replace(settings, listen=metrics_listen)
    configure_logs(log_level)
    # Imported after the configuration is read, so that its errors are reported at once.
    from hatcast.agents.kafka.topics import ensure_topics
    from hatcast.agents.redis.durability import ensure_durable
    from hatcast.agents.worker.worker import run_worker

    partitions = ensure_topics(settings)
    ensure_durable(settings, accept_volatile_state=accept_volatile_state)
    asyncio.run(run_worker(settings, partitions, accept_gap=accept_gap))
