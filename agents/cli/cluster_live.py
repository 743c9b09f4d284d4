"""`hatcast cluster live`; options of every clustering, and its result as a table, JSON and a plot."""

from datetime import date as local_date
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Column, Table

from hatcast.agents.cli.options import (
    FILE,
    PATH,
    FiniteRange,
    combined,
    config_option,
    json_option,
    parsed,
    plot_option,
)
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.cli.report import Report, open_axes
from hatcast.agents.config.settings import load_settings
from hatcast.agents.tables.terminal import table
from hatcast.stream.readings.formats import FormatChoice

UNITS: Final = {"user_day": "each vehicle's day", "user": "each vehicle"}
_MARKERS: Final = "osD^v<>pPX*"
clustering_options: Final = combined(
    click.option("--epsilon", type=FiniteRange(0.01, 10), required=True, help="Total epsilon of a user."),
    click.option("--clusters", type=click.IntRange(1, 100), default=4),
    click.option("--iterations", type=click.IntRange(1, 100), default=5, help="Epsilon is split among them."),
    click.option(
        "--slots", metavar="HH:MM,..", help="Slots: the coordinates.  [default: all slots of the policy's hours]"
    ),
    click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, help="Seed of the start centres."),
)
blend_option: Final = click.option(
    "--blend", type=click.Choice(["pwh", "tcm_only", "lm_only"]), default="pwh", help="Both groups (pwh), or only one."
)


@click.command(
    short_help="In rounds, with devices that answer over Kafka.",
    epilog="Example:  hatcast cluster live --date 2022-01-02 --epsilon 4 --state day.db",
)
@click.argument("files", nargs=-1, type=PATH, metavar="[FILE]...")
@format_options(files="files", of="files")
@config_option
@click.option(
    "--date",
    metavar="DATE",
    required=True,
    callback=parsed(lambda text: local_date.fromisoformat(text).isoformat(), "write YYYY-MM-DD"),
    help="The local date.",
)
@clustering_options
@blend_option
@click.option("--round-seconds", type=FiniteRange(1, 86_400), default=60, help="How long devices have for an answer.")
@click.option("--ledger", type=FILE, help="With FILEs: the ledger file of `hatcast batch` that charges their users.")
@click.option(
    "--state",
    required=True,
    type=FILE,
    help="State file of this clustering. The same file and options go on with it, or print its result.",
)
@plot_option
@json_option
def live(  # noqa: PLR0913 - options by name
    *,
    files: tuple[Path, ...],
    feed_format: FormatChoice | None,
    config: Path,
    date: str,
    epsilon: float,
    clusters: int,
    iterations: int,
    slots: str | None,
    seed: int,
    blend: str,
    round_seconds: float,
    ledger: Path | None,
    state: Path,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Compute private K-means of one date, with devices that add their own noise (`hatcast device`) and trusted users.

    These are the users of the telemetry topic, whom the ledger of the workers charges, or those of FILEs, whom --ledger
    charges. Without room in the ledger it is refused. Begin it before the day is over: a sealed day cannot be charged.
    The result is printed and sent to hats.clusters.
    """
    from hatcast.agents.cluster.live.charge import RecordedUsers
    from hatcast.agents.cluster.live.run import LiveClusteringOptions, run_live
    from hatcast.agents.cluster.live.state import Chosen
    from hatcast.agents.cluster.release import select_slots

    if bool(files) != (ledger is not None) or (feed_format is not None and not files):
        raise click.UsageError("trusted users are those of telemetry, or of FILEs with --ledger")
    if files and blend == "lm_only":
        raise click.UsageError("--blend lm_only has no trusted users: remove the files")
    settings = load_settings(config)
    policy = settings.policy
    chosen = Chosen(
        policy_id=policy.policy_id,
        date=date,
        slots=tuple(select_slots(policy, None if slots is None else slots.split(","))),
        clusters=clusters,
        iterations=iterations,
        epsilon=epsilon,
        seed=seed,
        blend=blend,
    )
    users = None
    if feed_format is not None and ledger is not None:
        users = RecordedUsers(files, checked_format(feed_format, policy, files), feed_format, ledger)
    console = Console(stderr=True)
    with console.status("") as status:

        def note(text: str) -> None:
            if console.is_terminal:
                status.update(text)

        options = LiveClusteringOptions(state=state, round_s=round_seconds, users=users)
        record = run_live(settings, chosen, options, note)
    click.echo(_notice(record, policy.unit), err=True)
    report_of(record).write(as_json=as_json, plot_file=plot_file)


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
    """Return the report of a clustering from its record."""
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
