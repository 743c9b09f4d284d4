"""Runs of `hatcast batch` and of `hatcast.batch`: fold recordings, and release them into a ledger."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hatcast.agents.batch.fold import FoldJob, FoldResult, fold_dump, fold_recording
from hatcast.agents.batch.hints import account, hints
from hatcast.agents.batch.retention import RetainChunks, Retention
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import DUMP, Dump
from hatcast.agents.progress import AddBar
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.recordings.pinned import Read
from hatcast.agents.timetable.speeds import timetable_of
from hatcast.agents.worker.folds import fold_maker, report_check, report_fold_maker
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Relation
from hatcast.stream.readings.formats import Format, FormatChoice
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.readings.recording import Recording
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms

if TYPE_CHECKING:
    from hatcast.agents.batch.ledger_file import LedgerFile
    from hatcast.agents.batch.release import Days

_CHANGED: Final = (
    "HATs that an earlier run released from other readings: {}. They keep their values, and new readings in these"
    " files do not count there; run batch when all files of an hour, with a tracker of a day, are complete"
)

RELEASING: Final = "releasing"  # description of the bar that is shown while records are yielded


@dataclass(frozen=True, slots=True)
class Input:
    """Readings to fold."""

    name: str  # of the files, for error messages
    feed: Format  # their format; DUMP for the output of `hatcast dump`
    choice: FormatChoice  # the options that chose the format, which a ledger compares
    # opens them as one recording, which can be read more than once
    open: Callable[[], AbstractContextManager[Recording]]


def files_input(paths: Sequence[str | Path], feed: Format, choice: FormatChoice) -> Input:
    """Return files of one format as an input."""
    return Input(", ".join(map(str, paths)), feed, choice, lambda: open_recording(paths, feed))


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One run over an input."""

    settings: Settings
    input: Input
    reports: Path | None  # output of `hatcast dump reports`; None: none
    # shows the progress of what it is called with, as long as it is open
    progress: Callable[[str], AbstractContextManager[AddBar]]
    warn: Callable[[str], None]  # called with each line about the input for the operator
    # called with what is undecodable and why, however few records are; None: only `warn` is called
    report: Callable[[str], None] | None = None
    # whether `warn` and `report` are read by the operator alone: then they may have counts under `add_remove`
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class ReleasedRun:
    """Releases of a run, valid as long as its ledger is open."""

    folded: FoldResult
    ledger: "LedgerFile"
    records: Iterator[bytes]  # yields each record after it is durable in the ledger: consume all of them


def release_problem(
    settings: Settings, days: "Days | None", reports: str | Path | None, option: Callable[[str], str]
) -> str | None:
    """Return why releases cannot have these options under the policy, with the fix; None if they can.

    option   writes the name of an option
    """
    policy = settings.policy
    if days is not None and policy.relation is not Relation.ADD_REMOVE:
        return f'{option("days")} is for {option("ledger")} under relation = "add_remove"'
    for query in policy.queries:
        if query.on_request:
            return (
                f"the query {query.name!r} takes requests, which need workers: for {option('ledger')} write its"
                " speed_limit and no on_request"
            )
    if reports is not None and not policy.takes_reports:
        return f"{option('reports')} is for estimators that read reports; {policy.estimator} does not"
    if reports is None and policy.takes_reports:
        return (
            "the policy's releases need the reports of devices: give the output of `hatcast dump reports` as"
            f" {option('reports')}"
        )
    return None


def fold_input(run: BatchRun, retention: Retention, ledger: "LedgerFile | None" = None) -> FoldResult:
    """Fold the input, continuing the ledger's earlier runs. Without a ledger and a user key, use a random key.

    Warns about partitions that were not folded to their ends and, unless counts are private, about inputs with few
    accepted records. Raises HatcastError.
    """
    policy = run.settings.policy
    folded = _fold(run, retention, ledger)
    is_public = ledger is None or policy.relation is Relation.REPLACE  # else counts are private
    shows_counts = is_public or run.is_private
    derives = run.input.choice.derive is not None
    found = list(hints(folded.outcomes, policy, folded.problems, derives=derives)) if shows_counts else []
    spans = folded.spans.hint() if shows_counts else None
    lines = [*found, *([] if spans is None else [f"hint: {spans}"])]
    for warning in (*folded.ahead, *(lines if is_public else [f"{line} (not private)" for line in lines])):
        run.warn(warning)
    undecodable = account(folded.outcomes, folded.problems, derives=derives)
    if run.report is not None and shows_counts and not found and undecodable is not None:
        run.report(undecodable if is_public else f"{undecodable} (not private)")
    return folded


