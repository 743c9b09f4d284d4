"""The ledger as tables, for people: its days with a bar each, its queries, and the report's table beside it."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hatcast.stream.accounting.ledger import Reserved
from hatcast.stream.budget.per_user import day_loss
from hatcast.stream.budget.report_table import ReportSettings, report_table
from hatcast.stream.policy.policy import Policy, Query
from hatcast.stream.policy.query_keys import CELLS, Period
from hatcast.stream.records import BudgetRecord
from hatcast.stream.units import NANO

_MARKS: Final = ("█▒·", "#=.")  # releases, queries, what is left; the second for consoles without the first
_STYLES: Final = ("magenta", "cyan", "dim")
_MEANINGS: Final = ("HATs", "queries", "left")
_BAR_LEAST, _BAR_MOST = 9, 25  # a legend of three lines, of one
_PERIODS_SHOWN: Final = 6  # of each query, the newest


class Bar:
    """How much of a limit is spent: by releases, and kept for queries. Told apart without colour."""

    def __init__(self, hats: int, queries: int, limit: int) -> None:
        self._parts = (hats, queries, limit)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = bar_cells(*self._parts, min(options.max_width, _BAR_MOST))
        marks = _MARKS[options.ascii_only]
        yield Text.assemble(*((mark * n, style) for mark, n, style in zip(marks, cells, _STYLES, strict=True)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_BAR_LEAST, _BAR_MOST).clamp(max_width=options.max_width)


class Legend:
    """What the parts of a `Bar` are, above them; queries where there are any."""

    def __init__(self, *, asked: bool) -> None:
        self._asked = asked

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = [
            Text(f"{mark} {word}", style)
            for mark, word, style in zip(_MARKS[options.ascii_only], _MEANINGS, _STYLES, strict=True)
            if self._asked or word != "queries"
        ]
        yield Text("  " if options.max_width >= _BAR_MOST else "\n").join(parts)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_BAR_LEAST, _BAR_MOST).clamp(max_width=options.max_width)


def bar_cells(hats: int, queries: int, limit: int, width: int) -> tuple[int, int, int]:
    """How many of `width` cells, at least 3, are for releases, for queries and for what is left: together `width`.

    What is there is seen: a part above 0 has a cell of its own, what is left too.
    """
    whole = max(limit, hats + queries, 1)
    spent = -(-width * (hats + queries) // whole)
    spent = min(max(spent, (hats > 0) + (queries > 0)), width - (hats + queries < whole))
    kept = min(-(-width * queries // whole), spent - (hats > 0))
    return spent - kept, kept, width - spent


def budget_table(days: list[dict[str, Any]]) -> Table:
    """Records of `hats.budget`, oldest day first, as a table of at most 100 columns."""
    records = _records(days)
    asked = any(record.queries for record in records)
    table = Table(
        title="Privacy budget: what one bus's day may have cost, in epsilon",
        caption=_caption(records, asked=asked),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("day", no_wrap=True)
    for column in ("releases", *(("HATs", "queries") if asked else ()), "spent", "limit"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(Legend(asked=asked))
    for column in ("at most", "finer"):
        table.add_column(column, justify="right", no_wrap=True)
    for record in records:
        hats, kept, limit = _split(record)
        table.add_row(
            record.date,
            f"{record.releases:,}",
            *((number(hats), number(kept)) if asked else ()),
            f"{record.epsilon_user_day:g}",
            f"{record.limit:g}",
            Bar(hats, kept, limit),
            f"{record.day_bound:g}",
            f"{record.epsilon_delta.epsilon:.4g}",
        )
    return table


def today_line(policy: Policy, days: list[dict[str, Any]], today: str, followed: tuple[str, str] | None) -> str:
    """What the local date of now has cost one bus, and can still cost it.

    followed   the policy that follows this one, and from which date on; None: there is none
    """
    said = f"today, {today} ({policy.timezone}): "
    if policy.from_date is not None and today < policy.from_date:
        return f"{said}nothing, for policy {policy.name} begins on {policy.from_date}"
    if followed is not None and today >= followed[1]:
        return f"{said}nothing more of policy {policy.name}: {followed[0]} follows it from {followed[1]} on"
    records = _records(days)
    record = next((each for each in records if each.date == today), None)
    if record is None:
        spent, limit = 0, policy.daily_limit_nano
        bound = day_loss(policy, today).over(1, policy.total_limit_nano)
    else:
        spent, bound, limit = _nano(record.epsilon_user_day), _nano(record.day_bound), _nano(record.limit)
    left, why = bound - spent, ""
    if records and (total := records[-1].total) is not None and (most := records[-1].total_limit) is not None:
        within = max(0, _nano(most) - _nano(total))
        left, why = min(left, within), " (all days together have no more left)" if within < left else ""
    held = "" if policy.is_pure else f"; Gaussian noise: all of it holds with delta {policy.delta:g}"
    return f"{said}{number(spent)} of {number(limit)} spent, can still cost {number(left)}{why}{held}"


def query_table(policy: Policy, days: list[dict[str, Any]], today: str) -> Table:
    """What each query costs one bus, by period: the newest ones, and the one of today."""
    table = Table(
        title="Queries over days: what each costs one bus, in epsilon",
        caption="'a HAT': in each that the bus was in; 'a day': in all of them, each day of the period\n"
        "'reserved': on how many days so far, before the day's first release, for good\n"
        "'no room': a limit did not allow it, so the period gets no answers",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("query", overflow="fold", min_width=8)
    table.add_column("period", no_wrap=True)
    for column in ("a HAT", "a day", "a period"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("reserved", min_width=14)
    records = _records(days)
    for query in policy.queries:
        one = Reserved(policy.most_hats, query.epsilon_nano)
        for period, found in _by_period(query, records, today)[-_PERIODS_SHOWN:]:
            table.add_row(
                query.name,
                f"{period.first} to {period.last}" if period.days > 1 else f"{period.first}",
                number(one.epsilon),
                number(one.amount),
                number(period.days * one.amount),
                _settled(period, found, today),
            )
    if (chosen := policy.chosen) is not None:
        days_of_choice = (chosen.last - chosen.first).days + 1
        spent = (number(chosen.epsilon_nano), number(days_of_choice * chosen.epsilon_nano))
        table.add_row(CELLS, f"{chosen.first} to {chosen.last}", "-", *spent, "spent before")
    return table


def _by_period(query: Query, records: Sequence[BudgetRecord], today: str) -> list[tuple[Period, list[bool]]]:
    """Each period with charged days, and today's or the first to come -> of each charged day, if there was room."""
    found: dict[Period, list[bool]] = {query.period_of(today) or Period(query.first, query.days): []}
    for record in records:
        period = query.period_of(record.date)
        for reserved in record.queries:
            if reserved.query == query.name and period is not None:
                found.setdefault(period, []).append(reserved.places > 0)
    return sorted(found.items(), key=lambda each: each[0].first)


