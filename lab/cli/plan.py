"""`hatcast plan`: choose the keys of a tracker from counts, or those of running means."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import click

from hatcast.agents.cli.options import epsilons_of, json_option, plot_option
from hatcast.agents.cli.progress import progress_bars
from hatcast.agents.cli.recordings import checked_format, format_options, more_argument, policy_option
from hatcast.lab.cli.plan_usage import TOTALS, WRITTEN, Options, check_usage, continual_options, tracker_options
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import Format

if TYPE_CHECKING:  # imported when it is needed, so that --help is fast
    from hatcast.lab.plan.counts import Counts

_MIN_USERS: Final = 3


@click.command(
    epilog="Examples:  hatcast plan --data 2016-11-2*.csv.gz --format capmetro --write hatcast.toml\n\n"
    "hatcast plan --continual --slots 168 --max-slots 24 --users-per-slot 10"
)
@click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE...",
    help="Recordings, as one stream. Only who was where and how often is used, no speed.",
)
@more_argument
@format_options(of="recordings")
@click.option(
    "--counts",
    type=click.Path(path_type=Path),
    help="A CSV file instead of --data, such as a timetable: date,hour,cell,vehicle,readings.",
)
@policy_option
@click.option(
    "--min-users",
    type=click.IntRange(1),
    help="HATs with fewer users do not count.  [default: that of --config, or 3]",
)
@click.option(
    "--write",
    "target",
    type=click.Path(path_type=Path),
    help="Write the keys of one plan into this hatcast.toml; its comments stay.",
)
@tracker_options
@continual_options
@plot_option
@json_option
def command(**given: Unpack[Options]) -> None:
    """Choose the keys of a tracker, or of running means with --continual, and say which errors to expect.

    A tracker: for each total the queries of whole days are designed by the code of releases, without a speed and
    without noise: the variances of its model depend on counts only. The given days are repeated up to a month.

    --continual: compare the kinds of [policy.continual] for the running sums and means of a horizon, by the noise of
    the mechanisms themselves, and take the best one. Compare them with running means that cost nothing more.

    Counts are public under relation replace, so what is printed is as public as they are.
    """
    check_usage(given)
    if given["continual"]:
        from hatcast.lab.cli.plan_continual import run

        run(given)
    else:
        _plan_tracker(given)


def _plan_tracker(given: Options) -> None:
    """Plan a tracker, and write its keys into the configuration."""
    from hatcast.lab.plan import tracker

    totals = sorted(epsilons_of("--daily-limit", given["daily_limit"] or TOTALS, TOTALS))
    written = WRITTEN if given["written_limit"] is None else given["written_limit"]
    if given["target"] is not None and written not in totals:
        raise click.UsageError(f"--write-limit {written:g} is not one of --daily-limit")
    text = target_text(given["target"])
    policy, read = _source(given)
    upper_bound, unit = policy.upper_bound / 1000, policy.released_value.unit
    with progress_bars() as add_bar:
        counts, source = _counts(given, policy, read, add_bar("reading", None))
        objective = Objective(given["objective"] or Objective.CELLS)
        plans = tracker.plan(counts, upper_bound, totals, objective, add_bar("planning", len(totals)))
    title = f"{source}: {len(counts.days)} day{'' if len(counts.days) == 1 else 's'}, {counts.hats:,} HATs"
    if given["target"] is not None and text is not None:
        from hatcast.lab.plan.write import write_tracker

        write_tracker(given["target"], text, next(each for each in plans.plans if each.total == written))
    settings: dict[str, Any] = {
        "source": source,
        "days": len(counts.days),
        "hats": counts.hats,
        "cells": counts.cells,
        "upper_bound": upper_bound,
        **({} if policy.value_name is None else {"unit": unit}),
        "objective": objective.value,
    }
    tracker.report_of(plans, title, settings, unit).write(as_json=given["as_json"], plot_file=given["plot_file"])


def target_text(path: Path | None) -> str | None:
    """Return the text of the file to write; None without one. Raises ModuleNotFoundError before anything is planned."""
    if path is None:
        return None
    from hatcast.lab.plan.write import read_target

    return read_target(path)


def _source(given: Options) -> tuple[Policy, Path | Format]:
    """Return the policy, and the file of counts or the format of the recordings."""
    from hatcast.lab.days import policy_of_recordings

    choice = given["feed_format"]
    policy = policy_of_recordings(given["config"], "" if choice is None else choice.name)
    if given["counts"] is not None:
        return policy, given["counts"]
    assert choice is not None, "checked by _check_usage"  # noqa: S101 - for mypy
    click.echo("reads raw data; what it prints follows from counts alone", err=True)
    return policy, checked_format(choice, policy, (*given["data"], *given["more"]))


def _counts(
    given: Options, policy: Policy, read: Path | Format, progress: Callable[[int], None]
) -> tuple["Counts", str]:
    """Return counts of the first days, and the name of the source."""
    from hatcast.lab.plan.counts import counts_of_file, counts_of_recordings

    min_users = given["min_users"] or (_MIN_USERS if given["config"] is None else policy.min_users)
    if isinstance(read, Path):
        counts, source = counts_of_file(read, min_users), read.name
    else:
        paths = (*given["data"], *given["more"])
        counts = counts_of_recordings(paths, read, policy, min_users, progress)
        source = ", ".join(path.name for path in paths)
    if not counts.days:
        raise HatcastError(f"{source} has no HAT with {min_users} users; name more days, or a smaller --min-users")
    return counts.first_days(), source


def tracker_keys(recordings: Sequence[Path], feed: Format, policy: Policy, limit: float) -> dict[str, str | float]:
    """Return the keys of [policy.tracker] for `hatcast init --recording`, and print the errors to expect."""
    from hatcast.lab.plan import tracker
    from hatcast.lab.plan.counts import counts_of_recordings

    click.echo("reads raw data; what it chooses follows from counts alone", err=True)
    with progress_bars() as add_bar:
        reading = add_bar("reading", None)
        counts = counts_of_recordings(recordings, feed, policy, policy.min_users, reading)
        if not counts.days:
            raise HatcastError(f"--recording: no hexagon and hour has {policy.min_users} buses; name other days")
        bound, objective = policy.upper_bound / 1000, Objective.CELLS
        plans = tracker.plan(counts.first_days(), bound, [limit], objective, add_bar("planning", 1))
    (plan,) = plans.plans
    month = plan.after[max(plan.after)]
    click.echo(
        f"Errors to expect of a mean, in {policy.released_value.unit}: {plan.first.live:.1f} as an hour closes and"
        f" {plan.first.end:.1f} at the day's end in the first days, {month.live:.1f} and {month.end:.1f} after a month"
    )
    unworthy = [
        f"{error:.1f} {when}"
        for error, when in (
            (plan.first.live, "as an hour closes in the first days"),
            (plan.first.end, "at the day's end in the first days"),
            (month.live, "as an hour closes after a month"),
            (month.end, "at the day's end after a month"),
        )
        if not plans.is_worth_having(error)
    ]
    if unworthy:
        click.echo(
            f"Not worth having: {', '.join(unworthy)}; a constant, which costs nothing, has {plans.constant:.1f}."
            " `hatcast plan` shows other limits"
        )
    return tracker.keys_json(plan.keys)
