"""`hatcast evaluate`: compare estimators by simulation; those of one HAT are here, the others in `evaluate_models`."""

from typing import Any, Final

import click

from hatcast.agents.cli.options import PATH, combined, epsilons_of, json_option, plot_option
from hatcast.agents.cli.recordings import data_options
from hatcast.agents.cli.report import output_option
from hatcast.agents.progress import progress_bars
from hatcast.lab.cli import evaluate_models
from hatcast.lab.evaluate import comparison, worst
from hatcast.lab.evaluate.contenders import DEFAULT, Contender, default_estimators, parse_contender
from hatcast.lab.evaluate.inputs import SampledHat, hat_of_counts
from hatcast.lab.evaluate.simulation import VALUES


@click.group(epilog="Each has an example:  hatcast evaluate means --help")
def command() -> None:
    """Compare estimators by simulation. Releases and charges nothing, so nothing that it prints is private."""


for _model in (evaluate_models.days, evaluate_models.hybrid, evaluate_models.clusters):
    command.add_command(_model)


_hat_options: Final = combined(
    click.option("--counts", type=PATH, help="JSON file of readings per user; speeds are simulated."),
    click.option("--values", type=click.Choice([*VALUES]), show_default="iid", help="Simulated speeds."),
    click.option("--dimensions", type=click.IntRange(1, 100), default=1, help="Coordinates of simulated vectors."),
    data_options("Recordings instead of --counts, as one stream. Reads raw data, not private."),
    click.option("--hat", help="cell/date/slot; default: the HAT with the most users."),
    click.option(
        "--scaling",
        type=(click.Choice(["samples", "users"]), click.IntRange(1)),
        help="N times as many samples or users.",
    ),
    click.option("--eps", default="0.5,1,1.5,2", help="Epsilons of one release."),
    click.option("--runs", type=click.IntRange(2, 10_000_000), default=10_000),
    click.option("--estimators", show_default=",".join(DEFAULT), help="List of estimator[:setting]."),
    click.option("--seed", type=click.IntRange(0), default=1, help="Seed of the simulation."),
    plot_option,
    output_option("the figures, as rows", has_places=False),
    json_option,
)


@command.command(
    short_help="Means of one HAT: mean absolute errors.",
    epilog="Example:  hatcast evaluate means --counts tests/data/itms_like_counts.json --plot out.svg",
)
@_hat_options
def means(**given: Any) -> None:
    """Compare the mean absolute errors of estimators on one HAT."""
    hat, contenders, epsilons, title, settings = _prepared(given)
    with progress_bars() as add_bar:
        bar = add_bar("simulating", given["runs"])
        errors = comparison.compare(hat, contenders, epsilons, given["runs"], given["seed"], bar)
    report = comparison.report_of(errors, hat, title, settings)
    report.write(as_json=given["as_json"], output=given["output"], plot_file=given["plot_file"])


@command.command(
    "worst-case",
    short_help="Means of one HAT: worst-case errors, which no speeds decide.",
    epilog="Example:  hatcast evaluate worst-case --counts tests/data/itms_like_counts.json --plot out.svg",
)
@_hat_options
def worst_case(**given: Any) -> None:
    """Print worst-case errors, array lengths and tau, which no speeds decide.

    With --plot also the papers' figures of array lengths and of groupings, which are simulated.
    """
    hat, contenders, epsilons, title, settings = _prepared(given)

    def groupings() -> dict[str, comparison.Errors]:
        if hat.dimensions > 1:  # not all of these estimators take vectors
            return {}
        compared, runs = worst.groupings(), given["runs"]
        with progress_bars() as add_bar:
            bar = add_bar("simulating", runs * len(compared))
            return {
                name: comparison.compare(hat, variants, epsilons, runs, given["seed"], bar)
                for name, variants in compared.items()
            }

    report = worst.report_of(hat, contenders, epsilons, title, settings, groupings)
    report.write(as_json=given["as_json"], output=given["output"], plot_file=given["plot_file"])


def _prepared(given: dict[str, Any]) -> tuple[SampledHat, list[Contender], list[float], str, dict[str, Any]]:
    """Return the HAT, estimators, epsilons, title and settings. Raises UsageError, HatcastError."""
    if (given["counts"] is None) == (not given["data"]):
        raise click.UsageError("name one of --counts and --data")
    if given["counts"] is not None and (given["config"] or given["hat"]):
        raise click.UsageError("--config and --hat are for --data")
    if given["dimensions"] > 1 and (given["data"] or given["values"] not in (None, "user_effects")):
        raise click.UsageError("--dimensions is for --counts, and only for --values user_effects")
    epsilons, scaling = epsilons_of("--eps", given["eps"], "0.5,1,2"), given["scaling"]
    names = given["estimators"] or default_estimators(given["dimensions"])
    contenders = [parse_contender(text) for text in names.split(",")]
    hat, source = _hat(given)
    users, readings = len(hat.counts), int(hat.counts.sum())
    settings = {
        "source": source,
        "scaling": None if scaling is None else {scaling[0]: scaling[1]},
        "users": users,
        "readings": readings,
        "dimensions": given["dimensions"],
        "upper_bound": hat.upper_bound_milli / 1000,
        **({} if hat.at_bound is None else {"means_at_bound": hat.at_bound}),
        **({} if hat.unit == "km/h" else {"unit": hat.unit}),
        "eps": epsilons,
        "runs": given["runs"],
        "seed": given["seed"],
        "estimators": [each.name for each in contenders],
    }
    scaled = "" if scaling is None else f", {scaling[0]} x{scaling[1]}"
    return hat, contenders, epsilons, f"{source}{scaled}: {users:,} users, {readings:,} readings", settings


def _hat(given: dict[str, Any]) -> tuple[SampledHat, str]:
    """Return the HAT to evaluate on and its name; warn on standard error that the output is not private."""
    choice = given["feed_format"]
    if choice is None:
        assert given["counts"] is not None, "checked by _prepared"  # noqa: S101 - for mypy
        click.echo("a simulation: nothing that it prints is private", err=True)
        return hat_of_counts(given["counts"], given["values"] or "iid", given["scaling"], given["dimensions"])
    return evaluate_models.recorded_hat(given["data"], choice, given["config"], given["hat"], given["scaling"])
