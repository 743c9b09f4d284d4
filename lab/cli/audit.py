"""`hatcast audit`: release made-up neighbours, and compare the releases with the claimed epsilon."""

from pathlib import Path
from typing import Final

import click

from hatcast.agents.cli.options import PATH, json_option
from hatcast.agents.config.settings import DEFAULT_FILE
from hatcast.agents.progress import progress_bars
from hatcast.stream.errors import HatcastError

SAMPLES: Final = 20_000
PAIRS: Final = 2_000


@click.command(epilog="Example:  hatcast audit --config hatcast.toml")
@click.option(
    "--config",
    "paths",
    multiple=True,
    type=PATH,
    default=(DEFAULT_FILE,),
    help="A configuration file; several: write the option several times.",
)
@click.option(
    "--clusterings",
    multiple=True,
    type=PATH,
    help="A configuration file under which clusterings are audited: `hatcast cluster`. Several: as --config.",
)
@click.option(
    "--samples",
    type=click.IntRange(100, 10_000_000),
    default=SAMPLES,
    help="Releases of each part: half of them choose an event, the others count it. A quarter as many of trackers, "
    "running sums and clusterings.",
)
@click.option(
    "--pairs",
    type=click.IntRange(1, 100_000_000),
    default=PAIRS,
    help="Neighbours of each part whose requests of noise are compared; a tenth of it for whole days.",
)
@json_option
@click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
def command(
    paths: tuple[Path, ...], clusterings: tuple[Path, ...], samples: int, pairs: int, as_json: bool, markdown: bool
) -> None:
    """Audit a policy: measure the epsilon of its releases, and compare it with the one that it claims.

    Made-up neighbours, inputs that differ in one user, go through the code that releases, with the system's noise.
    Nothing is read but the file, and nothing is published. Minutes for each policy.

    Exit code 1 if a claim is violated. That is a false alarm in at most one of 1,000,000 runs. Needs hatcast[research].
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    from hatcast.lab.audit import run

    subjects = [*map(run.Subject, paths), *(run.Subject(path, clusterings=True) for path in clusterings)]
    with progress_bars() as add_bar:
        found = run.audit(subjects, samples, pairs, add_bar("auditing", sum(len(each.parts()) for each in subjects)))
    if markdown:
        click.echo(run.markdown_of(found))
    else:
        run.report_of(found, samples, pairs).write(as_json=as_json)
    problems = [(name, each) for name, each in run.findings_of(found) if each.problem is not None]
    if problems:
        name, first = problems[0]
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        raise HatcastError(
            f"{name}, {first.part}: the claim is violated: {first.problem}{more}; do not release with it"
        )
