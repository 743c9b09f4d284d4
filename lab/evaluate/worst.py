"""Worst-case errors of contenders, and array lengths by epsilon.    [V, E_M], [M V, Fig. 5]

Nothing is simulated: counts and epsilon decide. Raw counts are private under `add_remove`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from hatcast.agents.cli.report import Report, nested, open_figure, rounded
from hatcast.agents.tables.terminal import table
from hatcast.lab.evaluate.comparison import MARKERS, Errors
from hatcast.lab.evaluate.contenders import Contender, ResolvedContender, hides_presence, parse_contender
from hatcast.lab.evaluate.inputs import SampledHat
from hatcast.lab.evaluate.simulation import Floats
from hatcast.stream.estimators.array_length import RULES, bias_and_noise, lengths_to_try
from hatcast.stream.estimators.grouping import Counts, Integers, places_taken
from hatcast.stream.estimators.levy import concentration
from hatcast.stream.estimators.vectors import vector_form

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

Staircases = Mapping[str, tuple[Floats, Integers]]
STAIRCASE: Final = (0.001, 2.0, 400)  # first and last epsilon, and their number, of the papers' figure of m
_FULL: Final = "full arrays"
_TIE: Final = 1e-9  # in the value's unit
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class WorstCase:
    """Worst case of a contender at one epsilon, in km/h; in l1 for vectors. None: not fixed by counts, or not used."""

    array_length: int | None  # m; arrays: K, which is no integer for full arrays
    arrays: float | None
    tau: float | None  # width of LEVY's bins
    bias: float | None  # largest difference of the value before noise from the mean of all readings, over all speeds
    noise: float | None  # mean of the noise's absolute value, before it is widened by the grid

    @property
    def total(self) -> float | None:
        """E_M, or None."""
        return None if self.bias is None or self.noise is None else self.bias + self.noise


WorstCases = dict[str, dict[float, WorstCase]]  # by contender and epsilon


def full_arrays(hat: SampledHat, epsilons: Sequence[float]) -> dict[float, WorstCase]:
    """Return E^(eps), the papers' bound of the best error: the minimum over m for K = G / m full arrays.    [M (15)]"""
    found = {}
    diameter = hat.upper_bound_milli / _MILLI * (1 if hat.dimensions == 1 else 2)  # of two readings, in l1 for vectors
    for epsilon in epsilons:
        length = RULES["minimax"](hat.counts, epsilon / hat.dimensions, None)
        taken, readings = int(places_taken(hat.counts, np.array([length]))[0]), int(hat.counts.sum())
        bias = diameter * (1 - taken / readings)
        noise = diameter * hat.dimensions * length / (epsilon * taken)
        found[epsilon] = WorstCase(length, taken / length, None, bias, noise)
    return found


def staircases(counts: Counts, dimensions: int = 1) -> Staircases:
    """Return (epsilons, array lengths) of `minimax` and of `worst_case` with BESTFIT.    [M Fig. 5]"""
    epsilons = np.geomspace(*STAIRCASE)
    printed = [RULES["minimax"](counts, each / dimensions, None) for each in epsilons.tolist()]
    # The users are grouped once for each length, not at each epsilon.
    tried = lengths_to_try(counts)
    bias, noise = np.array([bias_and_noise(counts, length, "bestfit") for length in tried.tolist()]).T
    least = [int(np.argmin(bias + noise * dimensions / epsilon)) for epsilon in epsilons]
    return MappingProxyType(
        {"minimax": (epsilons, np.array(printed, np.int64)), "worst_case": (epsilons, tried[least])}
    )


def groupings() -> dict[str, list[Contender]]:
    """Return the contenders of the papers' comparison of groupings: estimator -> its variants.    [M Fig. 1]"""
    return {
        name: [parse_contender(f"{name}:{each}") for each in ("bestfit", "wraparound", "wraparound:printed")]
        for name in ("array_averaging", "levy", "quantile")
    }


def _worst_case(hat: SampledHat, contender: Contender, epsilon: float) -> WorstCase:
    resolved = contender.resolve(hat.counts, hat.upper_bound_milli, epsilon, hat.dimensions)
    arrays, parameters = resolved.arrays, resolved.parameters
    tau = None
    if arrays is not None and contender.estimator.name == "levy":
        tau = min(float(concentration(arrays, hat.upper_bound_milli, contender.gamma)), hat.upper_bound_milli) / _MILLI
    bias, noise = _bias_and_noise(hat, resolved)
    length = parameters.array_length
    return WorstCase(
        min(length, int(hat.counts[0])) if isinstance(length, int) else None,
        None if arrays is None else arrays.number,
        tau,
        None if bias is None else float(bias) / _MILLI,
        None if noise is None else float(noise) / _MILLI,
    )


def _bias_and_noise(hat: SampledHat, resolved: ResolvedContender) -> tuple[Fraction | None, Fraction | None]:
    """Return both in milli-units. A contender with the papers' constants has `split` times the noise."""
    estimator, parameters = resolved.contender.estimator, resolved.parameters
    if hat.dimensions > 1:
        error = vector_form(estimator.name, hat.dimensions).worst_case_error(hat.counts, parameters)
        return error.bias, error.noise
    bias = estimator.bias(hat.counts, parameters)
    if bias is None or "noise" not in estimator.shares:
        return bias, None
    return bias, resolved.sensitivity / (Fraction(parameters.epsilon) * estimator.shares["noise"])


