"""Table of the answers to queries over days, row by row, at their publication."""

from decimal import Decimal

from rich.text import Text

from hatcast.agents.kafka.tail import DisplayedRelease

_COLUMNS = (
    ("policy", 14),
    ("query", 14),
    ("dates", 24),
    ("hour", 11),
    ("hexagon", 15),
    ("answer", 19),
    ("noise, 95 %", 0),
)


def header() -> Text:
    """Return the names of the columns."""
    return Text(_row(*(name for name, _ in _COLUMNS)), style="bold")


def answer_row(answer: DisplayedRelease | None) -> Text:
    """Return an answer as a row; one without a value says why."""
    if answer is None:
        return Text("a record that is not an answer", style="dim")
    query = answer.query if isinstance(answer.query, str) else ""
    dates = f"{answer.first_date} to {answer.last_date}" if answer.days > 1 else answer.date
    hour = f"{answer.slot}-{answer.end[11:16]}"
    names = (answer.policy, query, dates, hour, answer.cell)
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
    return "  ".join(value.ljust(width) for value, (_, width) in zip(values, _COLUMNS, strict=False))
