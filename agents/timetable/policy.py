"""The timetable that a policy names."""

from pathlib import Path

from hatcast.agents.timetable.speeds import scheduled_speeds
from hatcast.agents.timetable.tables import Tell
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.tracker.timetable import Timetable


def timetable_of(policy: Policy, tell: Tell = str) -> Timetable | None:
    """Read the scheduled speeds of a policy's cells from its file; None if it names none. Raises BadTimetable.

    tell   called with a line about what is left out
    """
    if not isinstance(policy.method, TrackerKeys) or policy.method.timetable is None:
        return None
    return scheduled_speeds(Path(policy.method.timetable), resolutions_of(policy), tell)


def resolutions_of(policy: Policy) -> tuple[int, ...]:
    """Return the H3 resolutions of a policy's cells."""
    return policy.h3_resolution, *(() if policy.fine is None else policy.fine.resolutions)
