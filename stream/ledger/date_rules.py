"""Rules of local dates: all policies of a domain charge a reading to one date.    [docs/proofs.md, "Local dates"]

A process whose time zone data are older or newer may have other rules for a date: other instants at which it begins and
ends. A reading may be on the date beside it under other rules, so three dates are compared. A date's rules are pinned
before anything of it is released; a clustering pins them in the apply that reserves its cost.
"""

from collections.abc import Iterable
from datetime import date as local_date
from datetime import timedelta
from typing import Final

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.view import Decision, Draft, View, Wanted, text_of

_BESIDE: Final = (timedelta(days=-1), timedelta(), timedelta(days=1))


def rules_rows(name: str, dates: Iterable[str]) -> Wanted:
    """Return what `pin` and `check` read."""
    return {rows.RULES: _beside(dates), rows.SEALED: {name}}


def check(view: View, name: str, dates: Iterable[str], calendar: Calendar) -> None:
    """Raise HatcastError if one of these dates, or one beside it, is pinned to other rules; or DamagedRow, Unread."""
    _check(Draft(view), name, dates, calendar)


def pin(view: View, name: str, date: str, calendar: Calendar) -> Decision[None]:
    """Pin the rules of a date of which something is about to be drawn. Raises HatcastError, as `check`."""
    draft = Draft(view)
    pin_rules(draft, name, date, calendar)
    return Decision(None, draft.changes)


def pin_rules(draft: Draft, name: str, date: str, calendar: Calendar) -> None:
    """Pin the rules of a date, unless they are pinned. Raises HatcastError, as `check`."""
    _check(draft, name, [date], calendar)
    if draft.compare(rows.RULES, date) is None:
        draft.set(rows.RULES, date, calendar.rules_of(date).encode())


def _check(draft: Draft, name: str, dates: Iterable[str], calendar: Calendar) -> None:
    sealed = draft.compare(rows.SEALED, name) or b""
    pinned = [(date, draft.compare(rows.RULES, date)) for date in _beside(dates) if date.encode() > sealed]
    calendar.check_rules((date, text_of(rows.RULES, rules)) for date, rules in pinned if rules is not None)


def _beside(dates: Iterable[str]) -> list[str]:
    return sorted({(local_date.fromisoformat(each) + days).isoformat() for each in dates for days in _BESIDE})
