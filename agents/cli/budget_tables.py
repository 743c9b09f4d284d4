"""Tables of `hatcast budget show`: the days with a bar each, the queries, and the costs of the report."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from hatcast.agents.cli.budget_horizon import eps
from hatcast.agents.tables.terminal import table
from hatcast.stream.budget import ReportSettings, day_loss, report_table
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.policy.policy import ContinualKeys, Policy, Query
from hatcast.stream.policy.query import CELL_SELECTION, RUNNING_SUMS, TRACKER_QUERIES, Period
from hatcast.stream.records import BudgetRecord, ReservedRecord
from hatcast.stream.units import NANO

_MARKS: Final = ("█▒·", "#=.")  # releases, queries, remaining; the second for ASCII consoles
_STYLES: Final = ("magenta", "cyan", "dim")
_LABELS: Final = ("HATs", "queries", "left")
_BAR_MIN, _BAR_MAX = 9, 25
_WIDTH_MAX: Final = 200
_PERIODS_SHOWN: Final = 6  # per query, the newest
# Reservations that are all that a policy's releases of a day cost: who made them, and their meaning.
_UP_FRONT: Final = {
    TRACKER_QUERIES: ("the tracker", "the most that a bus can lose to it"),
    RUNNING_SUMS: ("the running sums", "what their whole horizon costs a bus"),
}


class Bar:
    """Bar of a limit: spent on releases, reserved for queries, remaining. Readable without colour."""

    def __init__(self, hats: int, queries: int, limit: int) -> None:
        self._parts = (hats, queries, limit)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = bar_cells(*self._parts, min(options.max_width, _BAR_MAX))
        marks = _MARKS[options.ascii_only]
        yield Text.assemble(*((mark * n, style) for mark, n, style in zip(marks, cells, _STYLES, strict=True)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_BAR_MIN, _BAR_MAX).clamp(max_width=options.max_width)


def bar_cells(hats: int, queries: int, limit: int, width: int) -> tuple[int, int, int]:
    """Split `width` cells (at least 3) into those for releases, queries and the remainder; they sum to `width`.

    Every part above 0 gets at least one cell, the remainder too.
    """
    whole = max(limit, hats + queries, 1)
    spent = -(-width * (hats + queries) // whole)
    spent = min(max(spent, (hats > 0) + (queries > 0)), width - (hats + queries < whole))
    reserved = min(-(-width * queries // whole), spent - (hats > 0))
    return spent - reserved, reserved, width - spent


class BudgetTable:
    """Records of `hats.budget`, oldest day first, as a table of at most 100 columns.

    Where the bar is narrower than its legend, the legend is below the table.
    """

    def __init__(self, days: Iterable[dict[str, Any]]) -> None:
        self._records = _records(days)
        self._with_queries = any(record.queries for record in self._records)
        self._with_up_front = any(_up_front(record) is not None for record in self._records)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = zip(_MARKS[options.ascii_only], _LABELS, _STYLES, strict=True)
        shown = (part for part in parts if self._with_queries or part[1] != "queries")
        legend = Text("  ").join(Text(f"{mark} {label}", style) for mark, label, style in shown)
        below = self._table(Text(), legend)
        others = Measurement.get(console, options.update(width=_WIDTH_MAX), below).maximum - _BAR_MAX
        yield below if options.max_width - others < legend.cell_len else self._table(legend, Text())

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._table(Text(), Text()))

    def _table(self, heading: Text, above_caption: Text) -> Table:
        """Return the table. The legend is the bar's heading, or the first line of the caption."""
        spent = "booked" if self._with_up_front else "spent"
        names = ("releases", *(("HATs", "queries") if self._with_queries else ()), spent, "limit")
        headings = (Column("day", no_wrap=True), *names, Column(heading), "at most", "tight")
        rows = (
            (
                record.date,
                "-" if up_front else f"{record.releases:,}",
                *(
                    (eps(hats), "no room" if up_front and not up_front.places else eps(reserved))
                    if self._with_queries
                    else ()
                ),
                f"{record.epsilon_user_day:g}",
                f"{record.limit:g}",
                Bar(hats, reserved, limit),
                f"{record.day_bound:g}",
                f"{record.epsilon_delta.epsilon:.4g}",
            )
            for record in self._records
            for up_front, (hats, reserved, limit) in [(_up_front(record), _split(record))]
        )
        caption = "\n".join(self._notes(spent))
        title = "Privacy budget: what one bus's day may have cost, in epsilon"
        return table(title, Text.assemble(above_caption, "\n" if above_caption else "", caption), headings, rows)

    def _notes(self, spent: str) -> Iterator[str]:
        last = self._records[-1] if self._records else None
        if last is not None and last.total is not None and last.total_limit is not None:
            yield f"all days of a vehicle together: {last.total:g} of {last.total_limit:g}"
        yield "'at most': if every remaining hour is released"
        if last is not None:
            delta = last.epsilon_delta.delta
            yield f"'tight': '{spent}', composed tightly, as (epsilon, delta) with delta {delta:g}"
        if self._with_up_front:
            yield "'queries': reserved before a day's first release: a bus can lose no more to them"
            yield "'no room': other policies had booked too much of the day: nothing is released"
        elif self._with_queries:
            yield "'queries': reserved for this policy's; 'HATs': all else, also of other policies"


