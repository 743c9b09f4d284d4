"""`hatcast batch`: fold and release recordings without services."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hatcast.agents.batch.fold import FoldResult
from hatcast.agents.batch.retention import RetainNothing, RetainTotals, in_unit
from hatcast.agents.batch.run import (
    RELEASING,
    BatchRun,
    ReleasedRun,
    files_input,
    fold_input,
    open_released,
    release_problem,
)
from hatcast.agents.cli.options import PATH, config_option, days_of, json_option
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.cli.report import output_option, places_of, write_records
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.dump import DUMP, Dump
from hatcast.agents.progress import progress_bars
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.tables.terminal import (
    answers_tables,
    estimates_table,
    hat_lines,
    print_fitted,
    releases_table,
    table,
)
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.query import Period
from hatcast.stream.policy.running_keys import Window
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.records.shown import SHOWN, Shown

if TYPE_CHECKING:
    from hatcast.agents.tables.columns import Table as RecordTable

_ESTIMATES: Final = "estimates"
_RUNNING: Final = "running"
_KINDS: Final = (_ESTIMATES, _RUNNING)  # options of the command, and keys of `[topics]`
_OF_QUERIES: Final = "each mean is of one query of the tracker: for speeds read the estimates, without --releases"


@click.command(epilog="Example:  hatcast batch suratITMS.json --format itms --config hatcast.toml")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@format_options(files="files", also=(DUMP,), of="files")
@config_option
@click.option(
    "--contributions", is_flag=True, help="Also print users, readings, sum and maximum of each HAT. Not private."
)
@click.option("--ledger", type=PATH, help="Release each HAT once, and charge it in this ledger file.")
@click.option("--days", callback=days_of, metavar="FIRST,LAST", help="Under add_remove: local dates to release.")
@click.option("--reports", type=PATH, help="Reports of devices: the output of `hatcast dump reports`.")
@click.option(
    "--estimates",
    is_flag=True,
    help="Print hats.estimates as JSON lines: of a `hatcast dump means`, or after --ledger --json.",
)
@click.option("--running", is_flag=True, help="In the same way, print the running means of hats.running.")
@click.option(
    "--releases", is_flag=True, help="With a tracker: print its single queries, not the estimates of hours that follow."
)
@output_option(
    "what is published (releases, answers, with --estimates estimates, with --running running means)", of_records=True
)
@json_option
def command(
    *,
    files: tuple[Path, ...],
    feed_format: FormatChoice,
    config: Path,
    contributions: bool,
    as_json: bool,
    **release: Any,
) -> None:
    """Fold recordings, or the output of `hatcast dump`, in one process without services.

    Prints the records by outcome; with --contributions the true figures of each HAT, in milli-units; with --ledger the
    releases, with a tracker the estimates that follow from them, and the same whenever it runs again. Under add_remove
    it releases all listed cells of all slots from the first arrival to the last; this reveals the first and the last
    arrival, unless you name --days.

    Runs with the same ledger continue each other: a vehicle enters at most max_hats_per_day HATs of a day over all
    runs, or what [policy.continual] lets it enter in a horizon. A HAT is released once, so run it when all files of an
    hour are complete: later readings do not count. With a tracker those of a day, since a run settles all of its days.
    With running sums run the files in order: no sum goes back. The ledger file contains pseudonyms and their key, so it
    is not private.

    Then it prints the answers to the policy's queries over days, for periods that are over, each once. They use the
    files of one run: a day without files is missing, so name the files of a whole period together.

    With --estimates and a dump of hats.means it prints the records of hats.estimates that follow from it, in the bytes
    in which workers publish them; with --ledger those of all releases in the ledger, after the releases. --running does
    the same for the running means of the policy, hats.running.

    With -o these records are written to a file and not printed. CSV, Excel and GeoJSON have a short table: where, when,
    value, interval and basis; answers and running means have files of their own, FILE.answers.csv and FILE.running.csv.
    Figures that are not private are never written.
    """
    ledger, days = release["ledger"], release["days"]
    settings, reports = load_settings(config), release["reports"]
    inferring = [kind for kind in _KINDS if release[kind]]
    output: Path | None = release["output"]
    _check_output(output, publishes=ledger is not None or bool(inferring))
    if contributions and ledger is not None:
        raise click.UsageError("--contributions is not private and --ledger is: choose one")
    _check_inferred(inferring, settings.policy)
    if inferring and ledger is None:
        if feed_format.name != DUMP.name or contributions:
            raise click.UsageError(f"--{inferring[0]} is for a dump of hats.means (--format kafka), or with --ledger")
        _infer_from_dump(files, inferring, settings, output)
        return
    if inferring and not as_json and output is None:
        raise click.UsageError(f"--{inferring[0]} with --ledger prints JSON lines: add --json, or -o FILE")
    _check_release(settings, ledger, days, reports)
    feed = DUMP if feed_format == FormatChoice(DUMP.name) else checked_format(feed_format, settings.policy, files)
    tell = partial(click.echo, err=True)
    given = files_input(files, feed, feed_format)
    run = BatchRun(
        settings,
        given,
        reports,
        # Not between JSON lines that appear on a terminal.
        lambda step: progress_bars(one=True, hidden=as_json and sys.stdout.isatty() and step == RELEASING),
        tell,
        tell,
        is_private=sys.stderr.isatty(),
    )
    if ledger is not None:
        printed = _Output(file=output, as_json=as_json, inferring=inferring, queries=release["releases"])
        _release(run, ledger, days, printed)
        return
    if not contributions:
        folded = fold_input(run, RetainNothing())
        _show_outcomes(folded, as_json=as_json)
        if not as_json:
            click.echo("no releases: add --ledger FILE")
        return
    click.echo("reads raw data, not private", err=True)
    totals = RetainTotals()
    folded = fold_input(run, totals)
    hats = {hat: in_unit(each, run.settings.policy) for hat, each in totals.hats.items()}
    if as_json:
        click.echo(msgspec.json.encode({"outcomes": folded.outcomes, "hats": hats}, order="sorted"))
    else:
        _show_outcomes(folded, as_json=False)
        for line in hat_lines(hats):
            click.echo(line)


def _check_release(
    settings: Settings, ledger: Path | None, days: tuple[date, date] | None, reports: Path | None
) -> None:
    if ledger is None and days is not None:
        raise click.UsageError("--days is for --ledger")
    if ledger is None and reports is not None and not settings.policy.takes_reports:
        raise click.UsageError(f"--reports is for estimators that read reports; {settings.policy.estimator} does not")
    problem = None if ledger is None else release_problem(settings, days, reports, "--{}".format)
    if problem is not None:
        raise click.UsageError(problem)


def _check_output(output: Path | None, *, publishes: bool) -> None:
    if output is not None and not publishes:
        raise click.UsageError(
            "-o writes what is published: add --ledger, or --estimates or --running to a dump of hats.means"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """Output of a run's records: a file, or standard output as JSON or as tables."""

    file: Path | None
    as_json: bool
    inferring: Sequence[str]  # kinds of records that follow from the releases
    queries: bool  # the tables have a tracker's single queries, in place of estimates

    def is_read_by_estimates(self, policy: Policy) -> bool:
        """Whether a file has estimates in place of the releases."""
        return policy.method.settles_days and not (self.queries or self.inferring)


