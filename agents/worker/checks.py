"""Checks of `hatcast doctor`, and their results."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec


class State(StrEnum):
    """Result of a check. A problem keeps a worker from starting, or breaks a guarantee."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(msgspec.Struct, frozen=True):
    """One check and its result.

    fix   what to change; empty if nothing. In JSON it is named `mend`
    """

    name: str
    state: State
    found: str
    fix: str = msgspec.field(default="", name="mend")


@dataclass(frozen=True, slots=True)
class Accepted:
    """Losses that the operator accepts, as options of `hatcast worker`.

    gap              telemetry that was deleted unread
    volatile_state   a Redis that evicts keys or does not persist
    """

    gap: bool = False
    volatile_state: bool = False


NOTHING_ACCEPTED: Final = Accepted()
