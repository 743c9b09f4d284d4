"""Apply each mutant of the catalogue to a copy of the repository, and run the tests that must see it."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import click

from tests.mutants.catalogue import Mutant, load_catalogue
from tests.mutants.workshop import Verdict, Workshop


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Print names and what they break; run nothing.")
@click.option("--jobs", default=2, show_default=True, help="Mutants at a time.")
@click.option("--seen-by", is_flag=True, help="Also name the first test that fails.")
def command(names: tuple[str, ...], only_list: bool, jobs: int, seen_by: bool) -> None:  # noqa: FBT001 - click's way
    """Show that each of the mutants (NAMES, or all) is caught: exit code 1 if one is not."""
    parts = load_catalogue()
    mutants = [mutant for part in parts.values() for mutant in part if not names or mutant.name in names]
    if unknown := set(names) - {mutant.name for mutant in mutants}:
        raise click.UsageError(f"no mutant is called {', '.join(sorted(unknown))}: see --list")
    if only_list:
        for mutant in mutants:
            click.echo(f"{mutant.name}: {mutant.breaks}")
        return
    with Workshop(jobs) as workshop:
        sys.exit(_run(workshop, mutants, jobs, seen_by=seen_by))


def _run(workshop: Workshop, mutants: Sequence[Mutant], jobs: int, *, seen_by: bool) -> int:
    """Run the tests on the code as it is, then on each mutant; return the exit code."""
    click.echo(f"mutants: the tests of {len(mutants)} mutants on the code as it is")
    healthy = workshop.check_healthy(mutants)
    if healthy is not None:
        click.echo(f"mutants: the code as it is fails them, so they show nothing:\n{healthy}", err=True)
        return 1
    wrong = 0
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, found in zip(mutants, pool.map(workshop.run, mutants), strict=True):
            wrong += found.verdict is not Verdict.CAUGHT
            test = f" by {found.test}" if seen_by and found.test else ""
            click.echo(f"{found.verdict.value:10} {found.seconds:6.1f} s  {mutant.name}{test}")
            if found.verdict is Verdict.BROKEN:
                click.echo(found.output, err=True)
    click.echo(f"mutants: {len(mutants) - wrong} of {len(mutants)} caught")
    return 1 if wrong else 0


if __name__ == "__main__":
    command()
