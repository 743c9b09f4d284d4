"""Published records on a terminal: as lines while they come, and as tables."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.records.fields import quantity_of
from hatcast.stream.records.shown import SHOWN, Shown, ShownNormal, ShownValue

_WIDEST: Final = 1000
T = TypeVar("T")


def table(
    title: str,
    caption: str | Text,
    headings: Sequence[str | Column],
    rows: Iterable[Sequence[RenderableType] | None],
    *,
    left: int = 1,
    min_width: int | None = None,
) -> Table:
    """Return a table, as all tables of hatcast look.

    headings    the first `left` of them are of texts, which fold; the others of numbers, which do not
    rows        None: a line between two rows
    min_width   of the whole, so that a title and a caption do not wrap at the width of a few columns
    """
    found = Table(
        *(each if isinstance(each, Column) else _column(each, is_text=at < left) for at, each in enumerate(headings)),
        title=escape(title) or None,
        title_justify="left",
        caption=(escape(caption) if isinstance(caption, str) else caption) or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        min_width=min_width,
    )
    for row in rows:
        if row is None:
            found.add_section()
        else:
            found.add_row(*row)
    return found


def _column(heading: str, *, is_text: bool) -> Column:
    return Column(heading, overflow="fold") if is_text else Column(heading, justify="right", no_wrap=True)


def print_fitted(console: Console, shown: RenderableType) -> None:
    """Print a table so that no word is broken and no cell cut off, if there is room for that.

    Where it is too wide there is less space between its columns; elsewhere than on a terminal, as in a pipe, there is
    always room.
    """

    def needed() -> int:
        return Measurement.get(console, console.options.update(width=_WIDEST), shown).maximum

    width = console.width
    if needed() > width and isinstance(shown, Table):
        shown.padding, shown.show_edge = 0, False
    if not console.is_terminal:
        console.width = max(width, needed())
    try:
        console.print(shown)
    finally:
        console.width = width


_LAST: Final = 40


def last_rows(rows: Sequence[T]) -> tuple[Sequence[T], str]:
    """Return the last rows of a table, as many as a person reads, and a line about the others; empty without any."""
    left_out = len(rows) - _LAST
    line = f"the last {_LAST} of {len(rows):,}; a file or JSON has all"
    return (rows, "") if left_out <= 0 else (rows[left_out:], line)


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
    line.append(_limit(record), style="dim").append(f"  {_kind(record)}", style="green")
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
    if record.query_kind:
        return record.query_kind
    return record.status if record.running is None else f"mean since {record.running.horizon}"


def _limit(answer: Shown) -> str:
    """Return the limit above which an answer counts vehicles; empty if it counts none."""
    if answer.speed_limit is not None:
        return f"  faster than {answer.speed_limit} km/h"
    return "" if answer.threshold is None else f"  {answer.value} above {answer.threshold}"


def _named(record: Shown) -> str:
    """Return the name of a value other than the speed, of a mean of it."""
    return f" {record.value}" if record.value and not record.unit.startswith("vehicles") else ""


def _with_estimate(line: Text, estimate: Shown, road: ShownNormal) -> Text:
    """Add an estimate: the mean of the hour's readings and the road beside it; without readings the road."""
    if isinstance(estimate.mean, ShownNormal):
        _add_normal(line, estimate, estimate.mean)
        line.append(f"  road {road.value:6.2f}")
    else:
        _add_normal(line, estimate, road)
        line.append("  of the road")
    line.append(f"  {estimate.stage}", style="green")
    return line.append(f"  alarm: {estimate.alarm}", style="red") if estimate.alarm else line


def _with_running_mean(line: Text, running: Shown) -> Text:
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


def estimates_table(last: Collection[Shown]) -> Table:
    """Return the table of the last estimate of each HAT, but for those that are only predicted."""
    rows = [
        (each.date, each.hours, each.cell, *_shown(each.mean, each.unit), _shown(each.road, each.unit)[0])
        for each in last
        if isinstance(each.mean, ShownNormal) and each.road is not None
    ]
    caption = "mean: of all readings of the hour; road: without the chance of which buses came"
    if others := len(last) - len(rows):
        caption += f"\n{others:,} hours without readings that count are predicted only, and not listed"
    listed, line = last_rows(rows)
    caption += f"\n{line}" if line else ""
    headings: list[str | Column] = [*_unbroken("date", "hour", "cell"), "mean", "95 %", "road"]
    return table(f"Estimates: {_quantity(last)} by place and hour", caption, headings, listed, left=3)


def _shown(normal: ShownNormal, unit: str) -> tuple[str, str]:
    return f"{normal.value:.1f} {unit}", _span(normal.interval95)


def releases_table(releases: Sequence[Shown], of_queries: str = "") -> Table:
    """Return the table of releases. of_queries: its caption if they are queries of a tracker."""
    horizons = sorted({release.running.horizon for release in releases if release.running is not None})
    title = "Releases: private means by place and slot"
    if horizons:
        title = f"Releases: private means by place, since {', '.join(horizons)}"
    shown, line = last_rows(releases)
    captions = of_queries if any(isinstance(release.query, dict) for release in releases) else "", line
    names = ("date", "slot", "cell", "status")
    caption = "\n".join(filter(None, captions))
    return _of_noise(f"{title}, {_quantity(releases)}", names, _release_rows(shown), caption)


def _release_rows(releases: Iterable[Shown]) -> Iterator[tuple[str, ...]]:
    for release in releases:
        kind = release.query_kind
        slot, status = (release.hours, kind) if kind else (release.slot, release.status)
        yield release.date, slot, release.cell, status, *_numbers(release)
        for name, group in release.groups.items():
            of_group = f"{group.mean:.1f} {release.unit}", _span(group.interval95)
            yield "", "", "", f"{name}, {group.users:,} users", *of_group


def _quantity(records: Collection[Shown]) -> str:
    """Return the name of the averaged quantity; all records are of one policy."""
    if any(each.values for each in records):
        return "several values"
    return next((each.quantity for each in records), quantity_of(None))


def answers_tables(answers: Iterable[Shown]) -> list[Table]:
    """Return a table for each query and period."""
    rows = dict[str, list[tuple[str, ...]]]()
    for answer in answers:
        of_period = rows.setdefault(f"Answers to {answer.query_name}, {answer.period}", [])
        of_period.append((answer.slot, answer.cell, _answer_status(answer), *_numbers(answer)))
    return [_of_noise(title, ("slot", "cell", "status"), *last_rows(found)) for title, found in rows.items()]


def _of_noise(title: str, names: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> Table:
    """Return a table of means with their noise. names: of the columns before, the last of which may be long."""
    *short, status = names
    return table(title, caption, (*_unbroken(*short), status, "mean", "95 % of noise"), rows, left=len(names))


def _unbroken(*names: str) -> list[Column]:
    return [Column(name, no_wrap=True) for name in names]


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


def hat_lines(hats: Mapping[str, tuple[int, int, int, int]]) -> Iterator[str]:
    """Yield the true figures of each HAT as lines of a table: users, readings, sum and maximum. Not private.

    They may be tens of thousands, and rich takes more than a millisecond for each.
    """
    rows = [("HAT", "users", "readings", "sum", "max"), *((hat, *map(str, hats[hat])) for hat in sorted(hats))]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    for at, (hat, *totals) in enumerate(rows):
        cells = (hat.ljust(first), *(each.rjust(width) for each, width in zip(totals, others, strict=True)))
        yield " " + "  ".join(cells)
        if at == 0:
            yield " " + "─" * (first + sum(others) + 2 * len(others) + 1)
