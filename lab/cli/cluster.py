"""`hatcast cluster`: private K-means over recordings."""

from datetime import date
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

import click
from click.core import ParameterSource

from hatcast.agents.cli.options import FiniteRange, config_option, json_option, plot_option
from hatcast.agents.cli.progress import progress_bars
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.config.settings import load_settings
from hatcast.stream.readings.formats import FormatChoice

_RELEASE_OPTIONS: Final = {
    "feed_format": "--format",
    "config": "--config",
    "blend": "--blend",
    "slots": "--slots",
    "live": "--live",
}
_EVALUATE_OPTIONS: Final = {"dimensions": "--dimensions", "users": "--users", "runs": "--runs"}
_LIVE_OPTIONS: Final = {
    "date": "--date",
    "round_seconds": "--round-seconds",
    "ledger": "--ledger",
    "state": "--state",
}
_PAPER_EPSILON: Final = 7.0
_PAPER_LOCAL: Final = 0.99


class _Options(TypedDict):
    """Parsed command-line options."""

    files: tuple[Path, ...]
    feed_format: FormatChoice | None
    config: Path
    epsilon: float | None
    clusters: int
    iterations: int
    local: float | None
    blend: str
    slots: str | None
    live: bool
    date: str | None
    round_seconds: float
    ledger: Path | None
    state: Path | None
    evaluate: bool
    dimensions: int
    users: int
    runs: int
    seed: int
    plot_file: Path | None
    as_json: bool


