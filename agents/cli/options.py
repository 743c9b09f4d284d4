"""Options that several commands share."""

from pathlib import Path

import click

from agents.settings import DEFAULT_FILE

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=DEFAULT_FILE,
    show_default=True,
    help="The configuration file.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
