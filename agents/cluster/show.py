"""Released centres as a table and as a figure, and the notice of their charge."""

from itertools import cycle
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from hatcast.agents.cluster.release import Released

_UNITS: Final = {"user_day": "each vehicle's day", "user": "each vehicle"}
_MARKERS: Final = "osD^v<>pPX*"
_WIDTH: Final = 79  # otherwise title and caption wrap at the width of a few columns


def cost_notice(released: Released) -> str:
    """Return one line on the run's charge."""
    unit = _UNITS.get(released.policy.unit, "each user")
    return (
        f"this run costs {unit} epsilon {released.options.setting.epsilon:g}. No ledger counts it: every further run, "
        "and every other release of the same readings, adds to it"
    )


def live_notice(record: dict[str, Any], unit: str) -> str:
    """Return one line on the charge of a live clustering."""
    trusted, query, users = _UNITS.get(unit, "each user"), record.get("ledger"), record["users"]
    counted = []
    if query is not None:
        counted.append(f"the ledger has charged it to {trusted} of {record['date']} as {query}")
    if users["local"]:
        counted.append("each device has counted its own")
    return f"this clustering costs a user epsilon {record['epsilon']:g}: {', and '.join(counted)}"


def table_of(record: dict[str, Any]) -> Table:
    """Return a table of `Released.record`: a row per slot, a column per cluster."""
    clusters, users = record["clusters"], record["users"]
    table = Table(
        title=f"{len(clusters)} clusters of {users['central'] + users['local']:,} users, {users['local']:,} of them "
        f"local; epsilon {record['epsilon']:g}, {record['iterations']} iterations, {record['blend']}",
        title_justify="left",
        caption=f"centres in {record['unit']}. noise: its standard deviation on a coordinate, the mean of all; where it"
        " is '-', the cluster had too few users, and its centre is still its random start.",
        min_width=_WIDTH,
    )
    table.add_column("slot", no_wrap=True)
    for number in range(1, len(clusters) + 1):
        table.add_column(f"{number}", justify="right", no_wrap=True)
    for index, slot in enumerate(record["slots"]):
        table.add_row(slot, *(f"{each['centre'][index]:.1f}" for each in clusters))
    table.add_section()
    table.add_row("users, about", *(f"{each['users']:,.0f}" for each in clusters))
    table.add_row(
        "noise", *(f"{_mean(each['noise_deviation']):.1f}" if each["last_moved"] else "-" for each in clusters)
    )
    table.add_row("central", *(f"{_mean(each['central_weight']):.0%}" for each in clusters))
    return table


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _mean_name(unit: str) -> str:
    return "mean speed" if unit == "km/h" else "mean"


def plot(record: dict[str, Any], path: Path) -> None:
    """Plot the centres over the slots, a line per cluster. Raises HatcastError if it cannot be written."""
    from hatcast.agents.tables.plots import open_axes

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
        axes.set(xlabel="slot", ylabel=f"{_mean_name(record['unit'])}, {record['unit']}, +- deviation of noise")
        axes.tick_params(axis="x", rotation=60 if len(record["slots"]) > 6 else 0)
