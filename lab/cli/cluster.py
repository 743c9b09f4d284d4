"""`hatcast cluster`: private K-means over recordings. `hatcast cluster live` charges a ledger, and is of agents."""

from pathlib import Path

import click

from hatcast.agents.cli.cluster_live import UNITS, blend_option, clustering_options, live, report_of
from hatcast.agents.cli.options import PATH, FiniteRange, config_option, json_option, plot_option
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.config.settings import load_settings
from hatcast.agents.progress import progress_bars
from hatcast.stream.readings.formats import FormatChoice


@click.group(epilog="Each has an example:  hatcast cluster offline --help")
def command() -> None:
    """Compute private K-means: typical days of buses.

    Each vehicle's day (or vehicle, by the policy's unit) is a vector of its mean speeds by slot. The output is K noisy
    centres, at a cost of --epsilon for each user.
    """


command.add_command(live)


@command.command(
    short_help="Recordings; no ledger records the cost.",
    epilog="Example:  hatcast cluster offline day.csv.gz --format capmetro --epsilon 4 --slots 09:00,18:00",
)
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@format_options(files="files", of="files")
@config_option
@clustering_options
@click.option(
    "--local",
    type=FiniteRange(0, 1),
    default=0.0,
    help="Share of users that are local devices, which add noise to what they send.",
)
@blend_option
@plot_option
@json_option
def offline(  # noqa: PLR0913 - options by name
    *,
    files: tuple[Path, ...],
    feed_format: FormatChoice,
    config: Path,
    epsilon: float,
    clusters: int,
    iterations: int,
    slots: str | None,
    seed: int,
    local: float,
    blend: str,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Compute private K-means of recordings.

    No ledger records the cost of --epsilon for each user, and every further run adds to it.
    """
    from hatcast.agents.cluster.release import (
        ClusterBlend,
        ClusteringOptions,
        check_relation,
        read_vectors,
        release,
        select_slots,
    )
    from hatcast.lab.days import single_valued
    from hatcast.stream.kmeans.setting import ClusteringSetting, top_of
    from hatcast.stream.mechanisms.system import SystemNoise

    settings = load_settings(config)
    policy = single_valued(settings.policy, config)
    check_relation(policy)
    names = select_slots(policy, None if slots is None else slots.split(","))
    # All public parameters are checked before any file is read.
    setting = ClusteringSetting(len(names), top_of(policy), clusters, iterations, epsilon, seed)
    options = ClusteringOptions(setting, local, ClusterBlend(blend))
    feed = checked_format(feed_format, policy, files)
    with progress_bars() as add_bar:
        vectors = read_vectors(files, feed, settings, names, add_bar("reading", None))
        released = release(vectors, policy, options, SystemNoise())
    click.echo(
        f"this run costs {UNITS.get(policy.unit, 'each user')} epsilon {epsilon:g}. No ledger counts it: every further"
        " run, and every other release of the same readings, adds to it",
        err=True,
    )
    report_of(released.record()).write(as_json=as_json, plot_file=plot_file)
