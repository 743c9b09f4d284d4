"""`hatcast plan`: choose the keys of a tracker from counts, or those of running sums and means."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from hatcast.agents.cli.options import PATH, FiniteRange, combined, epsilons_of, found_config, json_option, plot_option
from hatcast.agents.cli.recordings import checked_format, data_options
from hatcast.agents.progress import progress_bars
from hatcast.agents.timetable.speeds import timetable_of
from hatcast.lab.cli.timetable import named_timetable, timetable_option
from hatcast.lab.plan.continual import Criterion
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.continual_keys import SLOTS_MAX
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import Format, FormatChoice
from hatcast.stream.tracker.prior import Prior

_MIN_USERS: Final = 3
_TOTALS: Final = "1,2,5,10,20,40"


@click.group(epilog="Each has an example:  hatcast plan tracker --help")
def command() -> None:
    """Choose the keys of a tracker, or of running sums and means, and say which errors to expect.

    Counts are public under relation replace, so what is printed is as public as they are.
    """


_source_options: Final = combined(
    data_options("Recordings, as one stream. Only who was where and how often is used, no speed."),
    click.option(
        "--counts",
        type=PATH,
        help="A CSV file instead of --data, such as a timetable: date,hour,cell,vehicle,readings.",
    ),
    click.option(
        "--min-users",
        type=click.IntRange(1),
        help=f"HATs with fewer users do not count.  [default: that of the configuration, or {_MIN_USERS}]",
    ),
    click.option(
        "--write",
        "target",
        type=PATH,
        help="Write the keys of one plan into this hatcast.toml; its comments stay. Needs hatcast[research].",
    ),
)


def _target_text(path: Path | None) -> str | None:
    """Return the text of the file to write; None without one. Raises ModuleNotFoundError before anything is planned."""
    if path is None:
        return None
    from hatcast.lab.plan.write import read_target

    return read_target(path)


def _least(min_users: int | None, config: Path | None, policy: Policy) -> int:
    return min_users or (_MIN_USERS if config is None else policy.min_users)


@command.command(
    short_help="A tracker, for several totals of a bus and day.",
    epilog="Example:  hatcast plan tracker --data 2016-11-2*.csv.gz --format capmetro --write hatcast.toml",
)
@_source_options
@click.option(
    "--daily-limit", "limits", default=_TOTALS, metavar="EPS,...", help="Total epsilons of a bus and day to plan for."
)
@click.option(
    "--objective",
    type=click.Choice([each.value for each in Objective]),
    default=Objective.CELLS.value,
    help="What the end of a day makes accurate.",
)
@timetable_option
@click.option("--write-limit", "written", type=float, default=5.0, help="The total whose plan --write writes.")
@plot_option
@json_option
def tracker(  # noqa: PLR0913 - options by name
    *,
    data: tuple[Path, ...],
    feed_format: FormatChoice | None,
    counts: Path | None,
    config: Path | None,
    min_users: int | None,
    target: Path | None,
    limits: str,
    objective: str,
    timetable: Path | None,
    written: float,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Choose the keys of a tracker.

    For each total the queries of whole days are designed by the code of releases, without a speed and without noise:
    the variances of its model depend on counts only. The given days are repeated up to a month.
    """
    from hatcast.lab.days import policy_of_recordings
    from hatcast.lab.plan import tracker as plans_of
    from hatcast.lab.plan.counts import counts_of_recordings, counts_of_rows, rows_of_file

    if (counts is None) == (not data):
        raise click.UsageError("name one of --counts and --data")
    totals = sorted(epsilons_of("--daily-limit", limits, _TOTALS))
    if target is not None and written not in totals:
        raise click.UsageError(f"--write-limit {written:g} is not one of --daily-limit")
    text, config = _target_text(target), found_config(config)
    policy = policy_of_recordings(config, "" if feed_format is None else feed_format.name)
    scheduled = named_timetable(timetable, policy)
    upper_bound, unit, least = policy.upper_bound / 1000, policy.released_value.unit, _least(min_users, config, policy)
    with progress_bars() as add_bar:
        if feed_format is None:
            assert counts is not None, "checked above"  # noqa: S101 - for mypy
            found, source = counts_of_rows(rows_of_file(counts), least), counts.name
        else:
            click.echo("reads raw data; what it prints follows from counts alone", err=True)
            feed = checked_format(feed_format, policy, data)
            found = counts_of_recordings(data, feed, policy, least, add_bar("reading", None))
            source = ", ".join(path.name for path in data)
        if not found.days:
            raise HatcastError(f"{source} has no HAT with {least} users; name more days, or a smaller --min-users")
        found, prior = found.first_days(), Prior.of_policy(policy)
        if prior.variances.is_guess and not prior.variances.is_usual:
            click.echo(
                f"nothing is known of {policy.value_name} but its range, so its errors will be smaller than these; if"
                " you know where about 95 of 100 values are, write policy.value.usual",
                err=True,
            )
        plans = plans_of.plan(
            found,
            prior,
            totals,
            Objective(objective),
            add_bar("planning: days of candidates", len(totals) * plans_of.STEPS),
            scheduled,
        )
    if target is not None and text is not None:
        from hatcast.lab.plan.write import write_tracker

        write_tracker(target, text, next(each for each in plans.plans if each.total == written), timetable)
    settings: dict[str, Any] = {
        "source": source,
        "days": len(found.days),
        "hats": found.hats,
        "cells": found.cells,
        "upper_bound": upper_bound,
        **({} if policy.value_name is None else {"unit": unit}),
        "objective": objective,
        **({} if scheduled is None else {"scheduled_cells": len(scheduled.speeds)}),
    }
    title = f"{source}: {len(found.days)} day{'' if len(found.days) == 1 else 's'}, {found.hats:,} HATs"
    plans_of.report_of(plans, title, settings, unit).write(as_json=as_json, plot_file=plot_file)


