"""`hatcast worker`: run one worker."""

import asyncio
from dataclasses import replace
from typing import Any

import click

from hatcast.agents.cli.options import (
    accept_gap_option,
    accept_volatile_state_option,
    config_option,
    log_level_option,
    metrics_listen_option,
)
from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.grants import Role
from hatcast.agents.monitoring.logs import configure_logs
from hatcast.agents.worker.stopping import end_at_signals


@click.command(epilog="Example:  hatcast worker --config hatcast.toml")
@config_option
@metrics_listen_option
@log_level_option
@accept_gap_option
@accept_volatile_state_option
@click.option(
    "--drain",
    is_flag=True,
    help="After the feeds have stopped: close what is open, with the partitions of the policy's first start, and end.",
)
def command(**given: Any) -> None:
    """Fold telemetry and release private means, until Ctrl-C or SIGTERM.

    Run any number of workers: they share the partitions, and each may be killed at any time.
    """
    settings = load_settings(given["config"])
    if given["metrics_listen"] is not None:
        settings = replace(settings, listen=given["metrics_listen"])
    if settings.report_keys is not None:
        from hatcast.agents.worker.folds import report_check

        report_check(settings)  # its errors at once
    configure_logs(given["log_level"])
    end_at_signals(is_drain=given["drain"])
    # Imported after the configuration is read, so that its errors are reported at once.
    from hatcast.agents.kafka.grants import check_permissions
    from hatcast.agents.kafka.topics import ensure_topics
    from hatcast.agents.redis.durability import ensure_durable
    from hatcast.agents.worker.drain import check_not_grown, plan_drain
    from hatcast.agents.worker.worker import run_worker

    check_permissions(settings, Role.WORKER)
    drain = None
    if given["drain"]:
        partitions, drain = plan_drain(settings, accept_gap=given["accept_gap"])
    else:
        check_not_grown(settings)
        partitions = ensure_topics(settings)
    ensure_durable(settings, accept_volatile_state=given["accept_volatile_state"])
    asyncio.run(run_worker(settings, partitions, accept_gap=given["accept_gap"], drain=drain))
