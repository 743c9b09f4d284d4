"""`hatcast republish`: send the stored releases of a date again."""

import asyncio
from datetime import datetime
from pathlib import Path

import click

from hatcast.agents.cli.options import PATH, config_option
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.grants import Role
from hatcast.agents.monitoring.logs import configure_logs
from hatcast.stream.errors import HatcastError
from hatcast.stream.records.projections import HEAD


@click.command(epilog="Example:  hatcast republish 2022-01-02 --config hatcast.toml")
@click.argument("date", type=click.DateTime(["%Y-%m-%d"]))
@click.option(
    "--ledger",
    type=PATH,
    help="Print the releases of the date in this ledger file of `hatcast batch`, and send nothing.",
)
@config_option
def command(date: datetime, ledger: Path | None, config: Path) -> None:
    """Send the published releases of a local date again, after an output topic was lost: the same bytes.

    Stop all workers before, and start them afterwards. Releases of sealed dates are gone with the topic. Consumers may
    see a release twice, with the same release_id.
    """
    settings, day = load_settings(config), date.date().isoformat()
    if ledger is not None:
        _print(settings, ledger, day)
        return
    configure_logs("warning")
    # Imported after the configuration is read, so that its errors are reported at once.
    from hatcast.agents.kafka.grants import check_permissions
    from hatcast.agents.kafka.topics import ensure_topics
    from hatcast.agents.worker.republishing import republish

    check_permissions(settings, Role.WORKER)
    sent, sealed = asyncio.run(republish(settings, ensure_topics(settings), day))
    gone = f"; those through {sealed} are sealed and gone" if sealed else ""
    click.echo(f"republished {sent} releases of {day}{gone}")


def _print(settings: Settings, ledger: Path, date: str) -> None:
    """Print the records of a date in a ledger file, in the order in which they were committed."""
    from hatcast.agents.batch.ledger_days import ledger_records

    found = []
    for line in ledger_records(ledger):
        head = HEAD.decode(line)
        if (head.policy_id, head.date) == (settings.policy.policy_id, date):
            found.append((head.released_at, head.seq or 0, line))
    if not found:
        raise HatcastError(f"{ledger}: has no releases of {date} under policy {settings.policy.name!r}")
    for _, _, line in sorted(found):
        click.echo(line)
