"""`hatcast export`: write published records to Parquet files."""

from pathlib import Path
from typing import Final

import click
import msgspec

from hatcast.agents.cli.options import config_option, json_option
from hatcast.agents.config.settings import load_settings
from hatcast.agents.errors.causes import require
from hatcast.agents.kafka.client import translate_kafka_errors
from hatcast.agents.progress import counters

_TABLES: Final = {"releases": "means", "estimates": "estimates", "answers": "queries", "running": "running"}


@click.command(epilog="Example:  hatcast export --to city")
@config_option
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the files."
)
@click.option(
    "--only", type=click.Choice(list(_TABLES)), multiple=True, help="Export only this table; may be repeated."
)
@json_option
def command(config: Path, folder: Path, only: tuple[str, ...], as_json: bool) -> None:
    """Write releases, estimates, answers and running means to Parquet files, one a local date, for DuckDB.

    The folder gets releases/DATE.parquet, and in the same way the folders estimates, answers and running. Run it again
    to add what is new: it goes on where it ended, also after it was killed, and each record is one row.

    Needs the extra: pip install 'hatcast[parquet]'.
    """
    require("pyarrow", "export")
    from hatcast.agents.export.run import export, open_folder

    settings = load_settings(config)
    with open_folder(folder) as target, translate_kafka_errors(settings), counters(" records read") as advance:
        done = [export(settings, target, _TABLES[name], advance) for name in only or _TABLES]
    if as_json:
        click.echo(msgspec.json.encode(done))
        return
    for each in done:
        rejected = f"; {each.rejected:,} are not records of this version, left out" if each.rejected else ""
        click.echo(f"{folder / each.table}: {each.records:,} new records of {each.topic}{rejected}")
