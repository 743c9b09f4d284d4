"""`hatcast evaluate`: compare estimators by simulation."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Unpack

import click

from hatcast.agents.cli.files import output_option
from hatcast.agents.cli.options import epsilons_of, json_option, plot_option
from hatcast.agents.cli.progress import progress_bars
from hatcast.agents.cli.recordings import checked_format, format_options, more_argument, policy_option
from hatcast.agents.cli.report import Report
from hatcast.lab.cli.evaluate_usage import Options, check_usage
from hatcast.lab.evaluate import comparison, hybrid, hybrid_report, worst
from hatcast.lab.evaluate.comparison import compare
from hatcast.lab.evaluate.contenders import DEFAULT, default_estimators, parse_contender
from hatcast.lab.evaluate.inputs import Hat, hat_of_counts, hat_of_recording
from hatcast.lab.evaluate.simulation import VALUES
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import FormatChoice

_EPSILONS: Final = "0.5,1,1.5,2"
_HYBRID_RUNS: Final = 1_000_000  # all runs of a point are in memory at once
_RUNS: Final = 10_000


@click.command(epilog="Example:  hatcast evaluate --counts tests/data/itms_like_counts.json --plot out.svg")
@click.option("--counts", type=click.Path(path_type=Path), help="JSON file of readings per user; speeds are simulated.")
@click.option("--values", type=click.Choice([*VALUES]), show_default="iid", help="Simulated speeds.")
@click.option("--dimensions", type=click.IntRange(1, 100), default=1, help="Coordinates of simulated vectors.")
@click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE...",
    help="Recordings instead of --counts, or of --users and --sigma with --hybrid, as one stream. Reads raw data, not "
    "private.",
)
@more_argument
@format_options(of="recordings")
@policy_option
@click.option("--hat", help="cell/date/slot; default: the HAT with the most users.")
@click.option(
    "--scaling", type=(click.Choice(["samples", "users"]), click.IntRange(1)), help="N times as many samples or users."
)
@click.option(
    "--worst-case",
    is_flag=True,
    help="Print worst-case errors, array lengths and tau, which no speeds decide. With --plot also the papers' figures "
    "of array lengths and of groupings.",
)
@click.option("--hybrid", is_flag=True, help="Evaluate the hybrid model: some devices do not trust the operator.")
@click.option("--users", type=click.IntRange(2, 10**6), show_default="10000", help="--hybrid: users of both groups.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1),
    help="--hybrid: share of users who trust, by default 0.05. --daily-limit: share of a bus's limit that the tracker "
    "spends at the close of hours, by default 0.3.",
)
@click.option(
    "--sigma", show_default=hybrid.SIGMAS, help="--hybrid: standard deviations of users' means, as fractions of U."
)
@click.option("--sigma-local", type=click.FloatRange(0, 0.5), help="--hybrid: that of local users, if different.")
@click.option(
    "--gap", type=click.FloatRange(-1, 1), help="--hybrid: how much faster local users are, as a fraction of U."
)
@click.option(
    "--daily-limit",
    metavar="EPS,...",
    help="Replay whole days of --data, with these total epsilons of a bus and day, such as 1,2,5,10,20,40.",
)
@click.option(
    "--objective",
    type=click.Choice([each.value for each in Objective]),
    show_default=Objective.CELLS.value,
    help="--daily-limit: what the tracker makes accurate at the end of a day.",
)
@click.option(
    "--cap",
    type=click.IntRange(1, 65_535),
    help="--daily-limit: K of the papers' estimators, each with epsilon limit / K.  [default: that of --config, or 10]",
)
@click.option(
    "--min-users",
    type=click.IntRange(1),
    help="--daily-limit: HATs with fewer users do not count.  [default: that of --config, or 3]",
)
@click.option("--eps", show_default=_EPSILONS, help="Epsilons of one release; --hybrid: a single one, by default 1.")
@click.option(
    "--runs", type=click.IntRange(1, 10_000_000), show_default=f"{_RUNS}", help="--daily-limit: by default 4."
)
@click.option(
    "--estimators",
    show_default=",".join(DEFAULT),
    help="List of estimator[:setting]; by default kvh,pwh with --hybrid, tracker,array_averaging with --daily-limit.",
)
@click.option("--seed", type=click.IntRange(0), show_default="1", help="Seed of the simulation.")
@plot_option
@output_option("the figures, as rows", has_places=False)
@json_option
def command(**given: Unpack[Options]) -> None:
    """Compare the errors of estimators by simulation, or with --worst-case without any.

    Releases and charges nothing, so nothing that it prints is private.

    With --daily-limit it replays whole days through the code of releases, with its noise, and compares what is
    published with the mean of all readings, live and at the end of each day.
    """
    check_usage(given)
    if given["hybrid"]:
        _hybrid(given)
        return
    if given["daily_limit"] is not None:
        _days(given, given["daily_limit"])
        return
    _one_hat(given)


def _one_hat(given: Options) -> None:
    """Compare estimators on one HAT."""
    runs, seed = given["runs"] or _RUNS, 1 if given["seed"] is None else given["seed"]
    epsilons = epsilons_of("--eps", _EPSILONS if given["eps"] is None else given["eps"], "0.5,1,2")
    dimensions = given["dimensions"]
    contenders = [parse_contender(text) for text in (given["estimators"] or default_estimators(dimensions)).split(",")]
    hat, source = _hat(given)
    scaling = given["scaling"]
    users, readings = len(hat.counts), int(hat.counts.sum())
    scaled = "" if scaling is None else f", {scaling[0]} x{scaling[1]}"
    title = f"{source}{scaled}: {users:,} users, {readings:,} readings"
    settings = {
        "source": source,
        "scaling": None if scaling is None else {scaling[0]: scaling[1]},
        "users": users,
        "readings": readings,
        "dimensions": dimensions,
        "upper_bound": hat.upper_bound_milli / 1000,
        **({} if hat.at_bound is None else {"means_at_bound": hat.at_bound}),
        **({} if hat.unit == "km/h" else {"unit": hat.unit}),
        "eps": epsilons,
        "runs": runs,
        "seed": seed,
        "estimators": [each.name for each in contenders],
    }
    if given["worst_case"]:
        report = worst.report_of(
            hat, contenders, epsilons, title, settings, lambda: _groupings(hat, epsilons, runs, seed)
        )
    else:
        with progress_bars() as add_bar:
            errors = compare(hat, contenders, epsilons, runs, seed, add_bar("simulating", runs))
        report = comparison.report_of(errors, hat, title, settings)
    _write(report, given)


def _groupings(hat: Hat, epsilons: Sequence[float], runs: int, seed: int) -> dict[str, comparison.Errors]:
    """Return the simulated errors of groupings by estimator; none for vectors, which not all estimators take."""
    if hat.dimensions > 1:
        return {}
    compared = worst.groupings()
    with progress_bars() as add_bar:
        progress = add_bar("simulating", runs * len(compared))
        return {name: compare(hat, variants, epsilons, runs, seed, progress) for name, variants in compared.items()}


def _write(report: Report, given: Options) -> None:
    report.write(as_json=given["as_json"], output=given["output"], plot_file=given["plot_file"])


def _hybrid(given: Options) -> None:
    """Compare the hybrid model with its baselines."""
    epsilons = epsilons_of("--eps", "1" if given["eps"] is None else given["eps"], "0.5,1,2")
    if len(epsilons) > 1:
        raise click.UsageError("--hybrid takes one epsilon and varies it by itself")
    runs, seed = given["runs"] or _RUNS, 1 if given["seed"] is None else given["seed"]
    if runs > _HYBRID_RUNS:
        raise click.UsageError(f"--hybrid takes up to {_HYBRID_RUNS:,} runs")
    estimators = hybrid.parse_estimators(given["estimators"] or hybrid.DEFAULT)
    sigmas = hybrid.parse_sigmas(hybrid.SIGMAS if given["sigma"] is None else given["sigma"])
    users, share, gap = given["users"] or 10_000, given["share"] or 0.05, given["gap"] or 0.0
    own = None
    if given["data"]:
        own = hybrid.measured(*_hat(given), share, epsilons[0])
        users, share, sigmas = round(own.case.users), own.case.share, [own.case.sigma]
    cases = [hybrid.Case(users, share, epsilons[0], sigma, sigma, gap) for sigma in sigmas]
    if given["sigma_local"] is not None:
        cases = [replace(case, sigma_local=given["sigma_local"]) for case in cases]
    hybrid.check_cases(cases)
    if own is None:
        click.echo("a simulation: nothing that it prints is private", err=True)
    with progress_bars() as add_bar:
        curves = hybrid.curves(cases, estimators, runs, seed, add_bar("simulating", hybrid.number_of_points(cases)))
        amplified = hybrid.amplifications(cases[len(cases) // 2])
        maps = hybrid.heatmaps(cases[len(cases) // 2], estimators)
    title = f"hybrid model: {users:,} users, {share:.3g} of them central, eps {epsilons[0]:g}"
    settings = {
        "users": users,
        "share": share,
        "eps": epsilons[0],
        "sigma": sigmas,
        "sigma_local": given["sigma_local"],
        "gap": gap,
        "runs": runs,
        "seed": seed,
        "estimators": [each.name for each in estimators],
        "delta": hybrid.DELTA,
        "heatmap_sigma": cases[len(cases) // 2].sigma,
        "amplified_sigma": cases[len(cases) // 2].sigma,
    }
    _write(hybrid_report.report_of(curves, maps, amplified, title, settings, own), given)


def _days(given: Options, limits: str) -> None:
    """Compare designs over whole days of recordings."""
    from hatcast.lab.cli.evaluate_days import DayOptions, evaluate_days

    evaluate_days(
        DayOptions(
            paths=(*given["data"], *given["more"]),
            feed_format=_chosen(given),
            config=given["config"],
            limits=epsilons_of("--daily-limit", limits, "1,5,10"),
            estimators=given["estimators"],
            share=given["share"],
            objective=None if given["objective"] is None else Objective(given["objective"]),
            cap=given["cap"],
            min_users=given["min_users"],
            runs=given["runs"],
            as_json=given["as_json"],
            output=given["output"],
        )
    )


def _chosen(given: Options) -> FormatChoice:
    choice = given["feed_format"]
    if choice is None:
        raise click.UsageError("--data needs --format")
    return choice


def _hat(given: Options) -> tuple[Hat, str]:
    """Return the HAT to evaluate on and its name; warn on standard error that the output is not private."""
    if given["counts"] is not None:
        click.echo("a simulation: nothing that it prints is private", err=True)
        return hat_of_counts(given["counts"], given["values"] or "iid", given["scaling"], given["dimensions"])
    click.echo("reads raw data; nothing that it prints is private", err=True)
    from hatcast.lab.days import policy_of_recordings

    choice, paths = _chosen(given), (*given["data"], *given["more"])
    policy = policy_of_recordings(given["config"], choice.name)
    feed = checked_format(choice, policy, paths)
    with progress_bars() as add_bar:
        return hat_of_recording((paths, feed, policy), given["hat"], given["scaling"], add_bar("reading", None))
