"""`--timetable` of the commands that replay or plan a tracker."""

from functools import partial
from pathlib import Path
from typing import Final

import click

from hatcast.agents.cli.options import PATH
from hatcast.agents.timetable.speeds import resolutions_of, scheduled_speeds, timetable_of
from hatcast.stream.policy.policy import Policy
from hatcast.stream.tracker.timetable import Timetable

timetable_option: Final = click.option(
    "--timetable",
    type=PATH,
    metavar="FILE",
    help="GTFS timetable (zip): the tracker expects hexagons at about their scheduled speeds.  [default: that of"
    " --config]",
)


def named_timetable(path: Path | None, policy: Policy) -> Timetable | None:
    """Return the scheduled speeds of --timetable, else those of the policy. Raises BadTimetable, UsageError."""
    tell = partial(click.echo, err=True)
    if path is None:
        return timetable_of(policy, tell)
    if policy.value_name is not None:
        raise click.UsageError("--timetable is of speeds, and the policy releases another value")
    return scheduled_speeds(path, resolutions_of(policy), tell)