def _release(run: BatchRun, path: Path, days: tuple[date, date] | None, output: _Output) -> None:
    # Imported here: accounting takes seconds to import, and folding does not need it.
    from hatcast.agents.cli.budget_tables import BudgetTable
    from hatcast.stream.release.budget_records import budget_record

    policy = run.settings.policy
    if output.file is not None:  # before anything is charged
        from hatcast.agents.tables.files import check_target, files_of

        for name in files_of(output.file, _written_tables(policy, output, output.file)):
            check_target(name)
    with open_released(run, path, days) as released:
        if output.as_json:
            for record in chain(released.records, _inferred(released.ledger.records, output.inferring, policy)):
                click.echo(record)
            return
        if policy.relation is Relation.REPLACE:  # under add_remove the counts are private
            _show_outcomes(released.folded, as_json=False)
        tables = list[Table]()
        if output.file is not None:
            dates = _write(released, run.settings, output, output.file)
        else:
            decoded = [SHOWN.decode(record) for record in released.records]
            dates = {date for release in decoded for date in _charged_dates(release)}
            tables = _tables(decoded, released, policy, queries=output.queries)
        ledger_days = [
            msgspec.json.decode(budget_record(policy, date, released.ledger.summary(date))) for date in sorted(dates)
        ]
    console = Console()
    for each in tables:
        print_fitted(console, each)
    if output.file is None and policy.queries and len(tables) == 1:
        console.print("no answers to queries: no period of a query is over in these files")
    print_fitted(console, BudgetTable(ledger_days))


def _tables(decoded: Sequence[Shown], released: ReleasedRun, policy: Policy, *, queries: bool) -> list[Table]:
    """Return a table of HATs, and tables of the answers to queries over days.

    HATs have their releases, or under a tracker their estimates.
    queries   a tracker's single queries, in place of estimates
    """
    releases = [release for release in decoded if not release.query_name]
    if queries or not policy.method.settles_days:
        means = releases_table(releases, _OF_QUERIES)
    else:
        last = _last_estimates(released, policy, {each.date for each in releases})
        means = estimates_table([shown for shown, _ in last])
    return [means, *answers_tables(release for release in decoded if release.query_name)]


def _charged_dates(record: Shown) -> list[str]:
    """Return the local dates whose budget a release or an answer is charged to."""
    return Period(date.fromisoformat(record.first_date), record.days).dates if record.query_name else [record.date]


