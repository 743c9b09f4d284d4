"""Option `-o FILE`: write records or figures to a file whose extension chooses the format."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

from hatcast.agents.tables.columns import Layout

_FORMATS: Final = ".jsonl, .csv, .parquet"


_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Decorator(Protocol):
    def __call__(self, command: _Command, /) -> _Command: ...


def output_option(contents: str, *, has_places: bool = True) -> _Decorator:
    """Return the option `-o`, checked before the computation.

    contents     what is written, for the help
    has_places   whether it can be drawn on a map, as GeoJSON
    """
    formats = f"{_FORMATS} or .geojson" if has_places else _FORMATS.replace(", .parquet", " or .parquet")

    def check(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
        if path is not None:
            from hatcast.agents.tables.files import check_target

            check_target(path, has_places=has_places)
        return path

    return click.option(
        "-o",
        "--output",
        "output",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=check,
        help=f"Write {contents} to this new file, which ends in {formats} (Parquet: pip install 'hatcast[parquet]').",
    )


def check_one_output(output: Path | None, *, as_json: bool) -> None:
    """Raise UsageError for both `-o` and `--json`."""
    if output is not None and as_json:
        raise click.UsageError("-o writes to a file what --json prints: choose one")


def write_records(path: Path, layout: Layout, records: Iterable[bytes]) -> None:
    """Write records to a file, and their number to standard error. Raises HatcastError."""
    from hatcast.agents.tables.files import open_file

    written = left_out = 0
    with open_file(path, layout) as file:
        for record in records:
            if file.write(record):
                written += 1
            else:
                left_out += 1
    report_written(path, written, left_out)


def write_figures(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of figures to a file, and their number to standard error. Raises HatcastError."""
    from hatcast.agents.tables.figures import figures_of

    write_records(path, *figures_of(rows))


def report_written(path: Path, written: int, left_out: int = 0) -> None:
    """Print the number of rows of a file to standard error."""
    rejected = f"; {left_out:,} are not records of this version, left out" if left_out else ""
    click.echo(f"{path}: {written:,} row{'s' * (written != 1)}{rejected}", err=True)
