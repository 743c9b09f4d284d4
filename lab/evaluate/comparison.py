"""Mean absolute error of each contender at each epsilon, over many runs."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from rich.table import Column, Table

from hatcast.agents.cli.report import Report, nested, open_axes, rounded
from hatcast.agents.tables.terminal import table
from hatcast.lab.evaluate.contenders import Contender, RunBatch, hides_presence, raw
from hatcast.lab.evaluate.inputs import SampledHat
from hatcast.lab.evaluate.simulation import Draws, Floats

MARKERS: Final = "osD^v<>pPX*"
_ELEMENTS: Final = 1_000_000  # users x coordinates x runs of a batch: about 8 MB per array


@dataclass(frozen=True, slots=True)
class MeanError:
    """Mean absolute error of `raw` against the mean of all readings, and its standard error; in l1 for vectors."""

    mae: float
    standard_error: float
    # share of runs whose HAT was suppressed by noise; the error is over the others, NaN if there are none
    suppressed: float = 0.0

    @classmethod
    def of(cls, deviations: Floats) -> Self:
        """Summarize the deviations [runs], NaN where suppressed."""
        released = deviations[~np.isnan(deviations)]
        number = len(released)
        mae = float(released.mean()) if number else math.nan
        spread = float(released.std(ddof=1)) if number > 1 else 0.0
        return cls(mae, spread / max(number, 1) ** 0.5, 1 - number / len(deviations))


Errors = dict[str, dict[float, MeanError]]  # by contender and epsilon


def compare(
    hat: SampledHat,
    contenders: Sequence[Contender],
    epsilons: Sequence[float],
    runs: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Errors:
    """Compare all contenders over the same runs. Calls `progress` with the number of runs done since the last call."""
    draws = Draws(seed)
    resolved = [
        each.resolve(hat.counts, hat.upper_bound_milli, epsilon, hat.dimensions)
        for each in contenders
        for epsilon in epsilons
    ]
    deviations: list[list[Floats]] = [[] for _ in resolved]
    size = max(1, min(runs, _ELEMENTS // (len(hat.counts) * hat.dimensions)))
    for start in range(0, runs, size):
        number = min(size, runs - start)
        batch = RunBatch(hat.counts, hat.means(draws, number), hat.upper_bound_milli)
        for own_deviations, each in zip(deviations, resolved, strict=True):
            coordinates = np.abs(raw(batch, each, draws) - batch.target) / 1000
            own_deviations.append(coordinates.reshape(number, -1).sum(axis=1))
        progress(number)
    errors: Errors = {each.name: {} for each in contenders}
    for each, own_deviations in zip(resolved, deviations, strict=True):
        errors[each.contender.name][each.parameters.epsilon] = MeanError.of(np.concatenate(own_deviations))
    return errors


def report_of(errors: Errors, hat: SampledHat, title: str, settings: dict[str, Any]) -> Report:
    """Return a row for each estimator and epsilon, a table and a plot. An error is null if all runs were suppressed."""
    measure = f"mean {'absolute' if hat.dimensions == 1 else 'l1'} error"
    rows = [
        {
            "estimator": name,
            "epsilon": epsilon,
            "mae": rounded(error.mae),
            "suppressed": rounded(error.suppressed) if hides_presence(name) else None,
        }
        for name, row in errors.items()
        for epsilon, error in row.items()
    ]
    suppressed = nested((row for row in rows if row["suppressed"] is not None), "estimator", "epsilon", of="suppressed")
    return Report(
        shown=[_table(errors, title, measure, hat.unit), *_at_bound(hat)],
        figures={
            "mae": nested(rows, "estimator", "epsilon", of="mae"),
            **({"suppressed": suppressed} if suppressed else {}),
        },
        settings=settings,
        rows=rows,
        plot=lambda path: _plot(errors, title, f"{measure}, {hat.unit}", path),
    )


def _at_bound(hat: SampledHat) -> Iterator[str]:
    """Yield the share of users' means at the bound of a recorded HAT, and what that does to `quantile`."""
    if hat.at_bound is not None:
        advice = "; quantile cannot tell these apart: use a larger upper_bound, or smoothed" if hat.at_bound else ""
        yield f"{hat.at_bound:.1%} of the users' means are at the upper bound{advice}"


def _table(errors: Errors, title: str, measure: str, unit: str) -> Table:
    """Return a table: a row per estimator, a column per epsilon; the least error under `replace` in bold."""
    epsilons = list(next(iter(errors.values())))
    worst = max(
        (each.standard_error / each.mae for row in errors.values() for each in row.values() if each.mae), default=0
    )
    replacing = [row for name, row in errors.items() if not hides_presence(name)]
    least = {epsilon: min((row[epsilon].mae for row in replacing), default=None) for epsilon in epsilons}

    def cell(epsilon: float, mae: float) -> str:
        text = "-" if math.isnan(mae) else f"{mae:.3f}"
        return f"[bold]{text}[/bold]" if mae == least[epsilon] else text

    return table(
        title,
        " ".join([f"{measure} in {unit}; standard errors are up to {worst:.1%} of it.", *_notes(errors)]),
        ["estimator", *(Column(f"eps {each:g}", justify="right", no_wrap=True, min_width=7) for each in epsilons)],
        (
            (
                f"{name} (add_remove)" if hides_presence(name) else name,
                *(cell(epsilon, each.mae) for epsilon, each in row.items()),
            )
            for name, row in errors.items()
        ),
    )


def _notes(errors: Errors) -> Iterator[str]:
    """Yield the notes that a reader needs to compare rows with different guarantees."""
    hiding = {name: row for name, row in errors.items() if hides_presence(name)}
    if not hiding:
        return
    epsilons = list(next(iter(hiding.values())))
    pairs = [f"{epsilon:g} with {2 * epsilon:g}" for epsilon in epsilons if 2 * epsilon in epsilons]
    yield (
        "(add_remove) also hides that a bus was there. To replace one is to remove it and to add another, so compare "
        f"its eps with twice that of the others{': ' if pairs else ''}{', '.join(pairs)}."
    )
    if any(name.split(":")[1:] == [] for name in hiding):
        yield "Its array length is the median count here; in a policy it is a number."
    for name, row in hiding.items():
        runs = [
            f"{error.suppressed:.0%} of runs at eps {epsilon:g}" for epsilon, error in row.items() if error.suppressed
        ]
        if runs:
            yield f"Noise suppressed {name} in {', '.join(runs)}: these are not in its errors."


def _plot(errors: Errors, title: str, measure: str, path: Path) -> None:
    """Plot a line per estimator. Points with the same x hide a replaced bus equally well."""
    from matplotlib.ticker import FuncFormatter

    ticks = set[float]()
    with open_axes(path, title) as axes:
        for (name, row), marker in zip(errors.items(), cycle(MARKERS), strict=False):
            epsilons = sorted(row)
            xs, label, style = epsilons, name, "-"
            if hides_presence(name):
                xs, label, style = [2 * each for each in epsilons], f"{name} (add_remove), at 2 eps", "--"
            ticks |= {*xs}
            axes.plot(
                xs, [row[each].mae for each in epsilons], style, marker=marker, markersize=4, linewidth=1, label=label
            )
        axes.set(xlabel="epsilon", ylabel=measure, yscale="log")
        axes.set_xticks(sorted(ticks))
        for formats in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formats(FuncFormatter(lambda y, _: f"{y:g}"))