def report_of(
    hat: SampledHat,
    contenders: Sequence[Contender],
    epsilons: Sequence[float],
    title: str,
    settings: Mapping[str, Any],
    errors: Callable[[], Mapping[str, Errors]],
) -> Report:
    """Return the worst cases, those of full arrays, and the steps of both array lengths.

    errors   simulates the groupings, for the plot
    Raises NoVectorForm in several dimensions.
    """
    found = {each.name: {epsilon: _worst_case(hat, each, epsilon) for epsilon in epsilons} for each in contenders}
    full = full_arrays(hat, epsilons)
    lengths = staircases(hat.counts, hat.dimensions)
    cases = [
        {"estimator": name, "epsilon": epsilon, **_row(each)}
        for name, row in found.items()
        for epsilon, each in row.items()
    ]
    bounds = [{"epsilon": epsilon, **_row(each)} for epsilon, each in full.items()]
    steps = {rule: _steps(*each) for rule, each in lengths.items()}
    return Report(
        shown=[_table(found, full, title, hat.unit)],
        figures={
            "worst_case": nested(cases, "estimator", "epsilon"),
            "full_arrays": nested(bounds, "epsilon"),
            "array_lengths": steps,
        },
        settings=settings,
        rows=[
            *({"table": "worst_case", **each} for each in cases),
            *({"table": "full_arrays", **each} for each in bounds),
            *(
                {"table": "array_lengths", "rule": rule, "epsilon": epsilon, "array_length": length}
                for rule, each in steps.items()
                for epsilon, length in each
            ),
        ],
        plot=lambda path: _plot(found, lengths, errors(), title, hat.unit, path),
    )


def _row(each: WorstCase) -> dict[str, float | None]:
    numbers = {name: rounded(number) for name, number in asdict(each).items()}
    return numbers | {"worst_case_error": rounded(each.total)}


def _steps(epsilons: Floats, lengths: Integers) -> list[tuple[float, int]]:
    """Return (first epsilon, array length) of each step."""
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    return [(round(float(epsilons[at]), 4), int(lengths[at])) for at in starts]


def _table(found: WorstCases, full: Mapping[float, WorstCase], title: str, unit: str) -> Table:
    """Return a table: rows by estimator and epsilon, the least E_M under `replace` at each epsilon in bold."""
    totals = [
        (epsilon, each.total) for row in found.values() for epsilon, each in row.items() if each.total is not None
    ]
    least = {epsilon: min(total for at, total in totals if at == epsilon) for epsilon, _ in totals}

    def rows() -> Iterator[tuple[str, ...]]:
        for name, row in [*found.items(), (_FULL, full)]:
            label = f"{name} (add_remove)" if name != _FULL and hides_presence(name) else name
            for epsilon, each in row.items():
                total = _text(each.total)
                best = name != _FULL and each.total is not None and each.total <= least[epsilon] + _TIE
                yield (
                    label,
                    f"{epsilon:g}",
                    "-" if each.array_length is None else f"{each.array_length}",
                    "-" if each.arrays is None else f"{each.arrays:.4g}",
                    *map(_text, (each.tau, each.bias, each.noise)),
                    f"[bold]{total}[/bold]" if best else total,
                )
                label = ""

    return table(
        title,
        f"In {unit}; m and arrays are numbers. E_M = bias + noise bounds the mean absolute error of any values:"
        " bias is the largest of any values, noise the mean of its absolute value. A dash: not used, or not fixed by "
        "counts. full arrays: E^(epsilon) of the papers, for arrays without an empty place.",
        ("estimator", "eps", "m", "arrays", "tau", "bias", "noise", "E_M"),
        rows(),
    )


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def _plot(
    found: WorstCases, lengths: Staircases, errors: Mapping[str, Errors], title: str, unit: str, path: Path
) -> None:
    """Plot E_M and m against epsilon, and below them the simulated errors of groupings, a panel per estimator."""
    with open_figure(path, title, (8.5, 7.2 if errors else 3.8)) as figure:
        rows = figure.subfigures(2 if errors else 1, 1, squeeze=False).flat
        left, right = rows[0].subplots(1, 2)
        _errors(left, found, unit)
        for (rule, (epsilons, steps)), style in zip(lengths.items(), ("-", "--"), strict=False):
            right.step(epsilons, steps, style, where="post", linewidth=1, label=rule)
        _finish(right, "array length m")
        right.set_xscale("log")
        if errors:
            _groupings(rows[1], errors, unit)


def _errors(panel: "Axes", found: WorstCases, unit: str) -> None:
    for (name, row), marker in zip(found.items(), cycle(MARKERS), strict=False):
        points = [(epsilon, each.total) for epsilon, each in sorted(row.items()) if each.total is not None]
        if points:
            panel.plot(*zip(*points, strict=True), marker=marker, markersize=4, linewidth=1, label=name)
    _finish(panel, f"worst-case error E_M, {unit}")
    panel.set_yscale("log")


def _groupings(figure: "SubFigure", errors: Mapping[str, Errors], unit: str) -> None:
    for panel, (name, rows) in zip(figure.subplots(1, len(errors)), errors.items(), strict=True):
        for (variant, row), marker in zip(rows.items(), MARKERS, strict=False):
            epsilons: Sequence[float] = sorted(row)
            label = variant.removeprefix(f"{name}:")
            panel.plot(epsilons, [row[x].mae for x in epsilons], marker=marker, markersize=4, linewidth=1, label=label)
        panel.set_title(name, fontsize=9)
        _finish(panel, f"mean absolute error, {unit}")


def _finish(panel: "Axes", measure: str) -> None:
    panel.set(xlabel="epsilon", ylabel=measure)
    panel.grid(visible=True, which="both", linewidth=0.3)
    panel.legend(frameon=False, fontsize=7)