def _written_tables(policy: Policy, output: _Output, path: Path) -> "list[RecordTable]":
    """Return the tables that are written, the first one to the file itself: of a tracker estimates, else releases.

    Running means are written where each table has a file of its own, or if they are asked for.
    """
    from hatcast.agents.tables.files import APART
    from hatcast.agents.tables.records import ANSWERS, RELEASES

    is_apart = path.suffix.lower() in APART and bool(policy.running)
    kinds = output.inferring or ([_RUNNING] if is_apart and not policy.method.has_horizons else [])
    first = _tables_of([_ESTIMATES]) if output.is_read_by_estimates(policy) else [RELEASES]
    return [*first, *([ANSWERS] if policy.queries else []), *_tables_of(kinds)]


def _write(released: ReleasedRun, settings: Settings, output: _Output, path: Path) -> set[str]:
    """Write the published records to files; return the local dates that are charged for them.

    Under a tracker these are answers, and the last estimate of each HAT with a release, as the table shows them.
    """
    policy, dates, days = settings.policy, set[str](), set[str]()
    tables = _written_tables(policy, output, path)
    by_estimates = output.is_read_by_estimates(policy)

    def records() -> Iterator[bytes]:
        for record in released.records:
            shown = SHOWN.decode(record)
            dates.update(_charged_dates(shown))
            if not shown.query_name:
                days.add(shown.date)
            if not by_estimates or shown.query_name:
                yield record
        if by_estimates:  # the releases are consumed by now
            last = _last_estimates(released, policy, days)
            yield from (record for shown, record in last if shown.mean is not None)
        if output.inferring:
            yield from _inferred(released.ledger.records, output.inferring, policy)
        elif tables[-1].name == _RUNNING:
            found = _inferred(released.ledger.records, [_RUNNING], policy)
            yield from {_window_of(SHOWN.decode(record), policy): record for record in found}.values()  # the last ones

    write_records(path, tables, records(), places_of(settings, path))
    return dates


def _window_of(shown: Shown, policy: Policy) -> str:
    """Return the window of a running mean: its id; for a part of the day, without the slot at which it ends."""
    name, _, cell = shown.running_id.split("/")[1:]
    is_period = any(each.name == name and each.window is Window.PERIOD for each in policy.running)
    return f"{name}/{shown.date}/{cell}" if is_period else shown.running_id


def _last_estimates(released: ReleasedRun, policy: Policy, days: Collection[str]) -> list[tuple[Shown, bytes]]:
    """Return the last estimate of each HAT of these local dates, by date, slot and cell."""
    found = ((SHOWN.decode(record), record) for record in _inferred(released.ledger.records, [_ESTIMATES], policy))
    last = {(shown.date, shown.slot, shown.cell): (shown, record) for shown, record in found if shown.date in days}
    return [last[key] for key in sorted(last)]


def _show_outcomes(folded: FoldResult, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"outcomes": folded.outcomes}, order="sorted"))
        return
    records = sum(folded.outcomes.values())
    names = (*Outcome, *(f"reports.{outcome}" for outcome in Outcome))
    rows = ((name, f"{of:,}", f"{of / records:.1%}") for name in names if (of := folded.outcomes.get(name)))
    console = Console()
    print_fitted(console, table("Records by outcome", "", ("outcome", "records", "share"), rows))
    accepted = folded.outcomes.get(Outcome.ACCEPTED.value, 0)
    console.print(f"{records:,} record{'s' if records != 1 else ''}, {accepted:,} of them accepted")


# Estimates and running means, which follow from the releases.


def _inferred(values: Callable[[], Iterable[bytes]], kinds: Sequence[str], policy: Policy) -> Iterator[bytes]:
    """Yield the records of these kinds that follow from a policy's releases. values: returns them, each time anew."""
    # Imported here: models take a second to import, and folding does not need them.
    from hatcast.agents.batch.ledger_days import estimates, running_means

    made = {_ESTIMATES: estimates, _RUNNING: running_means}
    for kind in kinds:
        yield from made[kind](values(), policy)


def _tables_of(kinds: Sequence[str]) -> "list[RecordTable]":
    from hatcast.agents.tables.records import TABLES

    return [TABLES[kind] for kind in kinds]


def _infer_from_dump(files: Sequence[Path], kinds: Sequence[str], settings: Settings, output: Path | None) -> None:
    """Print the records of these kinds that follow from a dump of `hats.means`, or write them to a file."""
    from hatcast.agents.batch.ledger_days import dumped_values

    name = ", ".join(map(str, files))
    with open_recording(files, DUMP) as recording:
        found = _inferred(lambda: dumped_values(Dump(recording, name), settings, name), kinds, settings.policy)
        if output is not None:
            write_records(output, _tables_of(kinds), found, places_of(settings, output))
            return
        for line in found:
            click.echo(line)


def _check_inferred(kinds: Sequence[str], policy: Policy) -> None:
    """Check that running means can be inferred under the policy. Raises UsageError if not."""
    if _RUNNING in kinds and policy.method.has_horizons:
        raise click.UsageError(
            "--running is for other policies: the releases of [policy.continual] are running means already, so read"
            " them without it"
        )
    if _RUNNING in kinds and not policy.running:
        raise click.UsageError(
            '--running needs a running mean in the policy: write [[policy.running]] with name = "today" and'
            ' window = "today"'
        )