def today_line(policy: Policy, days: list[dict[str, Any]], today: str, next_policy: tuple[str, str] | None) -> str:
    """Return what today has cost one bus, and can still cost it.

    today         local date of now
    next_policy   (name, first date) of the next policy, if any
    """
    prefix = f"today, {today} ({policy.timezone}): "
    if policy.from_date is not None and today < policy.from_date:
        return f"{prefix}nothing: policy {policy.name} begins on {policy.from_date}"
    keys = policy.method
    if isinstance(keys, ContinualKeys) and keys.horizon_of(today) is None:
        begins = keys.first.isoformat()
        when = f"begins on {begins}" if today < begins else f"has ended {keys.horizon_days} days after {begins}"
        return f"{prefix}nothing: the horizon of policy {policy.name} {when}"
    if next_policy is not None and today >= next_policy[1]:
        return f"{prefix}nothing more for policy {policy.name}: {next_policy[0]} replaces it from {next_policy[1]} on"
    records = _records(days)
    record = next((each for each in records if each.date == today), None)
    if record is None:
        spent, limit = 0, policy.daily_limit_nano
        bound = day_loss(policy, today).over_days(1, policy.total_limit_nano)
    else:
        spent, bound, limit = _nano(record.epsilon_user_day), _nano(record.day_bound), _nano(record.limit)
    left, reason = bound - spent, ""
    if records and (total := records[-1].total) is not None and (most := records[-1].total_limit) is not None:
        within = max(0, _nano(most) - _nano(total))
        left, reason = min(left, within), " (all days together have no more left)" if within < left else ""
    delta = "" if policy.is_pure else f"; Gaussian noise: all of it holds with delta {policy.delta:g}"
    if record is not None and (up_front := _up_front(record)) is not None:
        user, meaning = _UP_FRONT[up_front.query]
        if not up_front.places:
            return f"{prefix}{eps(spent)} of {eps(limit)} booked by other policies: no room for {user}"
        reserved = up_front.places * _nano(up_front.epsilon)
        of_it = "" if reserved == spent else f", {eps(reserved)} of it"
        return (
            f"{prefix}{eps(spent)} of {eps(limit)} booked{of_it} for {user}, which is {meaning}; can still cost"
            f" {eps(left)}{reason}{delta}"
        )
    return f"{prefix}{eps(spent)} of {eps(limit)} spent, can still cost {eps(left)}{reason}{delta}"


