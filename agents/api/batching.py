"""`hatcast.batch`: readings to private means; and `hatcast.raw_means`: their true figures, which are not private."""

import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, get_args, runtime_checkable

from hatcast.agents.api.frames import Answers, BatchReleases, BudgetDays, Frame, Releases
from hatcast.agents.api.policy import settings_of
from hatcast.agents.batch.retention import RetainTotals, Totals, in_unit
from hatcast.agents.batch.run import BatchRun, Input, files_input, fold_input, open_released, release_problem
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import require
from hatcast.agents.kafka.dump import DUMP
from hatcast.agents.progress import AddBar, progress_bars
from hatcast.agents.recordings.files import recognised
from hatcast.agents.recordings.parquet import table_digest, table_records
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.query import Period
from hatcast.stream.readings.formats import (
    FORMAT_NAMES,
    PARQUET,
    Columns,
    DeriveSpeed,
    Format,
    FormatChoice,
    format_of_table,
    jsonl,
)
from hatcast.stream.readings.recording import Contents, Recording, reason_of

if TYPE_CHECKING:
    import pyarrow as pa


class HatcastWarning(UserWarning):
    """A line for the caller about readings or charges. Under `replace` it may contain public counts."""


@runtime_checkable
class ArrowStream(Protocol):
    """A table of the Arrow PyCapsule interface, such as a frame of polars or pandas, or a table of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of an Arrow stream."""


Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Data: TypeAlias = Paths | ArrowStream
"""Readings: a file, several files that are one recording, or a table."""

_NAME: Final = "data"  # of a table, in error messages
_FAILED: Final = "Conversion failed for "  # how pyarrow begins to name a column


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """The arguments of `hatcast.batch` for reading data."""

    format: str | None = None
    columns: Mapping[str, str] | Columns | None = None
    unit: str | None = None
    derive_speed: DeriveSpeed | None = None

    def input(self, data: Data, policy: Policy) -> Input:
        """Return the readings as an input. Raises HatcastError if they are neither files nor a table."""
        if isinstance(data, ArrowStream):
            table = table_of(data)
            choice = self.choice_of_table(table.column_names)
            return _table_input(table, self._feed(choice, policy), choice)
        paths = paths_of(data)
        choice = self.choice(paths)
        return files_input(paths, self._feed(choice, policy), choice)

    def choice(self, paths: Sequence[Path]) -> FormatChoice:
        """Return the format of files: the given one, or the one that is recognised. Raises HatcastError."""
        if self.format is not None:
            return self._choice(self.format)
        return replace(recognised(paths, self._columns(), (DUMP,)), derive=self.derive_speed)

    def choice_of_table(self, names: Sequence[str]) -> FormatChoice:
        """Return the format of a table with these columns: the given one, or the one that is recognised."""
        if self.format is not None:
            return self._choice(self.format)
        # A record with its unit is canonical; all other tables are read by the names of their columns.
        default = jsonl.NAME if "unit" in names and self._columns() is None else PARQUET
        return replace(format_of_table(names, self._columns(), default), derive=self.derive_speed)

    def _choice(self, name: str) -> FormatChoice:
        return FormatChoice(name, self._columns(), self.derive_speed)

    def _feed(self, choice: FormatChoice, policy: Policy) -> Format:
        name = choice.name
        if choice == FormatChoice(DUMP.name):
            return DUMP
        if self.derive_speed not in (None, *get_args(DeriveSpeed)):
            raise HatcastError(f"derive_speed: {self.derive_speed!r} is unknown; use missing or always")
        if name not in FORMAT_NAMES:
            raise HatcastError(f"format: {name!r} is not a format; {name_fix(name, (*FORMAT_NAMES, DUMP.name))}")
        return policy_format(choice, policy)

    def _columns(self) -> Columns | None:
        columns = self.columns
        if columns is not None and not isinstance(columns, Columns):
            columns = Columns(dict(columns))
        return columns if self.unit is None else replace(columns or Columns(), unit=self.unit)


def paths_of(data: object) -> list[Path]:
    """Return the paths of one file, or of several. Raises HatcastError if they are not."""
    if isinstance(data, str) and "\n" in data:
        raise HatcastError("data is a text of several lines, which is no path: write it to a file, and give its path")
    if isinstance(data, str | os.PathLike):
        return [Path(data)]
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | os.PathLike) for each in data):
        return [Path(each) for each in data]
    hint = "call its collect() first" if hasattr(data, "collect") else "give a path, a frame, or an Arrow table"
    raise HatcastError(f"data is of the type {type(data).__name__}, which is neither a file nor a table: {hint}")


