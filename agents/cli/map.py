"""`hatcast map`: the map of a ledger file, as one file."""

from pathlib import Path

import click

from hatcast.agents.cli.options import EXISTING_FILE, FILE, config_option
from hatcast.agents.config.settings import load_settings


@click.command(epilog="Example:  hatcast map day.ledger -o map.html")
@click.argument("ledger", type=EXISTING_FILE)
@config_option
@click.option(
    "-o", "--output", "output", type=FILE, required=True, help="Write the page to this new file, which ends in .html."
)
def command(ledger: Path, config: Path, output: Path) -> None:
    """Write the map of a ledger file of `hatcast batch` as one page, to open in a browser or to send to others.

    It is the live map with its records inside: it needs no server and no network, and loads nothing from anywhere. It
    has what is published and nothing else of the ledger: no pseudonym and no key. So a base map is not in it.
    """
    from hatcast.agents.tables.files import check_target, new_file

    check_target(output, known=[".html"])
    settings = load_settings(config)
    # Imported here: models take a second to import.
    from hatcast.agents.batch.ledger_map import page_of_ledger
    from hatcast.agents.monitoring.logs import configure_logs

    configure_logs("warning")
    page = page_of_ledger(ledger, settings)
    with new_file(output) as file:
        file.write(page)
    click.echo(f"{output}: {len(page) / 1_000_000:.1f} MB; open it in a browser", err=True)
