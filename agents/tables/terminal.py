"""Published records on a terminal: as lines while they come, and as tables."""

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.records.fields import quantity_of
from hatcast.stream.records.shown import SHOWN, Shown, ShownNormal, ShownValue

_WIDEST: Final = 1000
_ANSWER_COLUMNS: Final = (
    ("policy", 14),
    ("query", 14),
    ("dates", 24),
    ("hour", 11),
    ("hexagon", 15),
    ("answer", 19),
    ("noise, 95 %", 0),
)


def read_shown(value: bytes) -> Shown | None:
    """Decode a record; None if it is not a release, an answer, an estimate or a running mean."""
    try:
        return SHOWN.decode(value)
    except UNREADABLE:
        return None


def record_line(record: Shown | None) -> Text:
    """Return a record of any kind as a line of text, with its published digits."""
    if record is None:
        return Text("a record that is not a release", style="dim")
    line = Text.assemble((record.policy, "blue"), "  ") if record.policy else Text()
    hour = f"until {record.end[11:16]}" if record.running_id else record.hours
    line.append(f"{record.period} {hour}  ").append(record.cell, "cyan").append("  ")
    if record.query_name:
        line.append(f"{record.query_name}  ", style="magenta")
    if record.road is not None:
        return _with_estimate(line, record, record.road)
    if record.running_id:
        return _with_running_mean(line, record)
    if not isinstance(record.mean, Decimal):
        return line.append(record.status + (f" ({record.reason})" if record.reason else ""), style="yellow")
    line.append(f"{record.mean!s:>8} {record.unit}{_named(record)}", style="bold")
    if record.interval95 is not None:
        low, high = record.interval95
        line.append(f"  {low} to {high}".ljust(22), style="dim")
    for value in record.values[1:]:  # the first is the speed, which the record's own fields are about
        line.append(f"  {value.name} {value.mean} {value.unit}", style="bold")
        line.append("  {} to {}".format(*value.interval95), style="dim")
    line.append(f"  {_kind(record)}", style="green")
    if record.days_used < record.days:
        line.append(f" from {record.days_used} of {record.days} days", style="yellow")
    return _with_groups(line, record)


def _with_groups(line: Text, release: Shown) -> Text:
    """Add both groups of a hybrid policy's release: users and weights, or the mean of each."""
    if release.users is not None and release.weight is not None:
        users, weight = release.users, release.weight
        line.append(f"  {users.central:,} trust (weight {weight:.2f}), {users.local:,} devices ({1 - weight:.2f})")
    for name, group in release.groups.items():
        line.append(f"  {name} {group.mean} ({group.users:,} users)")
    return line


def _kind(record: Shown) -> str:
    """Return the status; of a release that is not of one slot, which time it is about."""
    if record.is_settlement:
        return "settlement"
    return record.status if record.running is None else f"running mean since {record.running.horizon}"


def _named(record: Shown) -> str:
    """Return the name of a value other than the speed, of a mean of it."""
    return f" {record.value}" if record.value and not record.unit.startswith("vehicles") else ""


def _with_estimate(line: Text, estimate: Shown, road: ShownNormal) -> Text:
    """Add an estimate: the road's mean speed, and that of the HAT if there is a release."""
    _add_normal(line, estimate, road)
    if isinstance(estimate.mean, ShownNormal):
        line.append(f"  mean of buses {estimate.mean.value:6.2f}")
    return line.append(f"  {estimate.stage}", style="green")


def _with_running_mean(line: Text, running: Shown) -> Text:
    """Add a running mean: its name, the mean, and the number of slots in it."""
    line.append(f"{running.name}  ", style="magenta")
    if not isinstance(running.mean, ShownNormal):
        return line.append("no slot with a number", style="yellow")
    _add_normal(line, running, running.mean)
    return line.append(f"  mean of {running.slots} slot{'' if running.slots == 1 else 's'}", style="green")


def _add_normal(line: Text, record: Shown, normal: ShownNormal) -> None:
    low, high = normal.interval95
    # With two decimals each, so that they are below each other: the record may have fewer.
    line.append(f"{normal.value:8.2f} {record.unit}{_named(record)}", style="bold")
    line.append(f"  {low:6.2f} to {high:6.2f}".ljust(22), style="dim")


def answers_header() -> Text:
    """Return the names of the columns of `answer_row`."""
    return Text(_row(*(name for name, _ in _ANSWER_COLUMNS)), style="bold")


