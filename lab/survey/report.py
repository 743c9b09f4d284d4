"""A survey as a table, JSON, rows, a plot and a map; a private selection of cells.    [T III.C]

The map loads nothing from elsewhere, no tiles, fonts or scripts: no server learns which place is looked at.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h3.api.basic_int as h3
import numpy as np
from rich.table import Column, Table

from hatcast.agents.cli.report import Report, open_figure
from hatcast.agents.tables.terminal import table
from hatcast.lab.survey.figures import Histogram, Resolution, SlotFigures, dropped_share, summarize
from hatcast.lab.survey.rows import name_of
from hatcast.lab.survey.run import CellSelection, Days, Survey
from hatcast.stream.policy.policy import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CAPS_MAX: Final = 512  # points of a curve
_DIGITS: Final = 4
_WIDTH: Final = 7.0  # inches
_HEIGHTS: Final = (3.5, 11.0)
_KM_PER_DEGREE: Final = 111.19  # of latitude
_MARGIN: Final = 0.04
_BUSY, _OTHER, _EDGE = "#4caf50", "#dddddd", "#666666"
Ring = list[tuple[float, float]]  # (longitude, latitude) of each corner, in degrees


def report_of(survey: Survey, policy: Policy, users: Fraction, *, places: bool) -> Report:
    """Return the survey, with the complete distributions; `private` is false.

    places   a row for each cell with a reading, of the policy's resolution; else for each resolution
    """
    settings = {**_settings(policy, users, survey.days), "number_of_days": survey.number_of_days}
    resolutions = {str(each.resolution): _resolution_json(each, policy) for each in survey.resolutions}
    resolution, busy = policy.h3_resolution, {*survey.busy}
    return Report(
        shown=[_table(survey, policy, users), *_by_slot(survey, policy)],
        figures={
            "private": False,
            "settings": settings,
            "outcomes": survey.outcomes,
            "resolutions": resolutions,
            "busy_cells": [f"{cell:x}" for cell in survey.busy],
        },
        rows=[
            {"cell": f"{cell:x}", "resolution": resolution, "busy": cell in busy, "private": False}
            for cell in survey.cells
        ]
        if places
        else [
            {"resolution": int(name), **_flat(figures), "private": False, "settings": settings}
            for name, figures in resolutions.items()
        ],
        plot=lambda path: _plot(survey, policy, path),
    )


def _flat(figures: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict) and "histogram" in value:
            row |= {f"{name}_{part}": each for part, each in value.items()}
        else:
            row[name] = value
    return row


def selection_report(chosen: CellSelection, policy: Policy, users: Fraction, days: Days, epsilon: float) -> Report:
    """Return a private selection, all of which may be published."""
    number, cells = (days[1] - days[0]).days + 1, [f"{cell:x}" for cell in chosen.selected]
    return Report(
        shown=[],
        figures={
            "private": True,
            "relation": "one user-day added or removed",
            "settings": {**_settings(policy, users, days), "number_of_days": number},
            "candidates": chosen.candidates,
            "epsilon": epsilon,
            "epsilon_of_each_day": epsilon,
            "epsilon_of_a_user_on_all_days": epsilon * number,
            "noise": {"kind": "laplace", "scale": chosen.scale, "unit": "mean daily users"},
            "cells": cells,
        },
        rows=[
            {
                "cell": cell,
                "resolution": policy.h3_resolution,
                "private": True,
                "epsilon_of_each_day": epsilon,
                "noise_scale": chosen.scale,
            }
            for cell in cells
        ],
    )


def _table(survey: Survey, policy: Policy, users: Fraction) -> Table:
    columns = [_column(each, policy.max_hats_per_day) for each in survey.resolutions]
    return table(
        "Recordings as HATs, by H3 resolution. Not private",
        _caption(survey, policy, users),
        [
            Column("resolution", no_wrap=True),
            *(Column(str(each.resolution), justify="right") for each in survey.resolutions),
        ],
        ((row, *(column[row] for column in columns)) for row in columns[0]),
    )


def _by_slot(survey: Survey, policy: Policy) -> Iterator[Table]:
    """Yield the table of slots of the policy's resolution: which hours have enough users.    [T III.B]"""
    for each in survey.resolutions:
        if each.resolution == policy.h3_resolution:
            yield table(
                f"By slot, resolution {each.resolution}",
                "",
                ["slot", "HATs", "users", "readings", "users of a HAT"],
                (
                    (name_of(slot), f"{of.hats:,}", f"{of.users:,}", f"{of.readings:,}", f"{_mean(of):.1f}")
                    for slot, of in each.by_slot.items()
                ),
            )


def _mean(figures: SlotFigures) -> float:
    return round(figures.users / figures.hats, _DIGITS)