def _local_date(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise click.BadParameter("write YYYY-MM-DD") from None


_EPILOG: Final = """\b
Examples:
  hatcast cluster day.csv.gz --format capmetro --epsilon 4 --slots 09:00,18:00
  hatcast cluster --live --date 2022-01-02 --epsilon 4 --state day.db
"""


@click.command(epilog=_EPILOG)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@format_options(of="files")
@config_option
@click.option(
    "--epsilon",
    type=click.FloatRange(0.01, 10),
    help="Total epsilon of a user; with --evaluate by default 7.",
)
@click.option("--clusters", type=click.IntRange(1, 100), default=4, show_default=True)
@click.option(
    "--iterations", type=click.IntRange(1, 100), default=5, show_default=True, help="Epsilon is split among them."
)
@click.option(
    "--local",
    type=FiniteRange(0, 1),
    help="Share of users that are local devices, which add noise to what they send; by default 0, with --evaluate"
    " 0.99.",
)
@click.option(
    "--blend",
    type=click.Choice(["pwh", "tcm_only", "lm_only"]),
    default="pwh",
    show_default=True,
    help="Both groups (pwh), or only one.",
)
@click.option("--slots", metavar="HH:MM,..", help="Slots: the coordinates.  [default: all slots of the policy's hours]")
@click.option("--live", is_flag=True, help="In rounds, with devices that answer over Kafka: `hatcast device`.")
@click.option("--date", metavar="DATE", callback=_local_date, help="With --live: the local date.")
@click.option(
    "--round-seconds",
    type=FiniteRange(1, 86_400),
    default=60,
    show_default=True,
    help="With --live: how long devices have for an answer.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --live and FILEs: the ledger file of `hatcast batch` that charges their users.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --live: state file of this clustering. The same file and options go on with it, or print its result.",
)
@click.option(
    "--evaluate", is_flag=True, help="Simulate on synthetic data instead, and compare with the result without noise."
)
@click.option("--dimensions", type=click.IntRange(1, 100), default=2, show_default=True, help="With --evaluate.")
@click.option(
    "--users",
    type=click.IntRange(2, 1_000_000),
    default=40_000,
    show_default=True,
    help="Users of each cluster, with --evaluate.",
)
@click.option("--runs", type=click.IntRange(2, 1_000_000), default=10, show_default=True, help="With --evaluate.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True, help="Seed of the start centres."
)
@plot_option
@json_option
def command(**given: Unpack[_Options]) -> None:
    """Compute private K-means of recordings: typical days of buses.

    Each vehicle's day (or vehicle, by the policy's unit) is a vector of its mean speeds by slot. The output is K noisy
    centres, at a cost of --epsilon for each user. No ledger records this cost, and every further run adds to it.

    --live does it for one date, with devices that add their own noise and with trusted users: those of the telemetry
    topic, whom the ledger of the workers charges, or those of FILEs, whom --ledger charges. Without room in the ledger
    it is refused. Begin it before the day is over: a sealed day cannot be charged. The result is printed and sent to
    hats.clusters.

    --evaluate releases nothing: it draws data like those of the paper on K-means in the hybrid model
    (docs/cluster.md), and nothing that it prints is private.
    """
    if given["evaluate"]:
        _reject(_RELEASE_OPTIONS, "is for a release, not for --evaluate")
        if given["files"]:
            raise click.UsageError("--evaluate draws its own data: remove the files")
        if given["local"] in (0, 1):
            raise click.UsageError("--evaluate compares two groups: give a --local between 0 and 1")
        _evaluate(given)
        return
    _reject(_EVALUATE_OPTIONS, "is for --evaluate")
    if given["live"]:
        _reject({"local": "--local"}, "is not for --live: a device is local if it answers")
        _live(given)
        return
    _reject(_LIVE_OPTIONS, "is for --live")
    if not given["files"] or given["feed_format"] is None:
        raise click.UsageError("name files and their --format, or --evaluate")
    if given["epsilon"] is None:
        raise click.UsageError("name the --epsilon that each user pays; nothing is printed without noise")
    _release(given, given["epsilon"], given["feed_format"])


def _live(given: _Options) -> None:
    from hatcast.agents.cli.cluster_live import LiveArguments, run

    day, epsilon, state, files = given["date"], given["epsilon"], given["state"], given["files"]
    if day is None or epsilon is None or state is None:
        raise click.UsageError("--live needs --date, --epsilon and --state")
    if bool(files) != (given["ledger"] is not None) or bool(files) != (given["feed_format"] is not None):
        raise click.UsageError("--live takes trusted users from telemetry, or from FILEs with --format and --ledger")
    if files and given["blend"] == "lm_only":
        raise click.UsageError("--blend lm_only has no trusted users: remove the files")
    run(
        LiveArguments(
            config=given["config"],
            date=day,
            slots=given["slots"],
            epsilon=epsilon,
            clusters=given["clusters"],
            iterations=given["iterations"],
            seed=given["seed"],
            blend=given["blend"],
            state=state,
            round_s=given["round_seconds"],
            files=files,
            feed_format=given["feed_format"],
            ledger=given["ledger"],
            plot_file=given["plot_file"],
            as_json=given["as_json"],
        )
    )


def _reject(options: dict[str, str], reason: str) -> None:
    context = click.get_current_context()
    for name, option in options.items():
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{option} {reason}")


def _release(given: _Options, epsilon: float, feed_format: FormatChoice) -> None:
    from hatcast.agents.cli.cluster_live import UNITS, report_of
    from hatcast.agents.cluster.release import Blend, ClusteringOptions, check_relation, release
    from hatcast.agents.cluster.vectors import read_vectors, select_slots
    from hatcast.lab.days import single_valued
    from hatcast.stream.kmeans.hat_vectors import top_of
    from hatcast.stream.kmeans.setting import Setting
    from hatcast.stream.mechanisms.system import SystemNoise

    settings = load_settings(given["config"])
    policy = single_valued(settings.policy, given["config"])
    check_relation(policy)
    names = given["slots"]
    slots = select_slots(policy, None if names is None else names.split(","))
    # All public parameters are checked before any file is read.
    setting = Setting(len(slots), top_of(policy), given["clusters"], given["iterations"], epsilon, given["seed"])
    options = ClusteringOptions(setting, given["local"] or 0.0, Blend(given["blend"]))
    feed = checked_format(feed_format, policy, given["files"])
    with progress_bars() as add_bar:
        vectors = read_vectors(given["files"], feed, settings, slots, add_bar("reading", None))
        released = release(vectors, policy, options, SystemNoise())
    unit = UNITS.get(policy.unit, "each user")
    click.echo(
        f"this run costs {unit} epsilon {setting.epsilon:g}. No ledger counts it: every further run, "
        "and every other release of the same readings, adds to it",
        err=True,
    )
    report_of(released.record()).write(as_json=given["as_json"], plot_file=given["plot_file"])


def _evaluate(given: _Options) -> None:
    from hatcast.lab.evaluate.clusters import CONTENDERS, TOP, Synthetic, compare_clusters, report_of
    from hatcast.stream.kmeans.setting import Setting

    click.echo("a simulation: nothing that it prints is private", err=True)
    epsilon = _PAPER_EPSILON if given["epsilon"] is None else given["epsilon"]
    synthetic = Synthetic(given["users"], _PAPER_LOCAL if given["local"] is None else given["local"])
    setting = Setting(given["dimensions"], TOP, given["clusters"], given["iterations"], epsilon, given["seed"])
    with progress_bars() as add_bar:
        scores = compare_clusters(
            setting, synthetic, given["runs"], range(1, setting.iterations + 1), add_bar("simulating", given["runs"])
        )
    title = (
        f"{setting.clusters} clusters of {synthetic.users:,} users in {setting.dimensions} dimensions, "
        f"{1 - synthetic.local:.3g} of them central, epsilon {epsilon:g}"
    )
    settings: dict[str, Any] = {
        "clusters": setting.clusters,
        "dimensions": setting.dimensions,
        "users_of_each": synthetic.users,
        "local": synthetic.local,
        "epsilon": epsilon,
        "runs": given["runs"],
        "seed": given["seed"],
        "contenders": [*CONTENDERS],
    }
    report_of(scores, title, settings).write(as_json=given["as_json"], plot_file=given["plot_file"])
