"""`hatcast survey`"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Final, TypedDict, Unpack

import click
import msgspec
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn

from hatcast.agents.cli.options import days_of, json_option, plot_option
from hatcast.agents.clock import now_ms
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.cells_file import CellsFile, Chosen
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FORMATS

_EPSILONS: Final = (0.001, 10.0)  # above 10 a choice is hardly private, as of a policy


class _Options(TypedDict):
    """What click hands over."""

    files: tuple[Path, ...]
    feed_format: str
    config: Path | None
    timezone: str | None
    hours: tuple[int, int] | None
    days: tuple[date, date] | None
    resolution: int | None
    users: Fraction
    cells: Path | None
    private: float | None
    candidates: Path | None
    max_hats: int | None
    plot_file: Path | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Private:
    """What a private selection needs."""

    epsilon: float
    candidates: Path
    days: tuple[date, date]
    target: Path


def _users_of(_: click.Context, __: click.Parameter, text: str) -> Fraction:
    try:
        users = Fraction(text)
    except (ValueError, ZeroDivisionError):
        users = Fraction(-1)
    if not 0 <= users <= 10**6:
        raise click.BadParameter("write a number of users, such as 10")
    return users


def _epsilon_of(_: click.Context, __: click.Parameter, epsilon: float | None) -> float | None:
    least, most = _EPSILONS
    if epsilon is not None and not (math.isfinite(epsilon) and least <= epsilon <= most):
        raise click.BadParameter(f"write an epsilon from {least:g} to {most:g}")
    return epsilon


def _hours_of(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        first, end = map(int, text.split(","))
    except ValueError:
        first, end = 0, 0
    if not 0 <= first < end <= 24:
        raise click.BadParameter('write two hours, such as "9,21": slots that start in [9, 21)')
    return first, end


@click.command(epilog="Example:  hatcast survey 2016-11-*.csv.gz --format capmetro --cells cells.txt")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--format", "feed_format", type=click.Choice([*FORMATS]), required=True, help="What the files hold.")
@click.option("--config", type=click.Path(path_type=Path), help="Whose policy makes the HATs; else the report's.")
@click.option("--timezone", help="Instead of the policy's, such as Asia/Kolkata.")
@click.option("--hours", callback=_hours_of, metavar="FIRST,END", help="Instead of the policy's, such as 9,21.")
@click.option("--days", callback=days_of, metavar="FIRST,LAST", help="Local dates to count; else those with readings.")
@click.option("--resolution", type=click.IntRange(0, 15), help="Of the cells to list, instead of the policy's.")
@click.option("--users", default="10", show_default=True, callback=_users_of, help="A busy cell has more a day.")
@click.option("--cells", type=click.Path(path_type=Path), help="Write the busy cells there, for policy.cells.")
@click.option("--private", type=float, callback=_epsilon_of, metavar="EPS", help="Choose --candidates with noise.")
@click.option("--candidates", type=click.Path(path_type=Path), help='Of --private: a file with source = "public".')
@click.option("--max-hats", type=click.IntRange(1, 65535), help="K, instead of the policy's max_hats_per_day.")
@plot_option
@json_option
def command(**given: Unpack[_Options]) -> None:
    """Which resolution, which cells, which K? Counts recordings as HATs of H3 resolutions 5 to 9.

    Reads raw data, and nothing that it prints or writes is private. Readings count as in `hatcast batch`, but whatever
    `cells`, `from` and max_hats_per_day say. A busy cell has a mean of more than --users vehicles a day in every slot
    of the hours; a policy of relation replace may list such cells.

    With --private EPS --candidates FILE --days FIRST,LAST it tells nothing but which candidates are busy, with noise.
    That is private, at the price of EPS on each of these days: the ledger of a policy that lists these
    cells books it there.

    Any number of readings fits: they wait in TMPDIR, some 5 bytes each, in a folder that is deleted at the end.
    """
    private = _private_of(given)
    _check_targets(given)
    if private is None:
        _survey(given)
    else:
        _select(given, private)


def _private_of(given: _Options) -> _Private | None:
    epsilon, candidates, days, target = given["private"], given["candidates"], given["days"], given["cells"]
    if epsilon is None:
        if candidates is not None:
            raise click.UsageError("--candidates belongs to --private")
        return None
    if candidates is None or days is None or target is None:
        raise click.UsageError("--private needs --candidates, --days (which are charged) and --cells")
    if given["plot_file"] is not None:
        raise click.UsageError("--plot is not private and --private is: choose one")
    return _Private(epsilon, candidates, days, target)


def _check_targets(given: _Options) -> None:
    # Before hours of reading, and before a draw that nobody could keep.
    target = given["cells"]
    if target is not None and target.exists():
        raise HatcastError(f"--cells: {target} is there already; name another file, or remove that one")
    for option, path in (("--cells", target), ("--plot", given["plot_file"])):
        if path is not None and not path.parent.is_dir():
            raise HatcastError(f"{option}: there is no folder {path.parent}; make it, or name another")


def _survey(given: _Options) -> None:
    click.echo("reads raw data, not private; nor is anything that it prints or writes", err=True)
    from hatcast.agents.research.survey import run, show

    policy, users, target = _policy(given), given["users"], given["cells"]
    with _progress() as progress:
        job = run.Job(given["files"], FORMATS[given["feed_format"]], policy, given["days"], users, now_ms(), progress)
        found = run.survey(job)
    if given["as_json"]:
        click.echo(msgspec.json.encode(show.survey_json(found, policy, users)))
    else:
        Console().print(show.table_of(found, policy, users))
    if given["plot_file"] is not None:
        show.plot(found, policy, given["plot_file"])
    if target is None:
        return
    if not found.busy:
        raise HatcastError(
            f"--cells: no cell of resolution {policy.h3_resolution} has more than {float(users):g} users a day in"
            " every slot; lower --users or --resolution, or narrow --hours"
        )
    what = show.busy(policy, users, found.days)
    _write(target, CellsFile("survey", frozenset(found.busy)).text([f"not private: cells with {what}"]))
    click.echo(f'{target}: {len(found.busy):,} cells, source = "survey": for relation = "replace" only', err=True)


def _select(given: _Options, private: _Private) -> None:
    click.echo("reads raw data; only the choice of candidates is private, for what it costs", err=True)
    from hatcast.agents.research.survey import run, show
    from hatcast.agents.research.survey.settings import public_candidates
    from hatcast.stream.mechanisms.system import SystemNoise

    policy, users, target = _policy(given), given["users"], private.target
    candidates = public_candidates(private.candidates, policy.h3_resolution)
    with _progress() as progress:
        job = run.Job(given["files"], FORMATS[given["feed_format"]], policy, private.days, users, now_ms(), progress)
        chosen = run.select_privately(job, private.days, candidates, private.epsilon, SystemNoise())
    what, charge = show.busy(policy, users, private.days), show.charge(private.days, private.epsilon)
    kept = f"{len(chosen.kept):,} of {chosen.candidates:,} candidates"
    listed = CellsFile("private", frozenset(chosen.kept), Chosen(private.epsilon, *private.days))
    _write(target, listed.text([f"{kept}, those with {what}, with noise", charge]))
    click.echo(charge, err=True)
    if given["as_json"]:
        selection = show.selection_json(chosen, policy, users, private.days, private.epsilon)
        click.echo(msgspec.json.encode(selection))
        return
    click.echo(
        f'{target}: {kept}, source = "private": for relation = "replace" only; noise of scale {chosen.scale:.3g} on '
        f"each mean of daily users, of vehicles within K = {policy.max_hats_per_day} HATs a day"
        + ("" if chosen.kept else "; no policy takes a file without cells")
    )


def _policy(given: _Options) -> Policy:
    from hatcast.agents.research.survey.settings import survey_policy

    changed = {"timezone": given["timezone"], "hours": given["hours"], "h3_resolution": given["resolution"]}
    instead = {key: value for key, value in changed.items() if value is not None}
    return survey_policy(given["config"], given["feed_format"], instead, given["max_hats"])


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise HatcastError(f"--cells: {target} cannot be written ({error.strerror}); name another file") from None


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """Words on standard error, where that is a terminal. Yields: what was done, and how much of it."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def done(what: str, more: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=None)
            bar.advance(tasks[what], more)

        yield done
