"""`hatcast plan --continual`: compare the kinds of running sums and means."""

from typing import Any

import click

from hatcast.agents.cli.progress import progress_bars
from hatcast.agents.cli.recordings import checked_format
from hatcast.lab.cli.plan_usage import Options
from hatcast.lab.days import open_days, policy_of_recordings
from hatcast.lab.plan.continual import inputs
from hatcast.lab.plan.continual.choose import ContinualPlan, choose
from hatcast.lab.plan.continual.kinds import Criterion
from hatcast.lab.plan.continual.report import report_of
from hatcast.lab.plan.counts import rows_of_file
from hatcast.stream.policy.policy import Policy


def run(given: Options) -> None:
    """Print the plan, and write its keys into the configuration."""
    from hatcast.lab.cli.plan import target_text

    text = target_text(given["target"])
    choice = given["feed_format"]
    policy = policy_of_recordings(given["config"], "" if choice is None else choice.name)
    wanted = inputs.Wanted(
        slots=given["slots"],
        horizon_days=given["horizon_days"],
        max_slots=given["max_slots"],
        min_separation=given["min_separation"],
        max_cells=given["max_cells"],
        epsilon=given["epsilon"],
        delta=given["delta"],
        upper_bound=given["upper_bound"],
        users=given["users_per_slot"],
    )
    found = inputs.inputs_of(wanted, policy, _recorded(given, policy), is_given=given["config"] is not None)
    criterion = Criterion(given["criterion"] or Criterion.MEAN_RMS)
    with progress_bars() as add_bar:
        bar = add_bar("planning", found.stream.days)
        plan = choose(found.stream, found.users, criterion, found.observed, bar)
    unit, title = policy.released_value.unit, _title(plan, found, policy.released_value.unit)
    if given["target"] is not None and text is not None:
        from hatcast.lab.plan.write import write_continual

        write_continual(given["target"], text, plan)
    report = report_of(plan, title, _settings(plan, found, unit), unit)
    report.write(as_json=given["as_json"], plot_file=given["plot_file"])


def _recorded(given: Options, policy: Policy) -> inputs.Recorded | None:
    """Return the counts of the files; None without any."""
    least = given["min_users"] or (inputs.MIN_USERS if given["config"] is None else policy.min_users)
    if given["counts"] is not None:
        rows = inputs.rows_of_counts(rows_of_file(given["counts"]), policy)
        return inputs.Recorded(given["counts"].name, rows, policy.hours[0], least)
    if not given["data"]:
        return None
    choice = given["feed_format"]
    assert choice is not None, "checked by check_usage"  # noqa: S101 - for mypy
    click.echo("reads raw data; what it prints follows from counts alone", err=True)
    paths = (*given["data"], *given["more"])
    with progress_bars() as add_bar, open_days(paths, checked_format(choice, policy, paths)) as recordings:
        return inputs.recorded(recordings, policy, least, add_bar("reading", None))


def _title(plan: ContinualPlan, found: inputs.Inputs, unit: str) -> str:
    stream = plan.stream
    users = found.source if found.users_per_slot is None else f"{found.users_per_slot:g} users a slot"
    delta = f", delta {stream.delta:g}" if stream.delta else ""
    limits = stream.participation
    cells = f"{limits.max_cells} cell{'s' * (limits.max_cells != 1)}"
    return (
        f"{stream.slots} slots, {users}; a user in at most {limits.max_slots} of a cell, {limits.min_separation} apart,"
        f" and in {cells}; epsilon {stream.epsilon:g}{delta}; range of the value {stream.bound:g} {unit}"
    )


def _settings(plan: ContinualPlan, found: inputs.Inputs, unit: str) -> dict[str, Any]:
    stream = plan.stream
    return {
        "source": found.source,
        "users_per_slot": found.users_per_slot,
        "slots": stream.slots,
        "slots_of_a_day": stream.day_slots,
        "max_slots": stream.participation.max_slots,
        "min_separation": stream.participation.min_separation,
        "max_cells": stream.participation.max_cells,
        "epsilon": stream.epsilon,
        "delta": stream.delta,
        "upper_bound": stream.bound,
        "unit": unit,
    }
