"""`hatcast survey`: find a resolution and cells in recordings."""

import re
from fractions import Fraction
from typing import Any

import click

from hatcast.agents.cli.options import (
    PATH,
    FiniteRange,
    days_of,
    found_config,
    json_option,
    map_option,
    optional_config_option,
    parsed,
    plot_option,
)
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.cli.report import output_option
from hatcast.agents.clock import now_ms
from hatcast.agents.progress import counters
from hatcast.agents.tables.files import check_target, new_file
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.cells_file import CellsFile, SelectionCost
from hatcast.stream.policy.policy import Policy


def _users_of(text: str) -> Fraction:
    # 1e999999999 as a fraction would fill the memory
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,9}|/0*[1-9][0-9]{0,8})?", text) or Fraction(text) > 10**6:
        raise ValueError
    return Fraction(text)


def _hours_of(text: str) -> tuple[int, int]:
    first, end = map(int, text.split(","))
    if not 0 <= first < end <= 24:
        raise ValueError
    return first, end


@click.command(epilog="Example:  hatcast survey 2016-11-*.csv.gz --format capmetro --cells cells.txt")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@format_options(files="files", of="files")
@optional_config_option
@click.option("--timezone", help="Time zone instead of the policy's, such as Asia/Kolkata.")
@click.option(
    "--hours",
    callback=parsed(_hours_of, 'write two hours, such as "9,21": slots that start in [9, 21)'),
    metavar="FIRST,END",
    help="Hours instead of the policy's, such as 9,21.",
)
@click.option(
    "--days", callback=days_of, metavar="FIRST,LAST", help="Local dates to count; default: those with readings."
)
@click.option(
    "--resolution", type=click.IntRange(0, 15), help="Resolution of the cells to list, instead of the policy's."
)
@click.option(
    "--users",
    default="10",
    callback=parsed(_users_of, "write a number of users, such as 10"),
    help="A busy cell has more than this a day.",
)
@click.option(
    "--cells",
    type=PATH,
    help="Write the busy cells to this file, for policy.cells or, of a finer --resolution, policy.fine_cells.",
)
@click.option(
    "--private",
    type=FiniteRange(0.001, 10.0),  # above 10 a selection is hardly private; the same limit as in a policy
    metavar="EPS",
    help="Select busy cells among --candidates with noise.",
)
@click.option("--candidates", type=PATH, help='With --private: a cells file with source = "public".')
@click.option("--max-hats", type=click.IntRange(1, 65535), help="K, instead of the policy's max_hats_per_day.")
@plot_option
@map_option
@output_option("the figures of each resolution, as GeoJSON the cells,")
@json_option
def command(**given: Any) -> None:
    """Count recordings as HATs of H3 resolutions 5 to 9, to choose a resolution, cells and K.

    Reads raw data, and nothing that it prints or writes is private. Readings count as in `hatcast batch`, but ignoring
    `cells`, `from` and max_hats_per_day. A busy cell has a mean of more than --users vehicles a day in every slot of
    the hours; a policy with relation replace may list such cells.

    With --private EPS --candidates FILE --days FIRST,LAST it only selects the busy candidates, with noise. The
    selection is private and costs EPS on each of these days: a policy that lists these cells charges it in its ledger.

    With -o the figures are written to a file and not printed: a row for each resolution; as GeoJSON the cells of the
    policy's resolution, each busy or not; with --private in each format the selected cells.

    Any number of readings fits: they are stored in TMPDIR, about 5 bytes each, in a folder that is deleted at the end.
    Needs hatcast[research].
    """
    is_private, target = given["private"] is not None, given["cells"]
    if given["candidates"] is not None and not is_private:
        raise click.UsageError("--candidates is for --private")
    if is_private and None in (given["candidates"], given["days"], target):
        raise click.UsageError("--private needs --candidates, --days (which are charged) and --cells")
    drawn = [(f"--{each}", given[f"{each}_file"]) for each in ("plot", "map") if given[f"{each}_file"] is not None]
    if is_private and drawn:
        raise click.UsageError(f"{drawn[0][0]} is not private and --private is: choose one")
    # Checked before hours of reading, and before a draw whose result could not be stored.
    if target is not None:
        check_target(target, "--cells", [target.suffix.lower()])
    for option, path in drawn:
        if not path.parent.is_dir():
            raise HatcastError(f"{option}: folder {path.parent} does not exist; create it, or name another")
    (_select if is_private else _survey)(given)


