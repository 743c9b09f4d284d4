"""`hatcast evaluate`: compare estimators by simulation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict, Unpack

import click
import msgspec
from rich.console import Console

from hatcast.agents.cli.options import json_option, plot_option
from hatcast.agents.cli.progress import progress_bars
from hatcast.agents.research.evaluate import hybrid, hybrid_show, show
from hatcast.agents.research.evaluate.comparison import Hat, compare
from hatcast.agents.research.evaluate.contenders import DEFAULT, default_estimators, parse_contender
from hatcast.agents.research.evaluate.inputs import Scaling, hat_of_counts, hat_of_recording
from hatcast.agents.research.evaluate.values import VALUES
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FORMATS

_EPSILONS: Final = "0.5,1,1.5,2"
_HYBRID_RUNS: Final = 1_000_000  # all runs of a point are in memory at once
_HYBRID_ONLY: Final = ("users", "share", "sigma", "sigma_local", "gap")
_COMPARISON_ONLY: Final = ("counts", "values", "data", "feed_format", "config", "hat", "scaling")


class _Options(TypedDict):
    """Parsed command-line options."""

    counts: Path | None
    values: str | None
    dimensions: int
    data: Path | None
    feed_format: str | None
    config: Path | None
    hat: str | None
    scaling: Scaling | None
    hybrid: bool
    users: int | None
    share: float | None
    sigma: str | None
    sigma_local: float | None
    gap: float | None
    eps: str | None
    runs: int
    estimators: str | None
    seed: int
    plot_file: Path | None
    as_json: bool


@click.command(epilog="Example:  hatcast evaluate --counts tests/data/itms_like_counts.json --plot out.svg")
@click.option("--counts", type=click.Path(path_type=Path), help="JSON file of readings per user; speeds are simulated.")
@click.option("--values", type=click.Choice([*VALUES]), show_default="iid", help="Simulated speeds.")
@click.option("--dimensions", type=click.IntRange(1, 100), default=1, help="Coordinates of simulated vectors.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="A recording instead of --counts. Reads raw data, not private."
)
@click.option("--format", "feed_format", type=click.Choice([*FORMATS]), help="Format of the recording.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration whose policy defines the HATs; default: the policy of the demo.",
)
@click.option("--hat", help="cell/date/slot; default: the HAT with the most users.")
@click.option(
    "--scaling", type=(click.Choice(["samples", "users"]), click.IntRange(1)), help="N times as many samples or users."
)
@click.option("--hybrid", is_flag=True, help="Evaluate the hybrid model: some devices do not trust the operator.")
@click.option("--users", type=click.IntRange(2, 10**6), show_default="10000", help="--hybrid: users of both groups.")
@click.option(
    "--share", type=click.FloatRange(1e-6, 0.999999), show_default="0.05", help="--hybrid: share of users who trust."
)
@click.option(
    "--sigma", show_default=hybrid.SIGMAS, help="--hybrid: standard deviations of users' means, as fractions of U."
)
@click.option("--sigma-local", type=click.FloatRange(0, 0.5), help="--hybrid: that of local users, if different.")
@click.option(
    "--gap", type=click.FloatRange(-1, 1), help="--hybrid: how much faster local users are, as a fraction of U."
)
@click.option("--eps", show_default=_EPSILONS, help="Epsilons of one release; --hybrid: a single one, by default 1.")
@click.option("--runs", type=click.IntRange(2, 10_000_000), default=10_000, show_default=True)
@click.option(
    "--estimators", show_default=",".join(DEFAULT), help="List of estimator[:setting]; --hybrid: by default kvh,pwh."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the simulation.")
@plot_option
@json_option
def command(**given: Unpack[_Options]) -> None:
    """Compare the errors of estimators by simulation.

    Releases and charges nothing, so nothing that it prints is private.
    """
    _check_usage(given)
    if given["hybrid"]:
        _hybrid(given)
        return
    epsilons = _epsilons(_EPSILONS if given["eps"] is None else given["eps"])
    dimensions, measure = given["dimensions"], show.measure_name(given["dimensions"])
    contenders = [parse_contender(text) for text in (given["estimators"] or default_estimators(dimensions)).split(",")]
    with progress_bars() as add_bar:
        hat, source = _hat(given, add_bar("reading", None))
        errors = compare(hat, contenders, epsilons, given["runs"], given["seed"], add_bar("simulating", given["runs"]))
    scaling = given["scaling"]
    users, readings = len(hat.counts), int(hat.counts.sum())
    scaled = "" if scaling is None else f", {scaling[0]} x{scaling[1]}"
    title = f"{source}{scaled}: {users:,} users, {readings:,} readings"
    if given["plot_file"] is not None:
        show.plot(errors, title, measure, given["plot_file"])
    if not given["as_json"]:
        Console().print(show.table_of(errors, title, measure))
        return
    settings = {
        "source": source,
        "scaling": None if scaling is None else {scaling[0]: scaling[1]},
        "users": users,
        "readings": readings,
        "dimensions": dimensions,
        "upper_bound": hat.upper_bound_milli / 1000,
        "eps": epsilons,
        "runs": given["runs"],
        "seed": given["seed"],
        "estimators": [each.name for each in contenders],
    }
    suppressed = show.suppressed(errors)
    output = {"settings": settings, "mae": show.as_json(errors), **({"suppressed": suppressed} if suppressed else {})}
    click.echo(msgspec.json.encode(output))


def _hybrid(given: _Options) -> None:
    """Compare the hybrid model with its baselines."""
    epsilons = _epsilons("1" if given["eps"] is None else given["eps"])
    if len(epsilons) > 1:
        raise click.UsageError("--hybrid takes one epsilon and varies it by itself")
    if given["runs"] > _HYBRID_RUNS:
        raise click.UsageError(f"--hybrid takes up to {_HYBRID_RUNS:,} runs")
    estimators = hybrid.parse_estimators(given["estimators"] or hybrid.DEFAULT)
    sigmas = hybrid.parse_sigmas(hybrid.SIGMAS if given["sigma"] is None else given["sigma"])
    users, share, gap = given["users"] or 10_000, given["share"] or 0.05, given["gap"] or 0.0
    cases = [hybrid.Case(users, share, epsilons[0], sigma, sigma, gap) for sigma in sigmas]
    if given["sigma_local"] is not None:
        cases = [replace(case, sigma_local=given["sigma_local"]) for case in cases]
    hybrid.check_cases(cases)
    click.echo("a simulation: nothing that it prints is private", err=True)
    with progress_bars() as add_bar:
        curves = hybrid.curves(
            cases, estimators, given["runs"], given["seed"], add_bar("simulating", hybrid.number_of_points(cases))
        )
        amplified = hybrid.amplifications(cases[len(cases) // 2])
    title = f"hybrid model: {users:,} users, {share:.3g} of them central, eps {epsilons[0]:g}"
    if given["plot_file"] is not None:
        hybrid_show.plot(curves, amplified, title, given["plot_file"])
    if not given["as_json"]:
        Console().print(*hybrid_show.tables_of(curves, amplified, title))
        return
    settings = {
        "users": users,
        "share": share,
        "eps": epsilons[0],
        "sigma": sigmas,
        "sigma_local": given["sigma_local"],
        "gap": gap,
        "runs": given["runs"],
        "seed": given["seed"],
        "estimators": [each.name for each in estimators],
        "delta": hybrid.DELTA,
        "amplified_sigma": cases[len(cases) // 2].sigma,
    }
    click.echo(msgspec.json.encode({"settings": settings, **hybrid_show.as_json(curves, amplified)}))


def _check_usage(given: _Options) -> None:
    others = _COMPARISON_ONLY if given["hybrid"] else _HYBRID_ONLY
    used = [key for key in others if given[key] is not None]  # type: ignore[literal-required]  # names of _Options
    if used:
        key = {"feed_format": "format"}.get(used[0], used[0]).replace("_", "-")
        raise click.UsageError(
            f"--{key} cannot be combined with --hybrid" if given["hybrid"] else f"--{key} needs --hybrid"
        )
    if given["hybrid"]:
        if given["dimensions"] > 1:
            raise click.UsageError("--dimensions cannot be combined with --hybrid")
        return
    if (given["counts"] is None) == (given["data"] is None):
        raise click.UsageError("name one of --counts, --data and --hybrid")
    if given["data"] is not None and given["feed_format"] is None:
        raise click.UsageError("--data needs --format")
    if given["counts"] is not None and (given["feed_format"] or given["config"] or given["hat"]):
        raise click.UsageError("--format, --config and --hat are for --data")
    if given["dimensions"] > 1 and (given["data"] is not None or given["values"] not in (None, "user_effects")):
        raise click.UsageError("--dimensions is for --counts, and only for --values user_effects")


def _hat(given: _Options, progress: Callable[[int], None]) -> tuple[Hat, str]:
    """Return the HAT to evaluate on and its name; warn on standard error that the output is not private."""
    if given["counts"] is not None:
        click.echo("a simulation: nothing that it prints is private", err=True)
        return hat_of_counts(given["counts"], given["values"] or "iid", given["scaling"], given["dimensions"])
    click.echo("reads raw data; nothing that it prints is private", err=True)
    recording = given["data"] or Path(), given["feed_format"] or "", given["config"]
    return hat_of_recording(recording, given["hat"], given["scaling"], progress)


def _epsilons(text: str) -> list[float]:
    try:
        epsilons = list(dict.fromkeys(float(each) for each in text.split(",")))
    except ValueError:
        epsilons = []
    if not epsilons or not all(1e-3 <= each <= 1e3 for each in epsilons):
        raise HatcastError(
            f"--eps: {text!r} is not a list of epsilons; write numbers from 0.001 to 1000, such as 0.5,1,2"
        )
    return epsilons
