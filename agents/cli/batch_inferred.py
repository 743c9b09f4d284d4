"""Estimates and running means, which `hatcast batch` infers from its releases."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hatcast.agents.cli.report import places_of, write_records
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.stream.policy.policy import Policy

if TYPE_CHECKING:
    from hatcast.agents.tables.columns import Table

ESTIMATES: Final = "estimates"
RUNNING: Final = "running"
KINDS: Final = (ESTIMATES, RUNNING)
"""options of the command, and keys of `[topics]`"""


def inferred(values: Callable[[], Iterable[bytes]], kinds: Sequence[str], policy: Policy) -> Iterator[bytes]:
    """Yield the records of these kinds that follow from a policy's releases. values: returns them, each time anew."""
    # Imported here: models take a second to import, and folding does not need them.
    from hatcast.agents.batch.ledger_days import estimates, running_means

    made = {ESTIMATES: estimates, RUNNING: running_means}
    for kind in kinds:
        yield from made[kind](values(), policy)


def tables_of(kinds: Sequence[str]) -> "list[Table]":
    """Return the tables of kinds of records."""
    from hatcast.agents.tables.records import TABLES

    return [TABLES[kind] for kind in kinds]


def infer_from_dump(files: Sequence[Path], kinds: Sequence[str], settings: Settings, output: Path | None) -> None:
    """Print the records of these kinds that follow from a dump of `hats.means`, or write them to a file."""
    from hatcast.agents.batch.ledger_days import dumped_values

    name = ", ".join(map(str, files))
    with open_recording(files, DUMP) as recording:
        found = inferred(lambda: dumped_values(Dump(recording, name), settings, name), kinds, settings.policy)
        if output is not None:
            write_records(output, tables_of(kinds), found, places_of(settings, output))
            return
        for line in found:
            click.echo(line)


def check_inferred(kinds: Sequence[str], policy: Policy) -> None:
    """Check that running means can be inferred under the policy. Raises UsageError if not."""
    if RUNNING in kinds and policy.method.has_horizons:
        raise click.UsageError(
            "--running is for other policies: the releases of [policy.continual] are running means already, so read"
            " them without it"
        )
    if RUNNING in kinds and not policy.running:
        raise click.UsageError(
            '--running needs a running mean in the policy: write [[policy.running]] with name = "today" and'
            ' window = "today"'
        )
