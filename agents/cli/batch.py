"""`hatcast batch`: fold and release recordings without services."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from hatcast.agents.batch.fold import FoldResult, Job, fold_dump, fold_recording
from hatcast.agents.batch.hints import hints
from hatcast.agents.batch.retention import RetainChunks, RetainNothing, RetainTotals, Retention
from hatcast.agents.cli.batch_tables import ShownRelease, releases_table, show_answers, show_hats, show_outcomes
from hatcast.agents.cli.options import config_option, days_of, json_option
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.recordings.dump_file import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.worker.folds import fold_maker, report_fold_maker
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import FORMATS, format_with
from hatcast.stream.readings.pseudonyms import KEY_BYTES, Pseudonyms

if TYPE_CHECKING:
    from hatcast.agents.batch.ledger_file import LedgerFile

_CHANGED: Final = (
    "HATs that an earlier run released from other readings: {}. They keep their values, and new readings in these"
    " files do not count there; run batch when all files of an hour, with a tracker of a day, are complete"
)


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
    given = _Files(files, name, settings, reports)
    if ledger is not None:
        _release(given, ledger, days, as_json=as_json, with_estimates=estimates)
        return
    if not contributions:
        folded = _fold(given, RetainNothing())
        show_outcomes(folded, as_json=as_json)
        return
    click.echo("reads raw data, not private", err=True)
    totals = RetainTotals()
    folded = _fold(given, totals)
    if as_json:
        click.echo(msgspec.json.encode({"outcomes": folded.outcomes, "hats": totals.hats}, order="sorted"))
    else:
        show_outcomes(folded, as_json=False)
        show_hats(totals.hats)


def _check_release(
    settings: Settings, ledger: Path | None, days: tuple[date, date] | None, reports: Path | None
) -> None:
    """Raise UsageError if these options do not fit each other or the policy."""
    if days is not None and (ledger is None or settings.policy.relation is not Relation.ADD_REMOVE):
        raise click.UsageError('--days is for --ledger under relation = "add_remove"')
    for query in settings.policy.queries if ledger is not None else ():
        if query.on_request:
            raise click.UsageError(
                f"the query {query.name!r} takes requests, which need workers: for --ledger write its speed_limit"
                " and no on_request"
            )
    if reports is not None and not settings.policy.takes_reports:
        raise click.UsageError(f"--reports is for estimators that read reports; {settings.policy.estimator} does not")
    if reports is None and settings.policy.takes_reports and ledger is not None:
        raise click.UsageError(
            "the policy's releases need the reports of devices: give the output of `hatcast dump reports` as --reports"
        )


@dataclass(frozen=True, slots=True)
class _Files:
    """Input files and their format."""

    paths: tuple[Path, ...]
    format: str
    settings: Settings
    reports: Path | None = None


def _fold(given: _Files, retention: Retention, ledger: "LedgerFile | None" = None) -> FoldResult:
    """Fold all files, continuing the ledger's earlier runs. Without a ledger and a user key, use a random key."""
    settings, started_ms = given.settings, now_ms()
    shows_counts = ledger is None or settings.policy.relation is Relation.REPLACE  # else they are private
    own_key = settings.user_key or secrets.token_bytes(KEY_BYTES)
    pseudonyms = Pseudonyms(own_key) if ledger is None else ledger.users.pseudonyms
    calendar = Calendar(settings.policy)
    vehicles = FoldUsers(pseudonyms, None if ledger is None else ledger.users.vehicles)
    devices = FoldUsers(pseudonyms, None if ledger is None else ledger.users.devices)

    def job(users: FoldUsers, progress: Callable[[int], None]) -> Job:
        return Job(settings.policy, users, started_ms, retention, progress)

    feed = DUMP if given.format == DUMP.name else format_with(given.format, settings.policy.value_units)
    with _progress() as start_bar, open_recording(given.paths, feed) as recording:
        if feed is not DUMP:
            folded = fold_recording(recording, job(vehicles, start_bar(len(recording))))
        else:
            dump = Dump(recording, ", ".join(map(str, given.paths)))
            make = fold_maker(settings.policy, calendar, vehicles, settings, dump.head.partitions)
            folded = fold_dump(dump, job(vehicles, start_bar(len(recording))), make)
    if given.reports is None:
        return _warn(folded, settings.policy, shows_counts=shows_counts)
    with _progress() as start_bar, open_recording([given.reports], DUMP) as recording:
        dump = Dump(recording, str(given.reports))
        if dump.head.topic == settings.topics.telemetry:
            raise HatcastError(
                f"{given.reports} is a dump of telemetry: give --reports the output of `hatcast dump reports`"
            )
        make_reports = report_fold_maker(settings.policy, calendar, devices, dump.head.partitions)
        folded = folded.merged_with(fold_dump(dump, job(devices, start_bar(len(recording))), make_reports))
    return _warn(folded, settings.policy, shows_counts=shows_counts)


def _warn(folded: FoldResult, policy: Policy, *, shows_counts: bool) -> FoldResult:
    """Warn about partitions that were not folded to their ends, and about files with few accepted records."""
    for warning in (*folded.ahead, *(hints(folded.outcomes, policy) if shows_counts else ())):
        click.echo(warning, err=True)
    return folded


@contextmanager
def _progress() -> Iterator[Callable[[int], Callable[[int], None]]]:
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


def _release(given: _Files, path: Path, days: tuple[date, date] | None, *, as_json: bool, with_estimates: bool) -> None:
    # Imported here: noise and accounting take seconds to import, and folding needs neither.
    from hatcast.agents.batch.estimates import estimates
    from hatcast.agents.batch.ledger_file import open_ledger
    from hatcast.agents.batch.release import count_changed, release_final
    from hatcast.agents.cli.budget_tables import budget_table
    from hatcast.stream.mechanisms.system import SystemNoise
    from hatcast.stream.release.hats import budget_record

    policy, chunks = given.settings.policy, RetainChunks()
    with open_ledger(path, policy, given.settings.user_key) as ledger:
        folded = _fold(given, chunks, ledger)
        if policy.relation is Relation.REPLACE and (changed := count_changed(folded, chunks, ledger)):
            click.echo(_CHANGED.format(changed), err=True)
        records = release_final(folded, chunks, ledger, SystemNoise(), days)
        if as_json:
            for record in records:
                click.echo(record)
            for estimate in estimates(ledger.records(), policy) if with_estimates else ():
                click.echo(estimate)
            return
        if policy.relation is Relation.REPLACE:  # under add_remove the counts are private
            show_outcomes(folded, as_json=False)
        decoded = [msgspec.json.decode(record, type=ShownRelease) for record in records]
        releases = [release for release in decoded if not release.answers]
        answers = [release for release in decoded if release.answers]
        ledger_days = [
            msgspec.json.decode(budget_record(policy, date, ledger.summary(date)))
            for date in sorted({date for release in decoded for date in release.dates})
        ]
    console = Console()
    console.print(releases_table(releases))
    if policy.queries:
        show_answers(console, answers)
    console.print(budget_table(ledger_days))
