"""`hatcast evaluate days`, `hybrid` and `clusters`: whole days of recordings, and two models by simulation."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hatcast.agents.cli.options import FiniteRange, epsilons_of, found_config, json_option, plot_option
from hatcast.agents.cli.recordings import checked_format, data_options
from hatcast.agents.cli.report import output_option
from hatcast.agents.progress import progress_bars
from hatcast.lab.cli.timetable import named_timetable, timetable_option
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import FormatChoice

if TYPE_CHECKING:  # imported when it is needed, so that --help is fast
    from hatcast.lab.evaluate.inputs import SampledHat, Scaling

_CAP: Final = 10
_MIN_USERS: Final = 3
_SEED: Final = click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, help="Seed of the simulation.")


def recorded_hat(
    paths: tuple[Path, ...],
    choice: FormatChoice,
    config: Path | None,
    hat: str | None,
    scaling: "Scaling | None" = None,
) -> tuple["SampledHat", str]:
    """Return a HAT of recordings and its name; warn on standard error that the output is not private."""
    from hatcast.lab.days import policy_of_recordings
    from hatcast.lab.evaluate.inputs import hat_of_recording

    click.echo("reads raw data; nothing that it prints is private", err=True)
    policy = policy_of_recordings(found_config(config), choice.name)
    feed = checked_format(choice, policy, paths)
    with progress_bars() as add_bar:
        return hat_of_recording((paths, feed, policy), hat, scaling, add_bar("reading", None))


@click.command(
    short_help="Whole days of recordings, live and at each day's end.",
    epilog="Example:  hatcast evaluate days --daily-limit 1,5,10 --data 2016-11-2*.csv.gz --format capmetro",
)
@click.option(
    "--daily-limit",
    "limits",
    required=True,
    metavar="EPS,...",
    help="Total epsilons of a bus and day, such as 1,2,5,10,20,40.",
)
@data_options("Recordings, as one stream. Reads raw data, not private.", required=True)
@click.option(
    "--share",
    type=click.FloatRange(0, 1),
    default=0.3,
    help="Share of a bus's limit that the tracker spends at the close of hours.",
)
@click.option(
    "--objective",
    type=click.Choice([each.value for each in Objective]),
    default=Objective.CELLS.value,
    help="What the tracker makes accurate at the end of a day.",
)
@timetable_option
@click.option(
    "--cap",
    type=click.IntRange(1, 65_535),
    help=f"K of the papers' estimators, each with epsilon limit / K.  [default: that of the configuration, or {_CAP}]",
)
@click.option(
    "--min-users",
    type=click.IntRange(1),
    help=f"HATs with fewer users do not count.  [default: that of the configuration, or {_MIN_USERS}]",
)
@click.option("--runs", type=click.IntRange(1, 1_000), default=4)  # a design's are in memory at once
@click.option("--estimators", default="tracker,array_averaging", help="List of tracker and estimator[:setting].")
@output_option("the figures, as rows", has_places=False)
@json_option
def days(  # noqa: PLR0913 - options by name
    *,
    limits: str,
    data: tuple[Path, ...],
    feed_format: FormatChoice,
    config: Path | None,
    share: float,
    objective: str,
    timetable: Path | None,
    cap: int | None,
    min_users: int | None,
    runs: int,
    estimators: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """Replay whole days through the code of releases, with its noise, at several daily limits of a bus.

    What is published is compared with the mean of all readings, live and at the end of each day. Nothing that it prints
    is private.
    """
    from hatcast.lab.days import policy_of_recordings
    from hatcast.lab.evaluate.days import DaysJob, compare_days, parse_designs, report_of
    from hatcast.lab.evaluate.days_replay import TrackerDesign
    from hatcast.stream.mechanisms.system import SystemNoise

    totals, designs = epsilons_of("--daily-limit", limits, "1,5,10"), parse_designs(estimators)
    click.echo("reads raw data; nothing that it prints is private", err=True)
    config = found_config(config)
    policy = policy_of_recordings(config, feed_format.name)
    cap = cap or (_CAP if config is None else policy.max_hats_per_day)
    min_users = min_users or (_MIN_USERS if config is None else policy.min_users)
    feed, tracker = checked_format(feed_format, policy, data), TrackerDesign(share, Objective(objective))
    scheduled = named_timetable(timetable, policy)
    job = DaysJob(data, feed, policy, totals, designs, tracker, cap, min_users, runs, scheduled)
    with progress_bars() as add_bar:
        found = compare_days(job, SystemNoise(), add_bar)
    dates = f"{found.dates[0]} to {found.dates[-1]}" if len(found.dates) > 1 else found.dates[0]
    settings: dict[str, Any] = {
        "sources": [path.name for path in data],
        "dates": found.dates,
        "hats": found.hats,
        "min_users": min_users,
        "upper_bound": policy.upper_bound / 1000,
        **({} if policy.value_name is None else {"unit": policy.released_value.unit}),
        "daily_limits": totals,
        "runs": runs,
        "share": share,
        "objective": objective,
        "cap": cap,
        "estimators": [*found.results],
        **({} if scheduled is None else {"scheduled_cells": len(scheduled.speeds)}),
    }
    title = f"{dates}: {found.hats:,} HATs with {min_users} users or more"
    report_of(found, title, settings).write(as_json=as_json, output=output)


@click.command(
    short_help="The hybrid model: some devices do not trust the operator.",
    epilog="Example:  hatcast evaluate hybrid --share 0.005 --plot out.svg",
)
@data_options("Recordings instead of --users and --sigma, as one stream. Reads raw data, not private.")
@click.option("--hat", help="cell/date/slot of --data; default: the HAT with the most users.")
@click.option("--users", type=click.IntRange(2, 10**6), show_default="10000", help="Users of both groups.")
@click.option("--share", type=FiniteRange(1e-6, 0.999999), default=0.05, help="Share of users who trust the operator.")
@click.option(
    "--sigma", show_default="0.109,0.289,0.456", help="Standard deviations of users' means, as fractions of U."
)
@click.option("--sigma-local", type=FiniteRange(0, 0.5), help="That of local users, if different.")
@click.option(
    "--gap", type=FiniteRange(-1, 1), show_default="0", help="How much faster local users are, as a fraction of U."
)
@click.option(
    "--eps", "epsilon", type=FiniteRange(1e-3, 1e3), default=1.0, help="Epsilon of one release; it is varied, too."
)
@click.option("--runs", type=click.IntRange(2, 1_000_000), default=10_000)  # in memory at once
@click.option("--estimators", default="kvh,pwh", help="List of estimators of the hybrid model.")
@_SEED
@plot_option
@output_option("the figures, as rows", has_places=False)
@json_option
def hybrid(  # noqa: PLR0913 - options by name
    *,
    data: tuple[Path, ...],
    feed_format: FormatChoice | None,
    config: Path | None,
    hat: str | None,
    users: int | None,
    share: float,
    sigma: str | None,
    sigma_local: float | None,
    gap: float | None,
    epsilon: float,
    runs: int,
    estimators: str,
    seed: int,
    plot_file: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Compare the hybrid model with its baselines, by the lemmas and by simulation.

    Nothing that it prints is private.
    """
    from hatcast.lab.evaluate import hybrid as model
    from hatcast.lab.evaluate.hybrid_report import report_of

    given = {"--users": users, "--sigma": sigma, "--sigma-local": sigma_local, "--gap": gap}
    for option, value in given.items():
        if data and value is not None:
            raise click.UsageError(f"{option} cannot be combined with --data, which measures it")
    if not data and (config or hat):
        raise click.UsageError("--config and --hat are for --data")
    compared = model.parse_estimators(estimators)
    sigmas = model.parse_sigmas(model.SIGMAS if sigma is None else sigma)
    users, gap, own = users or 10_000, gap or 0.0, None
    if feed_format is None:
        click.echo("a simulation: nothing that it prints is private", err=True)
    else:
        own = model.measured(*recorded_hat(data, feed_format, config, hat), share, epsilon)
        users, share, sigmas = round(own.case.users), own.case.share, [own.case.sigma]
    cases = [model.Case(users, share, epsilon, each, each, gap) for each in sigmas]
    if sigma_local is not None:
        cases = [replace(case, sigma_local=sigma_local) for case in cases]
    model.check_cases(cases)
    middle = cases[len(cases) // 2]
    with progress_bars() as add_bar:
        bar = add_bar("simulating", len(cases) * sum(map(len, model.AXES.values())))
        curves = model.curves(cases, compared, runs, seed, bar)
    settings = {
        "users": users,
        "share": share,
        "eps": epsilon,
        "sigma": sigmas,
        "sigma_local": sigma_local,
        "gap": gap,
        "runs": runs,
        "seed": seed,
        "estimators": [each.name for each in compared],
        "delta": model.DELTA,
        "heatmap_sigma": middle.sigma,
        "amplified_sigma": middle.sigma,
    }
    title = f"hybrid model: {users:,} users, {share:.3g} of them central, eps {epsilon:g}"
    maps, amplified = model.heatmaps(middle, compared), model.amplifications(middle)
    report = report_of(curves, maps, amplified, title, settings, own)
    report.write(as_json=as_json, output=output, plot_file=plot_file)


@click.command(
    short_help="K-means in the hybrid model, on synthetic data.",
    epilog="Example:  hatcast evaluate clusters --iterations 6 --runs 6 --plot out.svg",
)
@click.option("--clusters", "number", type=click.IntRange(1, 100), default=4)
@click.option("--iterations", type=click.IntRange(1, 100), default=5, help="Epsilon is split among them.")
@click.option("--epsilon", type=FiniteRange(0.01, 10), default=7.0, help="Total epsilon of a user.")
@click.option(
    "--local",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    default=0.99,
    help="Share of users that are local devices.",
)
@click.option("--dimensions", type=click.IntRange(1, 100), default=2)
@click.option("--users", type=click.IntRange(2, 1_000_000), default=40_000, help="Users of each cluster.")
@click.option("--runs", type=click.IntRange(2, 1_000_000), default=10)
@_SEED
@plot_option
@json_option
def clusters(  # noqa: PLR0913 - options by name
    *,
    number: int,
    iterations: int,
    epsilon: float,
    local: float,
    dimensions: int,
    users: int,
    runs: int,
    seed: int,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Compare private K-means with the result without noise, on data like those of the paper (docs/cluster.md).

    Nothing that it prints is private.
    """
    from hatcast.lab.evaluate.clusters import CONTENDERS, TOP, compare_clusters, report_of
    from hatcast.stream.kmeans.setting import ClusteringSetting

    click.echo("a simulation: nothing that it prints is private", err=True)
    setting = ClusteringSetting(dimensions, TOP, number, iterations, epsilon, seed)
    with progress_bars() as add_bar:
        bar = add_bar("simulating", runs)
        scores = compare_clusters(setting, users, local, runs, range(1, iterations + 1), bar)
    settings: dict[str, Any] = {
        "clusters": number,
        "dimensions": dimensions,
        "users_of_each": users,
        "local": local,
        "epsilon": epsilon,
        "runs": runs,
        "seed": seed,
        "contenders": [*CONTENDERS],
    }
    title = (
        f"{number} clusters of {users:,} users in {dimensions} dimensions, {1 - local:.3g} of them central,"
        f" epsilon {epsilon:g}"
    )
    report_of(scores, title, settings).write(as_json=as_json, plot_file=plot_file)
