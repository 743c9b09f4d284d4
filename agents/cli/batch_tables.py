"""Tables of `hatcast batch`: outcomes, figures of HATs, releases, answers to queries."""

from datetime import date
from typing import Final

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from hatcast.agents.batch.fold import FoldResult
from hatcast.agents.batch.retention import Totals
from hatcast.stream.policy.query import Period
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.records.fields import is_settlement

_WIDEST: Final = 1000
_OF_QUERIES: Final = "each mean is of one query of the tracker: for speeds read --json --estimates"


def show_outcomes(folded: FoldResult, *, as_json: bool) -> None:
    """Print the number of records of each outcome."""
    if as_json:
        click.echo(msgspec.json.encode({"outcomes": folded.outcomes}, order="sorted"))
        return
    records = sum(folded.outcomes.values())
    table = Table(title="Records by outcome")
    table.add_column("outcome")
    table.add_column("records", justify="right")
    table.add_column("share", justify="right")
    for name in (*Outcome, *(f"reports.{outcome}" for outcome in Outcome)):
        if count := folded.outcomes.get(name):
            table.add_row(name, f"{count:,}", f"{count / records:.1%}")
    console = Console()
    console.print(table)
    console.print(f"{records:,} records, {folded.outcomes.get(Outcome.ACCEPTED.value, 0):,} of them accepted")


def show_hats(hats: dict[str, Totals]) -> None:
    """Print the true figures of each HAT. Not private."""
    click.echo(f"{'HAT':44} {'users':>8} {'readings':>9} {'sum':>13} {'max':>8}")
    for hat, (users, count, total, maximum) in sorted(hats.items()):
        click.echo(f"{hat:44} {users:8} {count:9} {total:13} {maximum:8}")


class ShownGroup(msgspec.Struct):
    """Displayed fields of one group's mean in a release of a hybrid policy."""

    mean: float
    interval95: tuple[float, float]
    users: int


class ShownValue(msgspec.Struct):
    """Displayed fields of one of several values of a release."""

    name: str
    unit: str
    mean: float
    interval95: tuple[float, float]

    @property
    def numbers(self) -> tuple[str, str]:
        """Mean and interval as text."""
        low, high = self.interval95
        return f"{self.name} {_short(self.mean)} {self.unit}", f"{_short(low)} to {_short(high)}"


class ShownRunning(msgspec.Struct):
    """A running sum: the first local date of its horizon."""

    horizon: str


class ShownRelease(msgspec.Struct):
    """Displayed fields of a release of a HAT, or of an answer to a query."""

    date: str
    slot: str
    cell: str
    status: str
    end: str = ""
    release_id: str = ""
    unit: str = ""
    mean: float | None = None
    interval95: tuple[float, float] | None = None
    values: list[ShownValue] = []
    query: str | dict[str, object] = ""
    first_date: str = ""
    last_date: str = ""
    days: int = 0
    days_used: int = 0
    reason: str = ""
    groups: dict[str, ShownGroup] = {}
    running: ShownRunning | None = None

    @property
    def is_settlement(self) -> bool:
        """Whether it is a query of a tracker's settlement: it may be about one slot, of which there is a release."""
        return is_settlement(self.release_id)

    @property
    def slots(self) -> str:
        """The slot; of a settlement all that it is about, as in `hatcast tail`."""
        return f"{self.slot}-{self.end[11:16]}" if self.is_settlement else self.slot

    @property
    def answers(self) -> str:
        """Name of the query over days that it answers; "" for none. A tracker's `query` is not a name."""
        return self.query if isinstance(self.query, str) else ""

    @property
    def dates(self) -> list[str]:
        """Local dates whose budget it is charged to."""
        return Period(date.fromisoformat(self.first_date), self.days).dates if self.answers else [self.date]

    @property
    def status_text(self) -> str:
        """Status of an answer, with the reason if there is none and the number of days it uses."""
        if self.mean is not None and self.days_used < self.days:
            return f"{self.status}, {self.days_used} of {self.days} days"
        return f"{self.status} ({self.reason})" if self.reason else self.status

    @property
    def period(self) -> str:
        """Period of an answer."""
        return f"{self.first_date} to {self.last_date}" if self.days > 1 else self.first_date

    @property
    def numbers(self) -> tuple[str, str]:
        """Mean and interval as text, a line for each of several values."""
        if self.values:
            means, intervals = zip(*(value.numbers for value in self.values), strict=True)
            return "\n".join(means), "\n".join(intervals)
        unit = {"vehicles/day": "a day"}.get(self.unit, self.unit)
        if self.mean is None:
            return "", ""
        return f"{self.mean:.1f} {unit}", "" if self.interval95 is None else _span(self.interval95)


def _span(interval: tuple[float, float]) -> str:
    return "{:.1f} to {:.1f}".format(*interval)


def _short(number: float) -> str:
    """Return a number with a digit after the point, or none from 100 on."""
    return f"{number:.1f}" if abs(number) < 100 else f"{number:.0f}"


def releases_table(releases: list[ShownRelease]) -> Table:
    """Return the table of releases."""
    horizons = sorted({release.running.horizon for release in releases if release.running is not None})
    title = "Releases: private means by place and slot"
    if horizons:
        title = f"Releases: private running means by place, since {', '.join(horizons)}"
    table = _table(title, "date", "slot", "cell", "status")
    for release in releases:
        status = "settlement" if release.is_settlement else release.status
        table.add_row(release.date, release.slots, release.cell, status, *release.numbers)
        for name, group in release.groups.items():
            of_group = f"{group.mean:.1f} {release.unit}", _span(group.interval95)
            table.add_row("", "", "", f"{name}, {group.users:,} users", *of_group)
    if any(isinstance(release.query, dict) for release in releases):
        table.caption, table.caption_justify = _OF_QUERIES, "left"
    return table


def show_answers(console: Console, answers: list[ShownRelease]) -> None:
    """Print a table for each query and period."""
    tables: dict[tuple[str, str], Table] = {}
    for answer in answers:
        table = tables.get((answer.answers, answer.first_date))
        if table is None:
            title = f"Answers to {answer.answers}, {answer.period}"
            table = tables[answer.answers, answer.first_date] = _table(title, "slot", "cell", "status")
        table.add_row(answer.slot, answer.cell, answer.status_text, *answer.numbers)
    if not tables:
        console.print("no answers to queries: no period of a query is over in these files")
    for table in tables.values():
        print_fitted(console, table)


def print_fitted(console: Console, table: Table) -> None:
    """Print a table, on a narrow terminal with less space between its columns, so that no word is broken."""
    if Measurement.get(console, console.options.update(width=_WIDEST), table).maximum > console.width:
        table.padding, table.show_edge = 0, False
    console.print(table)


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=name != "status", overflow="fold")  # a reason may be long
    for name in ("mean", "95 % of noise"):
        table.add_column(name, justify="right", no_wrap=True)
    return table
