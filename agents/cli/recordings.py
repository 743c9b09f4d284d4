"""Options shared by the commands that read recordings: `--format`, `--config`, and files after `--data`."""

from collections.abc import Sequence
from pathlib import Path

import click

from hatcast.stream.readings.formats import FORMATS

# A shell expands the pattern after --data to several arguments: the option takes the first one.
more_argument = click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="")
format_option = click.option("--format", "feed_format", type=click.Choice([*FORMATS]), help="Format of the recordings.")
policy_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration whose policy defines the HATs; default: the policy of the demo.",
)


def check_recordings(data: Sequence[Path], more: Sequence[Path], feed_format: str | None) -> None:
    """Raise UsageError if --data, the files after it and --format do not fit each other."""
    if more and not data:
        raise click.UsageError(f"unexpected argument {more[0]}: name recordings after --data")
    if data and feed_format is None:
        raise click.UsageError("--data needs --format")
