"""`hatcast evaluate --worst-case`: worst-case errors, and the papers' figures of array lengths and groupings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from hatcast.agents.cli.files import write_figures
from hatcast.agents.cli.progress import progress_bars
from hatcast.lab.evaluate.comparison import Errors, Hat, compare
from hatcast.lab.evaluate.contenders import Contender


@dataclass(frozen=True, slots=True)
class WorstJob:
    """A HAT and the estimators to compare on it. runs, seed: of the simulation, for the plot only."""

    hat: Hat
    contenders: Sequence[Contender]
    epsilons: Sequence[float]
    runs: int
    seed: int


def evaluate_worst(
    job: WorstJob,
    title: str,
    settings: dict[str, Any],
    files: tuple[Path | None, Path | None],
    *,
    as_json: bool,
) -> None:
    """Print a table or JSON with the settings, or write them to a file. files: of the plot, and of the rows.

    Raises HatcastError.
    """
    from hatcast.lab.evaluate import worst, worst_show
    from hatcast.lab.evaluate.rows import rows_of_worst_cases

    plot_file, output = files
    hat = worst.PublicHat(job.hat.counts, job.hat.upper_bound_milli, job.hat.dimensions)
    found = worst.worst_cases(hat, job.contenders, job.epsilons)
    full = worst.full_arrays(hat, job.epsilons)
    if plot_file is not None:
        worst_show.plot(found, worst.staircases(hat), _groupings(job), title, plot_file, job.hat.unit)
    figures = worst_show.as_json(found, full, worst.staircases(hat))
    if output is not None:
        write_figures(output, rows_of_worst_cases(figures, settings))
    elif as_json:
        click.echo(msgspec.json.encode({"settings": settings, **figures}))
    else:
        Console().print(worst_show.table_of(found, full, title, job.hat.unit))


def _groupings(job: WorstJob) -> dict[str, Errors]:
    """Return the simulated errors of groupings by estimator; none for vectors, which not all estimators take."""
    from hatcast.lab.evaluate.worst import groupings

    if job.hat.dimensions > 1:
        return {}
    compared = groupings()
    with progress_bars() as add_bar:
        progress = add_bar("simulating", job.runs * len(compared))
        return {
            name: compare(job.hat, variants, job.epsilons, job.runs, job.seed, progress)
            for name, variants in compared.items()
        }
