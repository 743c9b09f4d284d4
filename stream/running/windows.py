"""Slots of a window.    [docs/specification/continual.md, section 1]"""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Final

from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.running_keys import Running, Window
from hatcast.stream.running.inputs import SlotInputs
from hatcast.stream.units import HOUR_MS

_SPAN_MS: Final = {Window.DAY: 24 * HOUR_MS, Window.WEEK: 7 * 24 * HOUR_MS}
_SATURDAY: Final = 5


def window_at(running: Running, at: SlotInputs) -> Callable[[SlotInputs], bool]:
    """Return whether a slot is in the window whose last slot is `at`. Slots after `at` must not be given."""
    if running.window is Window.TODAY:
        return lambda slot: slot.date == at.date
    if running.window in _SPAN_MS:
        # By its end: so the window has the slot itself, however long it is, and no part of an hour twice.
        start_ms = at.end_ms - _SPAN_MS[running.window]
        return lambda slot: slot.end_ms > start_ms
    first, weekend = _first_date(running, at.date), _is_weekend(at.date)
    return lambda slot: slot.name == at.name and slot.date >= first and _is_weekend(slot.date) == weekend


def window_start(running: Running, at: SlotInputs, calendar: Calendar) -> int:
    """Return the start of the window, ms UTC: of its first local date, or 24 hours or 7 days before its end."""
    if running.window in _SPAN_MS:
        return at.end_ms - _SPAN_MS[running.window]
    day = at.date if running.window is Window.TODAY else _first_date(running, at.date)
    while not calendar.slots_of(day):  # a date that the local clock skipped
        day = later(day, 1)
    return calendar.day_start(day)


def later(day: str, days: int) -> str:
    """Return the local date so many days later."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def _first_date(running: Running, day: str) -> str:
    return later(day, 1 - running.days)


def _is_weekend(day: str) -> bool:
    return date.fromisoformat(day).weekday() >= _SATURDAY