def answer_row(answer: Shown | None) -> Text:
    """Return an answer to a query over days as a row of text; one without a value says why."""
    if answer is None:
        return Text("a record that is not an answer", style="dim")
    names = (answer.policy, answer.query_name, answer.period, answer.hours, answer.cell)
    if not isinstance(answer.mean, Decimal):
        reason = f" ({answer.reason.replace('_', ' ')})" if answer.reason else ""
        return Text.assemble(_row(*names), "  ", (answer.status.replace("_", " ") + reason, "yellow"))
    interval = "" if answer.interval95 is None else f"{answer.interval95[0]} to {answer.interval95[1]}"
    row = Text.assemble(_row(*names, f"{answer.mean} {answer.unit}"), "  ", (interval, "dim"))
    if answer.speed_limit is not None:
        row.append(f"  faster than {answer.speed_limit} km/h", style="dim")
    if answer.threshold is not None:
        row.append(f"  {answer.value} above {answer.threshold}", style="dim")
    if answer.days_used < answer.days:
        row.append(f"  from {answer.days_used} of {answer.days} days", style="yellow")
    return row


def _row(*values: str) -> str:
    return "  ".join(value.ljust(width) for value, (_, width) in zip(values, _ANSWER_COLUMNS, strict=False))


def estimates_table(last: Collection[Shown]) -> Table:
    """Return the table of the last estimate of each HAT, but for those that are only predicted."""
    table = Table(title=f"Estimates: {_quantity(last)} by place and hour", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("date", "hour", "cell"):
        table.add_column(name, no_wrap=True)
    for name in ("mean", "95 %", "road"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in last:
        if isinstance(each.mean, ShownNormal) and each.road is not None:
            mean, road = (f"{of.value:.1f} {each.unit}" for of in (each.mean, each.road))
            table.add_row(each.date, each.hours, each.cell, mean, _span(each.mean.interval95), road)
    others = len(last) - table.row_count
    table.caption_justify = "left"
    table.caption = "mean: of all readings of the hour; road: without the chance of which buses came"
    if others:
        table.caption += f"\n{others:,} hours without readings that count are predicted only, and not listed"
    return table


def releases_table(releases: list[Shown], of_queries: str = "") -> Table:
    """Return the table of releases. of_queries: its caption if they are queries of a tracker."""
    horizons = sorted({release.running.horizon for release in releases if release.running is not None})
    title = "Releases: private means by place and slot"
    if horizons:
        title = f"Releases: private running means by place, since {', '.join(horizons)}"
    table = _table(f"{title}, {_quantity(releases)}", "date", "slot", "cell", "status")
    for release in releases:
        slot, status = (release.hours, "settlement") if release.is_settlement else (release.slot, release.status)
        table.add_row(release.date, slot, release.cell, status, *_numbers(release))
        for name, group in release.groups.items():
            of_group = f"{group.mean:.1f} {release.unit}", _span(group.interval95)
            table.add_row("", "", "", f"{name}, {group.users:,} users", *of_group)
    if any(isinstance(release.query, dict) for release in releases):
        table.caption, table.caption_justify = of_queries, "left"
    return table


def _quantity(records: Collection[Shown]) -> str:
    """Return the name of the averaged quantity; all records are of one policy."""
    if any(each.values for each in records):
        return "several values"
    return next((each.quantity for each in records), quantity_of(None))


def answers_tables(answers: Iterable[Shown]) -> list[Table]:
    """Return a table for each query and period."""
    tables: dict[tuple[str, str], Table] = {}
    for answer in answers:
        table = tables.get((answer.query_name, answer.first_date))
        if table is None:
            title = f"Answers to {answer.query_name}, {answer.period}"
            table = tables[answer.query_name, answer.first_date] = _table(title, "slot", "cell", "status")
        table.add_row(answer.slot, answer.cell, _answer_status(answer), *_numbers(answer))
    return list(tables.values())


def _answer_status(answer: Shown) -> str:
    """Return the status of an answer, with the reason if there is none and the number of days it uses."""
    if answer.mean is not None and answer.days_used < answer.days:
        return f"{answer.status}, {answer.days_used} of {answer.days} days"
    return f"{answer.status} ({answer.reason})" if answer.reason else answer.status


def _numbers(record: Shown) -> tuple[str, str]:
    """Return mean and interval as text, a line for each of several values."""
    if record.values:
        means, intervals = zip(*map(_value_numbers, record.values), strict=True)
        return "\n".join(means), "\n".join(intervals)
    if not isinstance(record.mean, Decimal):
        return "", ""
    unit = {"vehicles/day": "a day"}.get(record.unit, record.unit)
    return f"{record.mean:.1f} {unit}", "" if record.interval95 is None else _span(record.interval95)


def _value_numbers(value: ShownValue) -> tuple[str, str]:
    low, high = value.interval95
    return f"{value.name} {_short(value.mean)} {value.unit}", f"{_short(low)} to {_short(high)}"


def _span(interval: tuple[Decimal, Decimal]) -> str:
    return "{:.1f} to {:.1f}".format(*interval)


def _short(number: Decimal) -> str:
    """Return a number with a digit after the point, or none from 100 on."""
    return f"{number:.1f}" if abs(number) < 100 else f"{number:.0f}"


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