def table_of(data: ArrowStream) -> "pa.Table":
    """Return a table of pyarrow; its columns share the memory of the frame. A stream, which is read once, is loaded.

    Raises HatcastError, without any of the data: they cannot be converted.
    """
    require("pyarrow", _NAME)
    import pyarrow as pa

    try:
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:  # its text quotes values of the data
        column = next((each for each in error.args[1:] if isinstance(each, str) and each.startswith(_FAILED)), None)
        where = "" if column is None else f": {column[len(_FAILED) :]} has values of several types"
    raise HatcastError(
        f"{_NAME} cannot be converted to an Arrow table{where}; give each column one type, such as text, number or time"
    )


def _table_input(table: "pa.Table", feed: Format, choice: FormatChoice) -> Input:
    def contents() -> Contents:
        digest = table_digest(table)
        return [] if digest is None else [(_NAME, digest)]

    @contextmanager
    def opened() -> Iterator[Recording]:
        yield Recording(
            lambda: table_records(table, _NAME, feed),
            _NAME,
            derivation=feed.derivation,
            contents=contents,
            why=reason_of(feed),
        )

    return Input(_NAME, feed, choice, opened)


Day = str | date

_NO_LEDGER: Final = (
    "batch without a ledger: every call draws new noise and costs the budget again, and nobody counts that: name a"
    " file as ledger"
)


def batch(  # noqa: PLR0913 - options by name
    data: Data,
    policy: str | Path | Policy | Settings,
    *,
    ledger: str | Path | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    columns: Mapping[str, str] | Columns | None = None,
    unit: str | None = None,
    derive_speed: DeriveSpeed | None = None,
    days: tuple[Day, Day] | None = None,
    reports: str | Path | None = None,
) -> BatchReleases:
    """Release the private means of all final HATs in some readings, as `hatcast batch --ledger` does.

    **Each call without a ledger costs the policy's budget again**: it draws new noise, so two calls on the same day say
    more about a vehicle than the policy's limit. With a ledger each HAT is released and charged once; a further call
    returns the same records for it and charges nothing. The ledger file has pseudonyms and their key, so it is not
    private. Terminals and notebooks show the progress.

    Rows of a table are taken in the order of their times, or of their column `arrival` if they have one, and equal
    times in the order of the table; so its order matters no more than that. Rows that are no readings are counted as
    `undecodable`.

    Args:
        data: a file, a list of files that are one recording, or a table: a frame of polars or pandas, or any object
            with `__arrow_c_stream__`. A stream that can be read once is loaded.
        policy: a hatcast.toml, its settings, or a `hatcast.Policy`.
        ledger: the ledger file, created if it is missing. None: a temporary one, with a HatcastWarning.
        format: of the data, as `--format`: docs/feeds.md. None: by what is in the files, as `hatcast check` says; a
            table has the format that its columns show, or `jsonl` if it has a column `unit`, or else is read by the
            names of its columns.
        columns: names of the data's columns by field, such as `{"vehicle": "plate", "time": "ts"}`; a field that is
            left out is found if its column's name is plain. A `hatcast.Columns` also has the format and the zone of
            times.
        unit: of the value, such as `m/s`, unless the data or the name of the column have it.
        derive_speed: `missing` derives the speeds that the data lack from positions, `always` all of them, as
            `--derive-speed`; None: none.
        days: under `add_remove`, the first and the last local date to release. None: those of the first and the last
            arrival, which this reveals.
        reports: output of `hatcast dump reports`, for a policy that takes reports of devices.

    Returns:
        The releases in the order in which they were made, with the `estimates` and `running` means that follow from
            them, `answers`, `budget` and `outcomes`.

    Raises:
        HatcastError: with one line that names the fix, as the command prints it.
    """
    settings = settings_of(policy)
    dates = None if days is None else (_date(days[0]), _date(days[1]))
    problem = release_problem(settings, dates, reports, "`{}`".format)
    if problem is not None:
        raise HatcastError(problem)
    given = ReadingOptions(format, columns, unit, derive_speed).input(data, settings.policy)
    lines: list[str] = []
    try:
        with _ledger_path(ledger) as path:
            run = BatchRun(settings, given, None if reports is None else Path(reports), _bars, lines.append)
            released = _released(run, path, dates, is_kept=ledger is not None)
        if ledger is None:
            lines.insert(0, _NO_LEDGER)  # only now: what fails has cost nothing
        return released
    finally:
        for line in lines:
            warnings.warn(line, HatcastWarning, stacklevel=2)