def _settled(period: Period, found: Sequence[bool], today: str) -> str:
    if not found and period.first.isoformat() > today:
        return "not begun yet"
    text = f"{sum(found)} of {period.days} day{'s' if period.days > 1 else ''}"
    refused = len(found) - sum(found)
    return f"{text}, no room on {refused}" if refused else text


def report_view(settings: ReportSettings) -> Table:
    """The report's own table, recomputed, beside the whole cost."""
    found = report_table(settings)
    table = Table(title="One bus's day, in epsilon", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", "how"):
        table.add_column(column, no_wrap=True)
    for column in ("the report", "in all"):
        table.add_column(column, justify="right", no_wrap=True)
    k, u, n, b = settings.most_hats, float(settings.upper_bound), settings.user_days, float(settings.scale)
    rows = (
        ("query 1, mean speed", f"K U / (N B) = {k} x {u:g} / ({n} x {b:g})", found.query_1, found.query_1),
        ("query 2, over a limit", f"K / (D B) = {k} / ({settings.days} x {b:g})", found.query_2, found.query_2),
        ("means, hour by hour", f"K epsilon = {k} x {float(settings.epsilon):g}", None, found.hats),
        ("together", "", found.cumulative, found.whole),
    )
    for name, how, printed, whole in rows:
        table.add_row(name, how, "-" if printed is None else f"{float(printed):.3f}", f"{float(whole):.3f}")
    return table


def number(nano: int) -> str:
    """1e-9 epsilon as a table shows it: six digits."""
    return f"{nano / NANO:g}"


def _caption(records: Sequence[BudgetRecord], *, asked: bool) -> str:
    lines = []
    if records and (total := records[-1].total) is not None and (limit := records[-1].total_limit) is not None:
        lines.append(f"all days of a vehicle together: {total:g} of {limit:g}")
    lines.append("'at most': if every hour left is released")
    if records:
        delta = records[-1].epsilon_delta.delta
        lines.append(f"'finer': what is spent, composed, as (epsilon, delta) with delta {delta:g}")
    if asked:
        lines.append("'queries': kept for this policy's; 'HATs': all else, of other policies too")
    return "\n".join(lines)


def _split(record: BudgetRecord) -> tuple[int, int, int]:
    """1e-9: spent on releases, kept for queries, limit. What other policies spent is not told apart: on releases."""
    kept = sum(each.places * _nano(each.epsilon) for each in record.queries)
    return max(0, _nano(record.epsilon_user_day) - kept), kept, _nano(record.limit)


def _records(days: Iterable[dict[str, Any]]) -> list[BudgetRecord]:
    return [msgspec.convert(day, BudgetRecord) for day in days]


def _nano(epsilon: float) -> int:
    return round(epsilon * NANO)
