"""`hatcast plan`: choose the keys of a tracker from counts."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import click
import msgspec
from rich.console import Console

from hatcast.agents.cli.options import epsilons_of, json_option, plot_option
from hatcast.agents.cli.progress import progress_bars
from hatcast.agents.cli.recordings import check_recordings, checked_format, format_options, more_argument, policy_option
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import Format, FormatChoice

if TYPE_CHECKING:  # imported when it is needed, so that --help is fast
    from hatcast.agents.research.plan.counts import Counts
    from hatcast.agents.research.plan.grid import Plan

_TOTALS: Final = "2,5,10,20,40"
_WRITTEN: Final = 5.0
_MIN_USERS: Final = 3


class _Options(TypedDict):
    """Parsed command-line options; None: not given."""

    data: tuple[Path, ...]
    more: tuple[Path, ...]
    feed_format: FormatChoice | None
    counts: Path | None
    config: Path | None
    min_users: int | None
    daily_limit: str
    objective: str
    target: Path | None
    written_limit: float
    plot_file: Path | None
    as_json: bool


@click.command(epilog="Example:  hatcast plan --data 2016-11-2*.csv.gz --format capmetro --write hatcast.toml")
@click.option(
    "--data",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE...",
    help="Recordings, as one stream. Only who was where and how often is used, no speed.",
)
@more_argument
@format_options(of="recordings")
@click.option(
    "--counts",
    type=click.Path(path_type=Path),
    help="A CSV file instead of --data, such as a timetable: date,hour,cell,vehicle,readings.",
)
@policy_option
@click.option(
    "--min-users",
    type=click.IntRange(1),
    help="HATs with fewer users do not count.  [default: that of --config, or 3]",
)
@click.option(
    "--daily-limit",
    metavar="EPS,...",
    default=_TOTALS,
    show_default=True,
    help="Total epsilons of a bus and day to plan for.",
)
@click.option(
    "--objective",
    type=click.Choice([each.value for each in Objective]),
    default=Objective.CELLS.value,
    show_default=True,
    help="What the end of a day makes accurate.",
)
@click.option(
    "--write",
    "target",
    type=click.Path(path_type=Path),
    help="Write the keys of one plan into this hatcast.toml; its comments stay.",
)
@click.option(
    "--write-limit", "written_limit", type=float, default=_WRITTEN, show_default=True, help="The plan that is written."
)
@plot_option
@json_option
def command(**given: Unpack[_Options]) -> None:
    """Choose the keys of a tracker, and say which errors to expect, from counts alone.

    For each total the queries of whole days are designed by the code of releases, without a speed and without noise:
    the variances of the tracker's model depend on counts only. The given days are repeated up to a month.

    Counts are public under relation replace, so what is printed is as public as they are.
    """
    from hatcast.agents.research.plan import grid, show

    totals = sorted(epsilons_of("--daily-limit", given["daily_limit"], _TOTALS))
    _check_usage(given, totals)
    text = None if given["target"] is None else _read(given["target"])
    policy, read = _source(given)
    upper_bound, unit = policy.upper_bound / 1000, policy.released_value.unit
    with progress_bars() as add_bar:
        counts, source = _counts(given, policy, read, add_bar("reading", None))
        objective = Objective(given["objective"])
        plans = grid.plan(counts, upper_bound, totals, objective, add_bar("planning", len(totals)))
    title = f"{source}: {len(counts.days)} days, {counts.hats:,} HATs"
    if given["plot_file"] is not None:
        show.plot(plans, title, given["plot_file"], unit)
    if given["target"] is not None and text is not None:
        _write(given["target"], text, next(each for each in plans.plans if each.total == given["written_limit"]))
    if not given["as_json"]:
        Console().print(show.table_of(plans, title, unit))
        return
    settings: dict[str, Any] = {
        "source": source,
        "days": len(counts.days),
        "hats": counts.hats,
        "cells": counts.cells,
        "upper_bound": upper_bound,
        **({} if policy.value_name is None else {"unit": unit}),
        "objective": objective.value,
    }
    click.echo(msgspec.json.encode({"settings": settings, **show.as_json(plans)}))


def _check_usage(given: _Options, totals: list[float]) -> None:
    if (given["counts"] is None) == (not given["data"]):
        raise click.UsageError("name one of --counts and --data")
    check_recordings(given["data"], given["more"], given["feed_format"])
    if given["counts"] is not None and given["feed_format"] is not None:
        raise click.UsageError("--format is for --data")
    if given["target"] is not None and given["written_limit"] not in totals:
        raise click.UsageError(f"--write-limit {given['written_limit']:g} is not one of --daily-limit")


def _source(given: _Options) -> tuple[Policy, Path | Format]:
    """Return the policy, and the file of counts or the format of the recordings."""
    from hatcast.agents.research.days import policy_of_recordings

    choice = given["feed_format"]
    policy = policy_of_recordings(given["config"], "" if choice is None else choice.name)
    if given["counts"] is not None:
        return policy, given["counts"]
    assert choice is not None, "checked by _check_usage"  # noqa: S101 - for mypy
    click.echo("reads raw data; what it prints follows from counts alone", err=True)
    return policy, checked_format(choice, policy, (*given["data"], *given["more"]))


def _counts(
    given: _Options, policy: Policy, read: Path | Format, progress: Callable[[int], None]
) -> tuple["Counts", str]:
    """Return counts of the first days, and the name of the source."""
    from hatcast.agents.research.plan.counts import counts_of_file, counts_of_recordings

    min_users = given["min_users"] or (_MIN_USERS if given["config"] is None else policy.min_users)
    if isinstance(read, Path):
        counts, source = counts_of_file(read, min_users), read.name
    else:
        paths = (*given["data"], *given["more"])
        counts = counts_of_recordings(paths, read, policy, min_users, progress)
        source = ", ".join(path.name for path in paths)
    if not counts.days:
        raise HatcastError(f"{source} has no HAT with {min_users} users; name more days, or a smaller --min-users")
    return counts.first_days(), source


def _read(path: Path) -> str:
    import tomlkit  # noqa: F401 - a plan takes minutes: if this extra is missing, say so before

    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HatcastError(f"--write: {path}: no such file; create it with `hatcast init`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HatcastError(f"--write: {path} cannot be read ({type(error).__name__}); name a readable file") from None


def _write(path: Path, text: str, plan: "Plan") -> None:
    from hatcast.agents.config.edit import with_table_keys, without_keys, without_other_keys
    from hatcast.agents.config.template import write_template
    from hatcast.agents.research.plan.show import keys_json

    text = without_other_keys(
        with_table_keys(text, "policy.estimator", {"name": "tracker"}), "policy.estimator", "name"
    )
    # A tracker has no epsilon of a HAT, and its cap is a bound of memory.
    text = without_keys(text, "policy.privacy", "epsilon", "max_hats_per_day")
    text = with_table_keys(text, "policy.privacy", {"daily_limit": plan.total})
    write_template(with_table_keys(text, "policy.tracker", keys_json(plan.keys)), path, force=True)
    click.echo(f"wrote the plan for a total of {plan.total:g} into {path}", err=True)