def query_table(policy: Policy, days: list[dict[str, Any]], today: str) -> Table:
    """Return the cost of each query for one bus, by period: the newest ones and that of today."""
    records, rows = _records(days), list[tuple[str, ...]]()
    for query in policy.queries:
        cost = Reserved(policy.most_hats, query.epsilon_nano)
        for period, reserved in _by_period(query, records, today)[-_PERIODS_SHOWN:]:
            dates = f"{period.first} to {period.last}" if period.days > 1 else f"{period.first}"
            costs = map(eps, (cost.epsilon, cost.amount, period.days * cost.amount))
            rows.append((query.name, dates, *costs, _reserved_days(period, reserved, today)))
    if (selection := policy.selection_cost) is not None:
        selection_days = (selection.last - selection.first).days + 1
        spent = (eps(selection.epsilon_nano), eps(selection_days * selection.epsilon_nano))
        rows.append((CELL_SELECTION, f"{selection.first} to {selection.last}", "-", *spent, "spent before"))
    return table(
        "Queries over days: cost for one bus, in epsilon",
        "'a HAT': each HAT that the bus was in; 'a day': all of them, on each day of the period\n"
        "'reserved': days charged so far, each before its first release, irrevocably\n"
        "'no room': a limit did not allow it, so the period gets no answers",
        (
            Column("query", overflow="fold", min_width=8),
            Column("period", no_wrap=True),
            *("a HAT", "a day", "a period"),
            Column("reserved", min_width=14),
        ),
        rows,
    )


def _by_period(query: Query, records: Sequence[BudgetRecord], today: str) -> list[tuple[Period, list[bool]]]:
    """Return (period, whether each charged day had room) for all charged periods and today's or the first one."""
    by_period: dict[Period, list[bool]] = {query.period_of(today) or Period(query.first, query.days): []}
    for record in records:
        period = query.period_of(record.date)
        for reserved in record.queries:
            if reserved.query == query.name and period is not None:
                by_period.setdefault(period, []).append(reserved.places > 0)
    return sorted(by_period.items(), key=lambda each: each[0].first)


def _reserved_days(period: Period, reserved: Sequence[bool], today: str) -> str:
    if not reserved and period.first.isoformat() > today:
        return "not begun yet"
    text = f"{sum(reserved)} of {period.days} day{'s' if period.days > 1 else ''}"
    without_room = len(reserved) - sum(reserved)
    return f"{text}, no room on {without_room}" if without_room else text


def report_cost_table(settings: ReportSettings) -> Table:
    """Return the report's table, recomputed, next to the total cost."""
    costs = report_table(settings)
    k, u, n, b = settings.most_hats, float(settings.upper_bound), settings.user_days, float(settings.scale)
    rows = (
        ("query 1, mean speed", f"K U / (N B) = {k} x {u:g} / ({n} x {b:g})", costs.query_1, costs.query_1),
        ("query 2, over a limit", f"K / (D B) = {k} / ({settings.days} x {b:g})", costs.query_2, costs.query_2),
        ("means, hour by hour", f"K epsilon = {k} x {float(settings.epsilon):g}", None, costs.hats),
        ("together", "", costs.cumulative, costs.total),
    )
    shown = (
        (name, formula, "-" if in_report is None else f"{float(in_report):.3f}", f"{float(total):.3f}")
        for name, formula, in_report, total in rows
    )
    return table("One bus's day, in epsilon", "", ("", "how", "the report", "total"), shown, left=2)


def _split(record: BudgetRecord) -> tuple[int, int, int]:
    """Return (spent on releases, reserved for queries, limit) in 1e-9. Charges of other policies count as releases."""
    reserved = sum(each.places * _nano(each.epsilon) for each in record.queries)
    return max(0, _nano(record.epsilon_user_day) - reserved), reserved, _nano(record.limit)


def _up_front(record: BudgetRecord) -> ReservedRecord | None:
    """Return the reservation that is all that this policy's releases of the day cost; None for other policies."""
    return next((each for each in record.queries if each.query in _UP_FRONT), None)


def _records(days: Iterable[dict[str, Any]]) -> list[BudgetRecord]:
    return [msgspec.convert(day, BudgetRecord) for day in days]


def _nano(epsilon: float) -> int:
    return round(epsilon * NANO)