def _column(each: Resolution, cap: int) -> dict[str, str]:
    own, hats = summarize(each.readings), summarize(each.hats_per_user_day)

    def with_drop(value: int) -> str:
        return f"{value} ({dropped_share(each.hats_per_user_day, value):.1%})"

    return {
        "edge, km": f"{each.edge_km:.3g}",
        "area, km2": f"{each.area_km2:.3g}",
        "cells": f"{each.cells:,}",
        "busy cells": f"{each.busy_cells:,}",
        "busy, of all": f"{each.busy_share:.1%}",
        "cells x slots": f"{each.cell_slots:,}",
        "HATs": f"{each.hats:,}",
        **_rows_of("users", each.users),
        **_rows_of("readings", each.hat_readings),
        "own, median": f"{own.median}",
        "own, 95 %": f"{own.p95}",
        "day, median": with_drop(hats.median),
        "day, 95 %": with_drop(hats.p95),
        "day, most": with_drop(hats.maximum),
        f"at K = {cap}": f"({dropped_share(each.hats_per_user_day, cap):.1%})",
        "at the bound": f"{each.bound_share:.1%}",
    }


def _rows_of(name: str, histogram: Histogram) -> dict[str, str]:
    """Return the rows of a distribution, those of the report and the 95 % quantile."""
    summary = summarize(histogram)
    return {
        f"{name}, mean": f"{summary.mean:.1f}",
        f"{name}, std": f"{summary.deviation:.1f}",
        f"{name}, 25 %": f"{summary.p25:,}",
        f"{name}, median": f"{summary.median:,}",
        f"{name}, 75 %": f"{summary.p75:,}",
        f"{name}, 95 %": f"{summary.p95:,}",
        f"{name}, most": f"{summary.maximum:,}",
    }


def _caption(survey: Survey, policy: Policy, users: Fraction) -> str:
    return (
        "HATs (cell, slot and date) with a reading; cells x slots: with a reading on any date. users and readings: of "
        "a HAT, std their standard deviation; own: readings of a user in a HAT; day: HATs of a user's day, in "
        "brackets the share of all (user, HAT) that K = max_hats_per_day of that number would drop; at the bound: "
        "users' means in a HAT that are upper_bound. Busy cells have "
        f"{busy_criterion(policy, users, survey.days)} of {policy.timezone}; "
        f"means are over {_number_of_days(survey.number_of_days)}."
    )


def _resolution_json(each: Resolution, policy: Policy) -> dict[str, Any]:
    hats = summarize(each.hats_per_user_day)
    caps = sorted({hats.median, hats.p95, hats.maximum, policy.max_hats_per_day})
    return {
        "cells": each.cells,
        "cell_slots": each.cell_slots,
        "hats": each.hats,
        "edge_km": each.edge_km,
        "area_km2": each.area_km2,
        "busy_cells": each.busy_cells,
        "busy_share": round(each.busy_share, _DIGITS),
        "users_of_a_hat": _spread_json(each.users),
        "readings_of_a_hat": _spread_json(each.hat_readings),
        "readings_of_a_user_and_hat": _spread_json(each.readings),
        "hats_of_a_user_day": _spread_json(each.hats_per_user_day),
        "by_slot": {
            name_of(slot): {"hats": of.hats, "users": of.users, "readings": of.readings, "users_of_a_hat": _mean(of)}
            for slot, of in each.by_slot.items()
        },
        "means_at_bound": round(each.bound_share, 6),
        "dropped_by_cap": {str(cap): round(dropped_share(each.hats_per_user_day, cap), 6) for cap in caps},
    }


def _spread_json(histogram: Histogram) -> dict[str, Any]:
    spread = summarize(histogram)
    return {
        "mean": round(spread.mean, _DIGITS),
        "deviation": round(spread.deviation, _DIGITS),
        "min": spread.minimum,
        "p25": spread.p25,
        "median": spread.median,
        "p75": spread.p75,
        "p95": spread.p95,
        "max": spread.maximum,
        "histogram": {str(value): histogram[value] for value in sorted(histogram)},
    }


def _settings(policy: Policy, users: Fraction, days: Days) -> dict[str, Any]:
    return {
        "days": [each.isoformat() for each in days],
        "timezone": policy.timezone,
        "hours": list(policy.hours),
        "slot_length_ms": policy.slot_length_ms,
        "h3_resolution": policy.h3_resolution,
        "max_hats_per_day": policy.max_hats_per_day,
        "users": float(users),
    }


def charge_notice(days: Days, epsilon: float) -> str:
    """Return one line: the charge of a private selection, and which ledger records it."""
    number = (days[1] - days[0]).days + 1
    return (
        f"epsilon {epsilon:g} is charged to each local day from {days[0]} to {days[1]} ({_number_of_days(number)}), "
        f"{epsilon * number:g} to a user of all of them: the ledger of a policy that lists these cells records it, "
        "others do not"
    )


