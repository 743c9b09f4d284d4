"""`scripts/fuzz`: search for input that breaks a property, or try one input again."""

import contextlib
import io
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypedDict, Unpack

import atheris
import click

with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["hatcast"]):
    from tests.fuzz.catalogue import load_targets

from tests.fuzz.engine import Bounds, Searched, search
from tests.fuzz.target import Target, check_limits
from tests.services import open_redis

_FOLDER: Final = Path(".cache/fuzz")


class _Options(TypedDict):
    names: tuple[str, ...]
    minutes: float
    runs: int | None
    seed: int
    jobs: int
    folder: Path
    again: Path | None
    only_list: bool


@click.command(epilog="Example:  scripts/fuzz --minutes 60")
@click.argument("names", nargs=-1)
@click.option("--minutes", default=10.0, show_default=True, help="For all targets together.")
@click.option("--runs", type=int, help="In place of a time: so many inputs of each target.")
@click.option("--seed", default=1, show_default=True, help="Of the mutations.")
@click.option("--jobs", default=2, show_default=True, help="Targets at a time.")
@click.option("--folder", type=click.Path(path_type=Path), default=_FOLDER, show_default=True, help="Of the corpora.")
@click.option("--again", type=click.Path(path_type=Path, exists=True), help="Try the input in this file once more.")
@click.option("--list", "only_list", is_flag=True, help="Print the names; search nothing.")
def command(**given: Unpack[_Options]) -> None:
    """Search the targets NAMES, or all; exit code 1 if an input breaks a property of one.

    With one seed, a new folder and --runs the inputs are the same each time.
    """
    with open_redis() as redis:
        targets = {target.name: target for target in load_targets(redis.url)}
        names, again, runs = given["names"], given["again"], given["runs"]
        if unknown := set(names) - set(targets):
            raise click.UsageError(f"no target is called {', '.join(sorted(unknown))}: see --list")
        wanted = [target for name, target in targets.items() if not names or name in names]
        if given["only_list"]:
            click.echo("\n".join(target.name for target in wanted))
        elif again is not None:
            _try_again(targets, again)
        else:
            seconds = 60 * given["minutes"] if runs is None else 0.0
            bounds = Bounds(seconds, -1 if runs is None else runs, given["seed"])
            sys.exit(_report(search(wanted, bounds, given["folder"], given["jobs"])))


def _try_again(targets: Mapping[str, Target], path: Path) -> None:
    """Run the target to whose folder a finding belongs on it; what it raises ends the command."""
    name = path.resolve().parents[1].name
    if name not in targets:
        raise click.UsageError(f"{path}: is not in a target's folder findings; keep it there")
    took, _ = check_limits(targets[name].run, path.read_bytes())
    click.echo(f"{name}: holds, {took * 1000:.0f} ms")


def _report(found: Iterable[Searched]) -> int:
    """Print each result as it comes; return the exit code."""
    inputs = wrong = 0
    click.echo(f"{'target':24} {'inputs':>12} {'slowest':>10} {'peak':>9}")
    for each in found:
        inputs += each.inputs
        broken = "" if each.finding is None else f"  BROKEN: {each.finding}"
        click.echo(f"{each.name:24} {each.inputs:12,} {each.slowest * 1000:7.0f} ms {each.peak:5} MiB{broken}")
        if each.finding is not None:
            wrong += 1
            click.echo(_end_of(each.log), err=True)
    click.echo(f"fuzz: {inputs:,} inputs, {wrong} findings")
    return 1 if wrong else 0


def _end_of(log: Path) -> str:
    text = log.read_text(errors="replace")
    at = text.find("Uncaught Python exception")
    return text[at:][:4_000] if at >= 0 else text[-2_000:]


if __name__ == "__main__":
    command()
