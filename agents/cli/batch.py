"""`hatcast batch`: fold and release recordings without services."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from hatcast.agents.batch.retention import RetainNothing, RetainTotals
from hatcast.agents.batch.run import Run, StartProgress, files_input, fold_input, open_released, release_problem
from hatcast.agents.cli.batch_tables import ShownRelease, releases_table, show_answers, show_hats, show_outcomes
from hatcast.agents.cli.options import config_option, days_of, json_option
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.recordings.dump_file import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.stream.policy.policy import Relation
from hatcast.stream.readings.formats import FORMATS, format_with


@click.command(epilog="Example:  hatcast batch suratITMS.json --format itms --config hatcast.toml")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--format", "name", type=click.Choice([*FORMATS, DUMP.name]), required=True, help="Format of the files.")
@config_option
@click.option(
    "--contributions", is_flag=True, help="Also print users, readings, sum and maximum of each HAT. Not private."
)
@click.option(
    "--ledger", type=click.Path(path_type=Path), help="Release each HAT once, and charge it in this ledger file."
)
@click.option("--days", callback=days_of, metavar="FIRST,LAST", help="Under add_remove: local dates to release.")
@click.option(
    "--reports", type=click.Path(path_type=Path), help="Reports of devices: the output of `hatcast dump reports`."
)
@click.option(
    "--estimates",
    is_flag=True,
    help="Print hats.estimates as JSON lines: of a `hatcast dump means`, or after --ledger --json.",
)
@json_option
def command(
    *,
    files: tuple[Path, ...],
    name: str,
    config: Path,
    contributions: bool,
    as_json: bool,
    **release: Any,
) -> None:
    """Fold recordings, or the output of `hatcast dump`, in one process without services.

    Prints the records by outcome; with --contributions the true figures of each HAT, in milli-units; with --ledger the
    releases, and the same releases whenever it runs again. Under add_remove it releases all listed cells of all slots
    from the first arrival to the last; this reveals the first and the last arrival, unless you name --days.

    Runs with the same ledger continue each other: a vehicle enters at most max_hats_per_day HATs of a day over all
    runs. A HAT is released once, so run it when all files of an hour are complete: later readings do not count. With a
    tracker those of a day, since a run settles all of its days. The ledger file contains pseudonyms and their key, so
    it is not private.

    Then it prints the answers to the policy's queries over days, for periods that are over, each once. They use the
    files of one run: a day without files is missing, so name the files of a whole period together.

    With --estimates and a dump of hats.means it prints the records of hats.estimates that follow from it, in the bytes
    in which workers publish them; with --ledger those of all releases in the ledger, after the releases.
    """
    ledger, days = release["ledger"], release["days"]
    settings, reports, estimates = load_settings(config), release["reports"], release["estimates"]
    if contributions and ledger is not None:
        raise click.UsageError("--contributions is not private and --ledger is: choose one")
    if estimates and ledger is None:
        if name != DUMP.name or contributions:
            raise click.UsageError("--estimates is for a dump of hats.means (--format kafka), or with --ledger")
        _print_estimates(files, settings)
        return
    if estimates and not as_json:
        raise click.UsageError("--estimates with --ledger prints JSON lines: add --json")
    _check_release(settings, ledger, days, reports)
    feed = DUMP if name == DUMP.name else format_with(name, settings.policy.value_units)
    run = Run(settings, files_input(files, feed), reports, _progress, lambda line: click.echo(line, err=True))
    if ledger is not None:
        _release(run, ledger, days, as_json=as_json, with_estimates=estimates)
        return
    if not contributions:
        folded = fold_input(run, RetainNothing())
        show_outcomes(folded, as_json=as_json)
        return
    click.echo("reads raw data, not private", err=True)
    totals = RetainTotals()
    folded = fold_input(run, totals)
    if as_json:
        click.echo(msgspec.json.encode({"outcomes": folded.outcomes, "hats": totals.hats}, order="sorted"))
    else:
        show_outcomes(folded, as_json=False)
        show_hats(totals.hats)


def _check_release(
    settings: Settings, ledger: Path | None, days: tuple[date, date] | None, reports: Path | None
) -> None:
    """Raise UsageError if these options do not fit each other or the policy."""
    if ledger is None and days is not None:
        raise click.UsageError("--days is for --ledger")
    if ledger is None and reports is not None and not settings.policy.takes_reports:
        raise click.UsageError(f"--reports is for estimators that read reports; {settings.policy.estimator} does not")
    problem = None if ledger is None else release_problem(settings, days, reports, "--{}".format)
    if problem is not None:
        raise click.UsageError(problem)


@contextmanager
def _progress() -> Iterator[StartProgress]:
    """Yield a function total -> advance(records) that starts a progress bar; no output without a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=None)

        def start_bar(total: int) -> Callable[[int], None]:
            progress.update(task, description="folding", total=total)
            return lambda records: progress.advance(task, records)

        yield start_bar


def _print_estimates(files: tuple[Path, ...], settings: Settings) -> None:
    from hatcast.agents.batch.estimates import dumped_values, estimates

    name = ", ".join(map(str, files))
    with open_recording(files, DUMP) as recording:
        for line in estimates(dumped_values(Dump(recording, name), settings, name), settings.policy):
            click.echo(line)


def _release(run: Run, path: Path, days: tuple[date, date] | None, *, as_json: bool, with_estimates: bool) -> None:
    # Imported here: accounting takes seconds to import, and folding does not need it.
    from hatcast.agents.batch.estimates import estimates
    from hatcast.agents.cli.budget_tables import budget_table
    from hatcast.stream.release.hats import budget_record

    policy = run.settings.policy
    with open_released(run, path, days) as released:
        if as_json:
            for record in released.records:
                click.echo(record)
            for estimate in estimates(released.ledger.records(), policy) if with_estimates else ():
                click.echo(estimate)
            return
        if policy.relation is Relation.REPLACE:  # under add_remove the counts are private
            show_outcomes(released.folded, as_json=False)
        decoded = [msgspec.json.decode(record, type=ShownRelease) for record in released.records]
        releases = [release for release in decoded if not release.answers]
        answers = [release for release in decoded if release.answers]
        ledger_days = [
            msgspec.json.decode(budget_record(policy, date, released.ledger.summary(date)))
            for date in sorted({date for release in decoded for date in release.dates})
        ]
    console = Console()
    console.print(releases_table(releases))
    if policy.queries:
        show_answers(console, answers)
    console.print(budget_table(ledger_days))
