"""`hatcast cluster --live`, and the result of any clustering as a table, JSON and a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Column, Table

from hatcast.agents.cli.recordings import checked_format
from hatcast.agents.cli.report import Report, open_axes, table
from hatcast.agents.config.settings import load_settings
from hatcast.stream.readings.formats import FormatChoice

UNITS: Final = {"user_day": "each vehicle's day", "user": "each vehicle"}
_MARKERS: Final = "osD^v<>pPX*"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArguments:
    """Parsed options, checked against each other."""

    config: Path
    date: str
    slots: str | None
    epsilon: float
    clusters: int
    iterations: int
    seed: int
    blend: str
    state: Path
    round_s: float
    files: Sequence[Path]
    feed_format: FormatChoice | None
    ledger: Path | None
    plot_file: Path | None
    as_json: bool


def run(given: LiveArguments) -> None:
    """Run a live clustering and print its result."""
    from hatcast.agents.cluster.live.charge import RecordedUsers
    from hatcast.agents.cluster.live.plan import Chosen
    from hatcast.agents.cluster.live.run import LiveOptions, run_live
    from hatcast.agents.cluster.vectors import select_slots

    settings = load_settings(given.config)
    policy = settings.policy
    slots = select_slots(policy, None if given.slots is None else given.slots.split(","))
    chosen = Chosen(
        policy_id=policy.policy_id,
        date=given.date,
        slots=tuple(slots),
        clusters=given.clusters,
        iterations=given.iterations,
        epsilon=given.epsilon,
        seed=given.seed,
        blend=given.blend,
    )
    users = None
    if given.feed_format is not None and given.ledger is not None:
        feed = checked_format(given.feed_format, policy, given.files)
        users = RecordedUsers(given.files, feed, given.feed_format, given.ledger)
    options = LiveOptions(
        state=given.state,
        round_s=given.round_s,
        users=users,
    )
    console = Console(stderr=True)
    with console.status("") as status:

        def note(text: str) -> None:
            if console.is_terminal:
                status.update(text)

        record = run_live(settings, chosen, options, note)
    click.echo(_notice(record, policy.unit), err=True)
    report_of(record).write(as_json=given.as_json, plot_file=given.plot_file)


def _notice(record: dict[str, Any], unit: str) -> str:
    """Return one line on the charge of a live clustering."""
    trusted, query, users = UNITS.get(unit, "each user"), record.get("ledger"), record["users"]
    counted = []
    if query is not None:
        counted.append(f"the ledger has charged it to {trusted} of {record['date']} as {query}")
    if users["local"]:
        counted.append("each device has counted its own")
    return f"this clustering costs a user epsilon {record['epsilon']:g}: {', and '.join(counted)}"


def report_of(record: dict[str, Any]) -> Report:
    """Return a released clustering, as `Released.record` has it."""
    return Report(shown=[_table(record)], figures=record, plot=lambda path: _plot(record, path))


def _table(record: dict[str, Any]) -> Table:
    """Return a table: a row per slot, a column per cluster."""
    clusters, users = record["clusters"], record["users"]
    return table(
        f"{len(clusters)} clusters of {users['central'] + users['local']:,} users, {users['local']:,} of them "
        f"local; epsilon {record['epsilon']:g}, {record['iterations']} iterations, {record['blend']}",
        f"centres in {record['unit']}. noise: its standard deviation on a coordinate, the mean of all; where it"
        " is '-', the cluster had too few users, and its centre is still its random start.",
        [Column("slot", no_wrap=True), *(f"{number}" for number in range(1, len(clusters) + 1))],
        [
            *((slot, *(f"{each['centre'][at]:.1f}" for each in clusters)) for at, slot in enumerate(record["slots"])),
            None,
            ("users, about", *(f"{each['users']:,.0f}" for each in clusters)),
            ("noise", *(f"{_mean(each['noise_deviation']):.1f}" if each["last_moved"] else "-" for each in clusters)),
            ("central", *(f"{_mean(each['central_weight']):.0%}" for each in clusters)),
        ],
        min_width=79,  # otherwise title and caption wrap at the width of a few columns
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _plot(record: dict[str, Any], path: Path) -> None:
    """Plot the centres over the slots, a line per cluster."""
    measure = "mean speed" if record["unit"] == "km/h" else "mean"
    with open_axes(path, f"Centres at epsilon {record['epsilon']:g}") as axes:
        for number, (each, marker) in enumerate(zip(record["clusters"], cycle(_MARKERS), strict=False), 1):
            label = f"{number}: about {each['users']:,.0f} users"
            axes.errorbar(
                record["slots"],
                each["centre"],
                yerr=each["noise_deviation"],
                marker=marker,
                markersize=4,
                linewidth=1,
                label=label,
            )
        axes.set(xlabel="slot", ylabel=f"{measure}, {record['unit']}, +- deviation of noise")
        axes.tick_params(axis="x", rotation=60 if len(record["slots"]) > 6 else 0)
