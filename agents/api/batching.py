"""`hatcast.batch`: readings to private means."""

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import date
from pathlib import Path
from typing import Final

from hatcast.agents.api.inputs import Data, Reading
from hatcast.agents.api.policy import settings_of
from hatcast.agents.api.records import Answers, BatchReleases, BudgetDays, Releases
from hatcast.agents.api.warnings import HatcastWarning
from hatcast.agents.batch.run import Run, StartProgress, open_released, release_problem
from hatcast.agents.config.settings import Settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.query import Period
from hatcast.stream.readings.formats import Columns, DeriveSpeed

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
    private.

    Rows of a table are taken in the order of their times, or of their column `arrival` if they have one, and equal
    times in the order of the table; so its order matters no more than that. Rows that are no readings are counted as
    `undecodable`.

    Args:
        data: a file, a list of files that are one recording, or a table: a frame of polars or pandas, or any object
            with `__arrow_c_stream__`. A stream that can be read once is loaded.
        policy: a hatcast.toml, its settings, or a `hatcast.Policy`.
        ledger: the ledger file, created if it is missing. None: a temporary one, with a HatcastWarning.
        format: of the data, as `--format`: docs/feeds.md. None: by the extension of the first file, such as `.csv`; a
            table is read by the names of its columns, or as `jsonl` if it has a column `unit`.
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
        The releases in the order in which they were made, with `answers`, `budget` and `outcomes`.

    Raises:
        HatcastError: with one line that names the fix, as the command prints it.
    """
    settings = settings_of(policy)
    dates = None if days is None else (_date(days[0]), _date(days[1]))
    problem = release_problem(settings, dates, reports, "`{}`".format)
    if problem is not None:
        raise HatcastError(problem)
    given = Reading(format, columns, unit, derive_speed).input(data, settings.policy)
    if ledger is None:
        warnings.warn(_NO_LEDGER, HatcastWarning, stacklevel=2)
    lines: list[str] = []
    try:
        with _ledger_path(ledger) as path:
            run = Run(settings, given, None if reports is None else Path(reports), no_progress, lines.append)
            return _released(run, path, dates)
    finally:
        for line in lines:
            warnings.warn(line, HatcastWarning, stacklevel=2)


def _released(run: Run, path: Path, days: tuple[date, date] | None) -> BatchReleases:
    from hatcast.stream.release.spending import budget_record

    policy = run.settings.policy
    with open_released(run, path, days) as released:
        values = list(released.records)
        releases, answers = Releases.of(values), Answers.of(values)
        dates = {release.date for release in releases}
        # An answer is charged to all days of its period, also to those without a release.
        dates.update(day for each in answers for day in Period(date.fromisoformat(each.first_date), each.days).dates)
        budget = BudgetDays(budget_record(policy, day, released.ledger.summary(day)) for day in sorted(dates))
        outcomes = dict(released.folded.outcomes) if policy.relation is Relation.REPLACE else None
    return BatchReleases(releases.values, answers, budget, outcomes)


@contextmanager
def _ledger_path(ledger: str | Path | None) -> Iterator[Path]:
    """Yield the ledger's path; None: that of a temporary file, which only this user can read."""
    if ledger is not None:
        yield Path(ledger)
        return
    with tempfile.TemporaryDirectory(prefix="hatcast-") as folder:
        yield Path(folder) / "ledger"


def no_progress(_: str) -> AbstractContextManager[StartProgress]:
    """Show no progress."""
    return nullcontext(lambda _, __: lambda _: None)


def _date(day: Day) -> date:
    if isinstance(day, date):
        return day
    try:
        return date.fromisoformat(day)
    except ValueError:
        raise HatcastError(f"days: {day!r} is not a date; write two dates, such as 2022-01-02 and 2022-01-31") from None