def _released(run: BatchRun, path: Path, days: tuple[date, date] | None, *, is_kept: bool) -> BatchReleases:
    from hatcast.stream.release.budget_records import budget_record

    policy = run.settings.policy
    with open_released(run, path, days) as released:
        values = list(released.records)
        releases, answers = Releases.of(values), Answers.of(values)
        dates = {release.date for release in releases}
        # An answer is charged to all days of its period, also to those without a release.
        dates.update(day for each in answers for day in Period(date.fromisoformat(each.first_date), each.days).dates)
        budget = BudgetDays(budget_record(policy, day, released.ledger.summary(day)) for day in sorted(dates))
        outcomes = dict(released.folded.outcomes) if policy.relation is Relation.REPLACE else None
    return BatchReleases(releases.values, answers, budget, outcomes, run.settings, path if is_kept else None)


@contextmanager
def _ledger_path(ledger: str | Path | None) -> Iterator[Path]:
    """Yield the ledger's path; None: that of a temporary file, which only this user can read."""
    if ledger is not None:
        yield Path(ledger)
        return
    with tempfile.TemporaryDirectory(prefix="hatcast-") as folder:
        yield Path(folder) / "ledger"


def _bars(_: str) -> AbstractContextManager[AddBar]:
    return progress_bars(one=True)


def _date(day: Day) -> date:
    if isinstance(day, date):
        return day
    try:
        return date.fromisoformat(day)
    except ValueError:
        raise HatcastError(f"days: {day!r} is not a date; write two dates, such as 2022-01-02 and 2022-01-31") from None


class RawMeans(Frame):
    """True figures of HATs, in the unit of the policy. **Not private**: for tests and simulations, never to publish."""

    def __init__(self, hats: Mapping[str, Totals], policy: Policy) -> None:
        self._hats = {hat: in_unit(each, policy) for hat, each in hats.items()}
        self._unit = policy.released_value.unit

    def __len__(self) -> int:
        return len(self._hats)

    def to_arrow(self) -> "pa.Table":
        """Return a row for each HAT: cell, date, slot, users, readings, mean, maximum and unit. Not private."""
        require("pyarrow", "to_arrow()")
        import pyarrow as pa

        rows = [(*hat.split("/"), *totals) for hat, totals in sorted(self._hats.items())]
        columns = zip(*rows, strict=True) if rows else [()] * 7
        cell, date, slot, users, readings, total, maximum = map(list, columns)
        means = [each / number / 1000 for each, number in zip(total, readings, strict=True)]
        return pa.table(
            {
                "cell": pa.array(cell, pa.string()),
                "date": pa.array(date, pa.string()).cast(pa.date32()),
                "slot": pa.array(slot, pa.string()),
                "users": pa.array(users, pa.int64()),
                "readings": pa.array(readings, pa.int64()),
                "mean": pa.array(means, pa.float64()),
                "maximum": pa.array([each / 1000 for each in maximum], pa.float64()),
                "unit": pa.array([self._unit] * len(self), pa.string()),
            }
        )


def raw_means(
    data: Data,
    policy: str | Path | Policy | Settings,
    *,
    format: str | None = None,  # noqa: A002 - the option's name
    columns: Mapping[str, str] | Columns | None = None,
    unit: str | None = None,
    derive_speed: DeriveSpeed | None = None,
) -> RawMeans:
    """Return the true figures of each HAT, as `hatcast batch --contributions` does. **Not private.**

    The arguments are those of `batch`. Nothing is released or charged. Raises HatcastError.
    """
    settings = settings_of(policy)
    lines: list[str] = []
    totals = RetainTotals()
    try:
        given = ReadingOptions(format, columns, unit, derive_speed).input(data, settings.policy)
        run = BatchRun(settings, given, None, _bars, lines.append)
        fold_input(run, totals)
    finally:
        for line in lines:
            warnings.warn(line, HatcastWarning, stacklevel=2)
    return RawMeans(totals.hats, settings.policy)
