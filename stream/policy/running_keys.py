"""`[[policy.running]]`: running means, which follow from published records and cost nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.checks import check_name
from hatcast.stream.policy.table import PolicyTable
from hatcast.stream.policy.toml_tables import check_within, decode_table, member, such_as
from hatcast.stream.policy.tracker_keys import TRACKER

RUNNING_MAX: Final = 8
DAYS_MAX: Final = 92
_DAYS: Final = 28  # default of `days`


class Window(StrEnum):
    """Slots of a running mean."""

    TODAY = "today"
    DAY = "24h"
    WEEK = "7d"
    SAME_HOUR = "same_hour"
    PERIOD = "period"


class RunningOf(StrEnum):
    """Inputs of a running mean."""

    RELEASES = "releases"
    ESTIMATES = "estimates"


_REACH: Final = {Window.TODAY: 1, Window.DAY: 3, Window.WEEK: 9}
"""Local dates that a window can touch: of 24 hours three where a local date has fewer hours than 24."""


class RunningTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.running]]` as written: for the default of `of` see `read_running`."""

    name: Annotated[str, such_as("today")]
    """as `policy.name`; unique among the running means. The map shows it"""
    window: Annotated[str, such_as("today")]
    """`today`: the local date so far; `24h`, `7d`: slots that ended in the last 24 hours or 7 days; `same_hour`:
    this hour of all weekdays, or on a weekend of all its days, of `days` dates; `period`: a part of the day, from
    and to the local `hours`, of the date, or like `same_hour` of `days` dates"""
    hours: Annotated[tuple[int, int] | None, such_as([7, 9])] = None
    """only `period`: its first local hour, and the hour after its last"""
    days: Annotated[int | None, such_as(28, default="`same_hour`: 28; `period`: 1")] = None
    """only `same_hour` and `period`: number of local dates up to the present one, 1 to 92"""
    of: Annotated[str | None, such_as("estimates", default="`releases`; `tracker`: `estimates`")] = None
    """inputs: `releases`, or the [estimates](specification/tracker.md#5-estimates), whose intervals are narrower
    where the noise is large"""


@dataclass(frozen=True, slots=True)
class Running:
    """One `[[policy.running]]`. Not a part of the `policy_id`: it is post-processing.    [decisions/0032]"""

    name: str
    window: Window
    of: RunningOf
    days: int  # number of local dates up to the present one that can be in the window
    hours: tuple[int, int] = (0, 24)  # of a period: its first local hour, and the hour after its last

    def has_hour(self, slot: str) -> bool:
        """Return whether a slot, by its local start such as `09:00`, can be in the window."""
        return self.hours[0] <= int(slot[:2]) < self.hours[1]


def read_running(given: PolicyTable) -> tuple[Running, ...]:
    """Return the running means of a policy. Raises SettingError."""
    if len(given.running) > RUNNING_MAX:
        raise SettingError("policy.running", f"{len(given.running)} running means", f"write at most {RUNNING_MAX}")
    if given.running and given.continual is not None:
        raise SettingError(
            "policy.running", "the releases of [policy.continual] are running means already", "remove the tables"
        )
    found: list[Running] = []
    for at, table in enumerate(given.running):
        where = f"policy.running[{at}]"
        read = decode_table(table, RunningTable, where)
        found.append(
            _running(read, where, _hours(read, given.hours, where), is_tracker=given.estimator.name == TRACKER)
        )
        if found[-1].name in [each.name for each in found[:-1]]:
            raise SettingError(f"{where}.name", f"{found[-1].name!r} is used twice", "give each its own name")
    return tuple(found)


def _hours(given: RunningTable, of_policy: Sequence[int], where: str) -> tuple[int, int]:
    """Return the hours of a running mean: of a period those that are written, else all. Raises SettingError."""
    if given.window != Window.PERIOD:
        if given.hours is not None:
            raise SettingError(f"{where}.hours", f'is only for window = "{Window.PERIOD}"', "remove it")
        return 0, 24
    if given.hours is None:
        raise SettingError(f"{where}.hours", "is missing", "write a period's hours, such as hours = [7, 9]")
    first, end = given.hours
    if not 0 <= first < end <= 24:
        raise SettingError(
            f"{where}.hours",
            f"[{first}, {end}] are not two hours of one day, in order",
            "write the first hour and the hour after the last, such as [7, 9]; a night is two periods",
        )
    if first >= of_policy[1] or end <= of_policy[0]:
        raise SettingError(
            f"{where}.hours",
            f"[{first}, {end}] has no hour of policy.hours, {list(of_policy)}",
            "name hours with releases",
        )
    return first, end


def _running(given: RunningTable, where: str, hours: tuple[int, int], *, is_tracker: bool) -> Running:
    check_name(given.name, f"{where}.name")
    window = member(Window, given.window, f"{where}.window", "is not a window")
    if given.of is None:
        of = RunningOf.ESTIMATES if is_tracker else RunningOf.RELEASES
    else:
        of = member(RunningOf, given.of, f"{where}.of", "is not a kind of records")
    if of is RunningOf.RELEASES and is_tracker:
        raise SettingError(
            f"{where}.of", "a tracker's releases are not of every slot", 'write of = "estimates", or remove the key'
        )
    if given.days is not None and window in _REACH:
        only = f'"{Window.SAME_HOUR}" and "{Window.PERIOD}"'
        raise SettingError(f"{where}.days", f"is only for window = {only}", "remove it")
    default = 1 if window is Window.PERIOD else _DAYS
    days = default if given.days is None else given.days
    check_within(days, 1, DAYS_MAX, f"{where}.days")
    return Running(given.name, window, of, _REACH.get(window, days), hours)