@command.command(
    short_help="Running sums and means over a horizon.",
    epilog="Example:  hatcast plan sums --slots 168 --max-slots 24 --users-per-slot 10",
)
@_source_options
@click.option("--slots", type=click.IntRange(1, SLOTS_MAX), help="Slots of the horizon.")
@click.option(
    "--horizon-days",
    type=click.IntRange(1, 3660),
    help="Local days of the horizon.  [default: that of the configuration, the days of the data, or slots / 24]",
)
@click.option(
    "--max-slots",
    type=click.IntRange(1),
    help="Most slots that a user enters in one cell.  [default: that of the configuration, or as many as 95 % of users"
    " and cells have in the data]",
)
@click.option(
    "--min-separation",
    type=click.IntRange(1),
    help="Slots between two of them, at least.  [default: that of the configuration, or 1]",
)
@click.option(
    "--max-cells",
    type=click.IntRange(1),
    help="Most cells that a user enters.  [default: that of the configuration, as many as 95 % of users have in the"
    " data, or 1]",
)
@click.option(
    "--epsilon", type=FiniteRange(1e-3, 1e3), help="Of a cell and horizon.  [default: that of the configuration, or 1]"
)
@click.option(
    "--delta",
    type=FiniteRange(0, 1e-3),
    help="Of all cells of a user; 0: only kinds with pure epsilon.  [default: that of the configuration, or 1e-6]",
)
@click.option(
    "--upper-bound",
    type=FiniteRange(1e-3, 1e9),
    help="Width of the value's range.  [default: that of the configuration, or 65 km/h]",
)
@click.option(
    "--users-per-slot",
    "users",
    type=FiniteRange(1e-3, 1e9),
    help="Without data: users of a cell in each slot.  [default: 10]",
)
@click.option(
    "--by",
    "criterion",
    type=click.Choice([each.value for each in Criterion]),
    default=Criterion.MEAN_RMS.value,
    help="Error that the best kind has least.",
)
@plot_option
@json_option
def sums(  # noqa: PLR0913 - options by name
    *,
    data: tuple[Path, ...],
    feed_format: FormatChoice | None,
    counts: Path | None,
    config: Path | None,
    min_users: int | None,
    target: Path | None,
    criterion: str,
    plot_file: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Choose the kind of running sums and means over a horizon: compare the kinds of [policy.continual].

    Errors are by the noise of the mechanisms themselves. The best kind is compared with running means that cost nothing
    more.
    """
    from hatcast.lab.days import open_days, policy_of_recordings
    from hatcast.lab.plan.continual import inputs
    from hatcast.lab.plan.continual.choose import choose
    from hatcast.lab.plan.continual.report import report_of
    from hatcast.lab.plan.counts import rows_of_file

    sources = {"--data": data, "--counts": counts, "--users-per-slot": given["users"]}
    named = [option for option, value in sources.items() if value]
    if len(named) > 1:
        raise click.UsageError(f"name one of {' and '.join(named)}")
    if min_users is not None and not (data or counts):
        raise click.UsageError("--min-users needs --data or --counts")
    text, config = _target_text(target), found_config(config)
    policy = policy_of_recordings(config, "" if feed_format is None else feed_format.name)
    least, recorded = _least(min_users, config, policy), None
    if counts is not None:
        rows = inputs.rows_of_counts(rows_of_file(counts), policy)
        recorded = inputs.RecordedCounts(counts.name, rows, policy.hours[0], least)
    elif feed_format is not None:
        click.echo("reads raw data; what it prints follows from counts alone", err=True)
        feed = checked_format(feed_format, policy, data)
        with progress_bars() as add_bar, open_days(data, feed) as recordings:
            recorded = inputs.recorded(recordings, policy, least, add_bar("reading", None))
    found = inputs.inputs_of(inputs.RequestedPlan(**given), policy, recorded, is_given=config is not None)
    with progress_bars() as add_bar:
        bar = add_bar("planning", found.stream.days)
        plan = choose(found.stream, found.users, Criterion(criterion), found.observed, bar)
    if target is not None and text is not None:
        from hatcast.lab.plan.write import write_continual

        write_continual(target, text, plan)
    report_of(plan, found, policy.released_value.unit).write(as_json=as_json, plot_file=plot_file)


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
        prior, objective = Prior.of_policy(policy), Objective.CELLS
        plans = tracker.plan(
            counts.first_days(),
            prior,
            [limit],
            objective,
            add_bar("planning: days of candidates", tracker.STEPS),
            timetable_of(policy),
        )
    (plan,) = plans.plans
    month = plan.after[max(plan.after)]
    click.echo(
        f"Errors to expect of a mean, in {policy.released_value.unit}: {plan.first.live:.1f} as an hour closes and"
        f" {plan.first.end:.1f} at the day's end in the first days, {month.live:.1f} and {month.end:.1f} after a month"
    )
    click.echo(
        f"95 % intervals to expect, from end to end: about {tracker.INTERVAL_WIDTH * plan.first.end:.0f} wide at the"
        f" day's end in the first days, {tracker.INTERVAL_WIDTH * month.end:.0f} after a month"
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
            " `hatcast plan tracker` shows other limits"
        )
    return tracker.keys_json(plan.keys)