@contextmanager
def open_released(run: BatchRun, path: Path, days: "Days | None" = None) -> Iterator[ReleasedRun]:
    """Fold the input, and release its final HATs into the ledger file `path`, each once.

    days   under `add_remove`: first and last local date to release; None: those of the arrivals
    Warns if earlier runs released HATs from other readings. Raises HatcastError.
    """
    # Imported here: noise and accounting take seconds to import, and folding needs neither.
    from hatcast.agents.batch.ledger_file import open_ledger
    from hatcast.agents.batch.release import FilesPath, count_changed, release_final
    from hatcast.stream.mechanisms.system import SystemNoise

    policy, chunks = run.settings.policy, RetainChunks()
    timetable = timetable_of(policy, run.warn)  # its errors before the files are read
    with open_ledger(path, policy, run.settings.user_key) as ledger:
        folded = fold_input(run, chunks, ledger)
        if policy.relation is Relation.REPLACE and (changed := count_changed(folded, chunks, ledger)):
            run.warn(_CHANGED.format(changed))
        path_of_files = FilesPath(folded, chunks, ledger, SystemNoise(), timetable)

        def records() -> Iterator[bytes]:
            with run.progress(RELEASING) as add_bar:
                yield from release_final(path_of_files, days, add_bar)

        yield ReleasedRun(folded, ledger, records())


def _fold(run: BatchRun, retention: Retention, ledger: "LedgerFile | None") -> FoldResult:
    settings, started_ms = run.settings, now_ms()
    is_genuine = None if run.reports is None else report_check(settings)
    own_key = settings.user_key or secrets.token_bytes(KEY_BYTES)
    pseudonyms = Pseudonyms(own_key) if ledger is None else ledger.users.pseudonyms
    calendar = Calendar(settings.policy)
    vehicles = FoldUsers(pseudonyms, None if ledger is None else ledger.users.vehicles)
    devices = FoldUsers(pseudonyms, None if ledger is None else ledger.users.devices)

    def job(users: FoldUsers, advance: Callable[[int], None]) -> FoldJob:
        return FoldJob(settings.policy, users, started_ms, retention, advance)

    with run.progress("reading") as start, run.input.open() as recording:
        start("reading", None)
        read = None if ledger is None else Read.of(run.input.choice, recording.contents(), settings)
        if ledger is not None and read is not None:
            ledger.readings.check(read)
        if run.input.feed is not DUMP:
            folded = fold_recording(recording, job(vehicles, start("folding", len(recording))))
            folded = replace(folded, problems=recording.problems)
        else:
            dump = Dump(recording, run.input.name)
            make = fold_maker(settings.policy, calendar, vehicles, settings, dump.head.partitions)
            folded = fold_dump(dump, job(vehicles, start("folding", len(recording))), make)
    if ledger is not None and read is not None and folded.outcomes.get(Outcome.ACCEPTED):  # else options can be changed
        ledger.pin_readings(read)
    if run.reports is None:
        return folded
    with run.progress("reading") as start, open_recording([run.reports], DUMP) as recording:
        dump = Dump(recording, str(run.reports))
        if dump.head.topic == settings.topics.telemetry:
            raise HatcastError(
                f"{run.reports} is a dump of telemetry: reports are the output of `hatcast dump reports`"
            )
        make_reports = report_fold_maker(settings.policy, calendar, devices, dump.head.partitions, is_genuine)
        return folded.merged_with(fold_dump(dump, job(devices, start("folding", len(recording))), make_reports))
