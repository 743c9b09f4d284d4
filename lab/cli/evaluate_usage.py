"""Options of `hatcast evaluate`, and which of them can be combined."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypedDict

import click

from hatcast.agents.cli.files import check_one_output
from hatcast.agents.cli.recordings import check_recordings
from hatcast.lab.evaluate.inputs import Scaling
from hatcast.stream.readings.formats import FormatChoice

_SHARES: Final = (1e-6, 0.999999)  # of users who trust
_ONE_HAT, _HYBRID, _DAYS = "one HAT", "--hybrid", "--daily-limit"
_USED_BY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "counts": (_ONE_HAT,),
        "values": (_ONE_HAT,),
        "hat": (_ONE_HAT, _HYBRID),
        "scaling": (_ONE_HAT,),
        "data": (_ONE_HAT, _HYBRID, _DAYS),
        "feed_format": (_ONE_HAT, _HYBRID, _DAYS),
        "config": (_ONE_HAT, _HYBRID, _DAYS),
        "users": (_HYBRID,),
        "sigma": (_HYBRID,),
        "sigma_local": (_HYBRID,),
        "gap": (_HYBRID,),
        "share": (_HYBRID, _DAYS),
        "objective": (_DAYS,),
        "cap": (_DAYS,),
        "min_users": (_DAYS,),
        "eps": (_ONE_HAT, _HYBRID),
        "seed": (_ONE_HAT, _HYBRID),
        "plot_file": (_ONE_HAT, _HYBRID),
    }
)
"""the comparisons that an option is for; the other options are for all"""


class Options(TypedDict):
    """Parsed command-line options; None: not given."""

    counts: Path | None
    values: str | None
    dimensions: int
    data: tuple[Path, ...]
    more: tuple[Path, ...]
    feed_format: FormatChoice | None
    config: Path | None
    hat: str | None
    scaling: Scaling | None
    worst_case: bool
    hybrid: bool
    users: int | None
    share: float | None
    sigma: str | None
    sigma_local: float | None
    gap: float | None
    daily_limit: str | None
    objective: str | None
    cap: int | None
    min_users: int | None
    eps: str | None
    runs: int | None
    estimators: str | None
    seed: int | None
    plot_file: Path | None
    as_json: bool
    output: Path | None


def check_usage(given: Options) -> None:
    """Raise UsageError if options are missing or cannot be combined."""
    check_one_output(given["output"], as_json=given["as_json"])
    if given["hybrid"] and given["daily_limit"] is not None:
        raise click.UsageError("--daily-limit cannot be combined with --hybrid")
    comparison = _HYBRID if given["hybrid"] else _ONE_HAT if given["daily_limit"] is None else _DAYS
    for key, comparisons in _USED_BY.items():
        if given[key] not in (None, ()) and comparison not in comparisons:  # type: ignore[literal-required]  # Options
            option = {"feed_format": "format", "plot_file": "plot"}.get(key, key).replace("_", "-")
            raise click.UsageError(
                f"--{option} needs {' or '.join(comparisons)}"
                if comparison == _ONE_HAT
                else f"--{option} cannot be combined with {comparison}"
            )
    if given["worst_case"] and comparison != _ONE_HAT:
        raise click.UsageError(f"--worst-case cannot be combined with {comparison}")
    if given["dimensions"] > 1 and comparison != _ONE_HAT:
        raise click.UsageError(f"--dimensions cannot be combined with {comparison}")
    if given["runs"] == 1 and comparison != _DAYS:
        raise click.UsageError("--runs takes 2 or more")
    _check_data(given, comparison)
    if comparison == _HYBRID:
        _check_hybrid(given)
    elif comparison == _ONE_HAT:
        _check_one_hat(given)


def _check_data(given: Options, comparison: str) -> None:
    check_recordings(given["data"], given["more"], given["feed_format"])
    if comparison == _DAYS and not given["data"]:
        raise click.UsageError("--daily-limit needs --data")


def _check_hybrid(given: Options) -> None:
    share = given["share"]
    if given["data"]:
        measured = {"users": given["users"], "sigma": given["sigma"], "sigma-local": given["sigma_local"]}
        for option, value in {**measured, "gap": given["gap"]}.items():
            if value is not None:
                raise click.UsageError(f"--{option} cannot be combined with --hybrid --data, which measures it")
    elif given["feed_format"] or given["config"] or given["hat"]:
        raise click.UsageError("--format, --config and --hat are for --data")
    if share is not None and not _SHARES[0] <= share <= _SHARES[1]:
        raise click.UsageError(f"--share takes {_SHARES[0]:g} to {_SHARES[1]:g} with --hybrid")


def _check_one_hat(given: Options) -> None:
    if (given["counts"] is None) == (not given["data"]):
        raise click.UsageError("name one of --counts, --data and --hybrid")
    if given["counts"] is not None and (given["feed_format"] or given["config"] or given["hat"]):
        raise click.UsageError("--format, --config and --hat are for --data")
    if given["dimensions"] > 1 and (given["data"] or given["values"] not in (None, "user_effects")):
        raise click.UsageError("--dimensions is for --counts, and only for --values user_effects")