def _survey(given: dict[str, Any]) -> None:
    click.echo("reads raw data; nothing that it prints or writes is private", err=True)
    from hatcast.lab.survey import report, run

    policy, users, target = _policy(given), given["users"], given["cells"]
    feed = checked_format(given["feed_format"], policy, given["files"])
    with counters() as progress:
        job = run.SurveyJob(given["files"], feed, policy, given["days"], users, now_ms(), progress)
        counts = run.survey(job)
    if (hint := counts.spans.hint()) is not None:
        click.echo(f"hint: {hint}", err=True)
    output = given["output"]
    places = output is not None and output.suffix.lower() == ".geojson"
    report.report_of(counts, policy, users, places=places).write(
        as_json=given["as_json"], output=output, plot_file=given["plot_file"]
    )
    if given["map_file"] is not None:
        report.draw_map(counts, policy, users, given["map_file"])
    if target is None:
        return
    if not counts.busy:
        raise HatcastError(
            f"--cells: no cell of resolution {policy.h3_resolution} has more than {float(users):g} users a day in"
            " every slot; lower --users or --resolution, or narrow --hours"
        )
    criterion = report.busy_criterion(policy, users, counts.days)
    with new_file(target, "--cells") as file:
        file.write(CellsFile("survey", frozenset(counts.busy)).text([f"not private: cells with {criterion}"]).encode())
    click.echo(f'{target}: {len(counts.busy):,} cells, source = "survey": for relation = "replace" only', err=True)


def _select(given: dict[str, Any]) -> None:
    click.echo("reads raw data; only the selection of candidates is private, at its cost", err=True)
    from hatcast.lab.survey import report, run
    from hatcast.stream.mechanisms.system import SystemNoise

    policy, users, target = _policy(given), given["users"], given["cells"]
    epsilon, days = given["private"], given["days"]
    candidates = run.read_public_candidates(given["candidates"], policy.h3_resolution)
    feed = checked_format(given["feed_format"], policy, given["files"])
    with counters() as progress:
        job = run.SurveyJob(given["files"], feed, policy, days, users, now_ms(), progress)
        chosen = run.select_privately(job, days, candidates, epsilon, SystemNoise())
    criterion, charge = report.busy_criterion(policy, users, days), report.charge_notice(days, epsilon)
    selected = f"{len(chosen.selected):,} of {chosen.candidates:,} candidates"
    listed = CellsFile("private", frozenset(chosen.selected), SelectionCost(epsilon, *days), policy.timezone)
    with new_file(target, "--cells") as file:
        file.write(listed.text([f"{selected}, those with {criterion}, with noise", charge]).encode())
    click.echo(charge, err=True)
    found, output = report.selection_report(chosen, policy, users, days, epsilon), given["output"]
    if output is not None and chosen.selected:
        found.write(as_json=False, output=output)
    elif output is not None:
        click.echo(f"{output} is not written: no cell was selected", err=True)
    if given["as_json"]:
        found.write(as_json=True)
        return
    click.echo(
        f'{target}: {selected}, source = "private": for relation = "replace" only; noise of scale {chosen.scale:.3g} '
        f"on each mean of daily users, of vehicles within K = {policy.max_hats_per_day} HATs a day"
        + ("" if chosen.selected else "; no policy takes a file without cells")
    )


def _policy(given: dict[str, Any]) -> Policy:
    from hatcast.lab.survey.run import survey_policy

    overrides = {"timezone": given["timezone"], "hours": given["hours"], "h3_resolution": given["resolution"]}
    given_overrides = {key: value for key, value in overrides.items() if value is not None}
    return survey_policy(found_config(given["config"]), given["feed_format"].name, given_overrides, given["max_hats"])