def _number_of_days(days: int) -> str:
    return f"{days} day" if days == 1 else f"{days} days"


def busy_criterion(policy: Policy, users: Fraction, days: Days) -> str:
    """Return the criterion of busy cells in words."""
    first, end = policy.hours
    return (
        f"a mean of more than {float(users):g} users a day, {days[0]} to {days[1]}, in every slot from {first:02}:00 "
        f"to {end:02}:00"
    )


def _plot(survey: Survey, policy: Policy, path: Path) -> None:
    """Plot users per HAT and the drop by caps, a line per resolution."""
    with open_figure(path, f"Not private: {survey.days[0]} to {survey.days[1]}", (9, 3.8)) as figure:
        users, caps = figure.subplots(1, 2)
        for each in survey.resolutions:
            label = f"resolution {each.resolution}"
            users.plot(*_above(each.users), drawstyle="steps-pre", linewidth=1, label=label)
            most = max(each.hats_per_user_day)
            values = [*range(0, most, max(1, most // _CAPS_MAX)), most]
            caps.plot(values, [dropped_share(each.hats_per_user_day, cap) for cap in values], linewidth=1, label=label)
        users.set(xlabel="users of a HAT", ylabel="share of HATs with at least as many", xscale="log", ylim=(0, 1.02))
        caps.axvline(policy.max_hats_per_day, linestyle=":", linewidth=1, color="black")
        caps.set(xlabel="max_hats_per_day (dotted: the policy's)", ylabel="share of (user, HAT) that it drops")
        for axes in (users, caps):
            axes.grid(visible=True, linewidth=0.3)
        caps.legend(frameon=False)


def _above(histogram: Histogram) -> tuple[list[int], list[float]]:
    values, total = sorted(histogram), sum(histogram.values())
    below = accumulate((histogram[value] for value in values[:-1]), initial=0)
    return values, [(total - each) / total for each in below]


def draw_map(survey: Survey, policy: Policy, users: Fraction, path: Path) -> None:
    """Draw the cells of the policy's resolution, the busy ones filled. Raises HatcastError if it cannot be written."""
    from matplotlib.collections import PolyCollection

    busy = set(survey.busy)
    rings = dict(zip(survey.cells, rings_of(survey.cells), strict=True))
    corners = np.array([corner for ring in rings.values() for corner in ring])
    west, south, east, north = (float(each) for each in (*corners.min(axis=0), *corners.max(axis=0)))
    stretch = 1 / max(math.cos(math.radians((south + north) / 2)), 0.01)  # of a degree of latitude against longitude
    height = min(max(_WIDTH * (north - south) * stretch / (east - west), _HEIGHTS[0]), _HEIGHTS[1])
    title = f"Not private. Cells of resolution {policy.h3_resolution} with a reading; busy ones have\n"
    with open_figure(path, title + busy_criterion(policy, users, survey.days), (_WIDTH, height), "--map") as figure:
        panel = figure.add_subplot()
        for name, fill, cells in (("busy", _BUSY, busy), ("other", _OTHER, rings.keys() - busy)):
            shown = [rings[cell] for cell in sorted(cells)]
            label = f"{len(shown):,} {name} {'cell' if len(shown) == 1 else 'cells'}"
            panel.add_collection(PolyCollection(shown, facecolors=fill, edgecolors=_EDGE, linewidths=0.4, label=label))
        across, up = _MARGIN * (east - west), _MARGIN * (north - south)
        panel.set(xlim=(west - across, east + across), ylim=(south - 3 * up, north + up))
        panel.set(xlabel="longitude", ylabel="latitude", aspect=stretch)
        _draw_scale(panel, (west, south - 2 * up), (east - west) / stretch * _KM_PER_DEGREE / 4, stretch)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def rings_of(cells: Sequence[int]) -> list[Ring]:
    """Return the corners of each cell, with longitudes less than 180 degrees from the first corner of the first cell.

    So they may be beyond 180, and cells on both sides of that meridian are drawn side by side.
    """
    if not cells:
        return []
    first = h3.cell_to_boundary(cells[0])[0][1]
    return [
        [((longitude - first + 180) % 360 - 180 + first, latitude) for latitude, longitude in h3.cell_to_boundary(cell)]
        for cell in cells
    ]


def _draw_scale(panel: "Axes", start: tuple[float, float], most_km: float, stretch: float) -> None:
    """Draw a bar of 1, 2 or 5 times a power of ten km, as long as `most_km` allows. start: (longitude, latitude)."""
    power = 10.0 ** math.floor(math.log10(most_km))
    km = max(each * power for each in (1, 2, 5) if each * power <= most_km)
    end = start[0] + km / _KM_PER_DEGREE * stretch
    panel.plot((start[0], end), (start[1], start[1]), color="black", linewidth=2, solid_capstyle="butt")
    panel.annotate(f"{km:g} km", (end, start[1]), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
