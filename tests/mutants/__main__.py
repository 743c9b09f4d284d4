"""Apply each mutant of the catalogue to a copy of the repository, and run the tests that must see it."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

import click

from tests.mutants.catalogue import Part, load_catalogue
from tests.mutants.workshop import Verdict, Workshop


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Print names and what they break; run nothing.")
@click.option("--jobs", default=2, show_default=True, help="Mutants at a time.")
@click.option("--seen-by", is_flag=True, help="Also name the first test that fails.")
def command(names: tuple[str, ...], only_list: bool, jobs: int, seen_by: bool) -> None:  # noqa: FBT001 - click's way
    """Show that each of the mutants (NAMES of mutants or of parts, or all) is caught: exit code 1 if one is not.

    Parts are the files of tests/mutants/, such as noise. Each part is finished before the next one begins.
    """
    parts = _chosen(load_catalogue(), set(names))
    if only_list:
        for part in parts:
            click.echo(f"{part.name}: {part.title}")
            for mutant in part.mutants:
                click.echo(f"    {mutant.name}: {mutant.breaks}")
        return
    with Workshop(jobs) as workshop:
        wrong = [_run(workshop, part, jobs, seen_by=seen_by) for part in parts]
    total = sum(len(part.mutants) for part in parts)
    click.echo(f"mutants: {total - sum(wrong)} of {total} caught")
    sys.exit(1 if any(wrong) else 0)


def _chosen(parts: Sequence[Part], names: set[str]) -> list[Part]:
    """Return the parts with the mutants that are named, or all. Raises UsageError for a name that is not there."""
    known = {name for part in parts for name in (part.name, *(mutant.name for mutant in part.mutants))}
    if unknown := names - known:
        raise click.UsageError(f"no mutant and no part is called {', '.join(sorted(unknown))}: see --list")
    if not names:
        return list(parts)
    chosen = [
        part
        if part.name in names
        else replace(part, mutants=tuple(each for each in part.mutants if each.name in names))
        for part in parts
    ]
    return [part for part in chosen if part.mutants]


def _run(workshop: Workshop, part: Part, jobs: int, *, seen_by: bool) -> int:
    """Run a part's tests on the code as it is, then on each mutant; return how many mutants were not caught."""
    click.echo(f"mutants: {part.name}: the tests of {len(part.mutants)} mutants on the code as it is")
    healthy = workshop.check_healthy(part.mutants)
    if healthy is not None:
        click.echo(f"mutants: the code as it is fails them, so they show nothing:\n{healthy}", err=True)
        return len(part.mutants)
    wrong = 0
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(workshop.run, mutant): mutant for mutant in part.mutants}
        for done in as_completed(running):
            mutant, found = running[done], done.result()
            wrong += found.verdict is not Verdict.CAUGHT
            test = f" by {found.test}" if seen_by and found.test else ""
            click.echo(f"{found.verdict.value:10} {found.seconds:6.1f} s  {mutant.name}{test}")
            if found.verdict is Verdict.BROKEN:
                click.echo(found.output, err=True)
    return wrong


if __name__ == "__main__":
    command()
