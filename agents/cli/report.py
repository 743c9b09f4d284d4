"""The result of a command, in every form that it can be asked for: a table, JSON, rows of a file, a figure."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hatcast.agents.cli.options import FILE, Function, combined
from hatcast.agents.config.settings import Settings
from hatcast.agents.tables.terminal import print_fitted
from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hatcast.agents.tables.columns import Table as RecordTable
    from hatcast.agents.tables.files import Written
    from hatcast.agents.tables.records import Place


_WRITTEN: Final = "hatcast.written"
_ENCODINGS: Final = ("utf-8", "utf-8-sig", "latin-1", "cp1252")


def output_option(
    contents: str, *, has_places: bool = True, of_records: bool = False
) -> Callable[[Function], Function]:
    """Return the option `-o`, checked before the computation, and those that say how it is written: see `written`.

    The command has `--json` too, and both exclude each other.

    contents     what is written, for the help
    has_places   whether it can be drawn on a map, as GeoJSON
    of_records   whether records are written, which have a short table
    """
    formats = ".jsonl, .csv, .xlsx, .parquet or .geojson" if has_places else ".jsonl, .csv, .xlsx or .parquet"

    def check(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
        if path is not None:
            from hatcast.agents.tables.files import EXTENSIONS, WITHOUT_PLACES, check_target

            check_target(path, known=EXTENSIONS if has_places else WITHOUT_PLACES)
        return path

    def keep(context: click.Context, option: click.Parameter, value: object) -> None:
        context.meta.setdefault(_WRITTEN, {})[option.name] = value

    options = [
        click.option(
            "-o",
            "--output",
            "output",
            type=FILE,
            callback=check,
            help=f"Write {contents} to this new file, which ends in {formats} (extras: hatcast[excel], [parquet]).",
        ),
        click.option(
            "--output-decimal",
            type=click.Choice([".", ","]),
            default=".",
            expose_value=False,
            callback=keep,
            help='Decimal sign of -o FILE.csv; with "," semicolons separate its fields.',
        ),
        click.option(
            "--output-encoding",
            type=click.Choice(_ENCODINGS),
            default="utf-8",
            expose_value=False,
            callback=keep,
            help="Encoding of -o FILE.csv; Excel knows UTF-8 by utf-8-sig.",
        ),
    ]
    if of_records:
        options.append(
            click.option(
                "--all-fields",
                "whole",
                is_flag=True,
                expose_value=False,
                callback=keep,
                help="Write every field, and the record as JSON, to CSV, Excel and GeoJSON, in place of a short table.",
            )
        )

    def exclusive(function: Function) -> Function:
        @wraps(function)
        def checked(**given: Any) -> Any:
            if given["output"] is not None and given["as_json"]:
                raise click.UsageError("-o writes to a file what --json prints: choose one")
            return function(**given)

        return checked  # type: ignore[return-value]  # click passes parameters by name

    return combined(*options, exclusive)


def written(place: "Place | None" = None) -> "Written":
    """Return how the files of the present command are written. place: names the places of cells."""
    from hatcast.agents.tables.files import Written
    from hatcast.agents.tables.lines import CsvStyle

    given = click.get_current_context().meta.get(_WRITTEN, {})
    return Written(CsvStyle(given["output_encoding"], given["output_decimal"]), given.get("whole", False), place)


def places_of(settings: Settings, output: Path) -> "Place | None":
    """Return the names of places by the timetable of `[display]`, if the file has them. Raises HatcastError."""
    from hatcast.agents.tables.files import APART

    if settings.display.gtfs is None or output.suffix.lower() not in APART:
        return None
    from hatcast.agents.timetable.network import place_names, read_network

    return place_names(read_network(settings.display.gtfs).stops)


def write_records(
    path: Path, tables: "Sequence[RecordTable]", records: Iterable[bytes], place: "Place | None" = None
) -> None:
    """Write records of some tables to files, and their number to standard error. Raises HatcastError."""
    from hatcast.agents.tables.files import FilesOf

    with FilesOf(path, tables, written(place)) as files:
        for record in records:
            files.write(record)
    report_written(files.rows, files.left_out)


def write_figures(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of figures to a file, and their number to standard error. Raises HatcastError."""
    from hatcast.agents.tables.columns import figures_of
    from hatcast.agents.tables.files import open_file

    layout, lines = figures_of(rows)
    with open_file(path, layout, style=written().style) as file:
        for line in lines:
            file.write(line)
    report_written({path: len(lines)})


def report_written(rows: Mapping[Path, int], left_out: int = 0) -> None:
    """Print the number of rows of each file to standard error."""
    rejected = f"; {left_out:,} are not records of this version, left out" if left_out else ""
    for path, number in rows.items():
        click.echo(f"{path}: {number:,} row{'s' * (number != 1)}{rejected}", err=True)
        rejected = ""


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a command."""

    shown: Sequence[Table | str]  # tables and sentences, for a terminal
    figures: Row  # JSON object
    settings: Row | None = None  # of the run, in the JSON object and in each row of a file; None: the figures have them
    rows: Sequence[Row] = ()  # of a file
    # writes a figure in the format of the file's suffix. Raises HatcastError if it cannot be written
    plot: Callable[[Path], None] = lambda _: None

    def write(self, *, as_json: bool, output: Path | None = None, plot_file: Path | None = None) -> None:
        """Write the figure, and the rows, the JSON object or the tables. Raises HatcastError."""
        if plot_file is not None:
            self.plot(plot_file)
        settings = {} if self.settings is None else {"settings": self.settings}
        if output is not None:
            write_figures(output, [{**row, **settings} for row in self.rows])
        elif as_json:
            click.echo(msgspec.json.encode({**settings, **self.figures}))
        else:
            console = Console()
            for each in self.shown:
                if isinstance(each, str):
                    console.print(each, highlight=False, markup=False)
                else:
                    print_fitted(console, each)


def nested(rows: Iterable[Row], *keys: str, of: str | None = None) -> dict[str, Any]:
    """Return rows as an object of objects, by the values of these keys: at the end their field `of`, or all others."""
    found: dict[str, Any] = {}
    for row in rows:
        *others, last = (f"{row[key]:g}" if isinstance(row[key], float) else str(row[key]) for key in keys)
        place = found
        for each in others:
            place = place.setdefault(each, {})
        place[last] = row[of] if of is not None else {name: row[name] for name in row if name not in keys}
    return found


def rounded(number: float | None, digits: int = 4) -> float | None:
    """Return a number with this many decimals; None for None and NaN."""
    return None if number is None or math.isnan(number) else round(number, digits)


def significant(number: float) -> str:
    """Return a number from 0 on with four significant digits, fewer below 1, so that it takes seven places at most."""
    if 1 <= number < 10**4:
        return f"{number:#.4g}".rstrip(".")
    if 10**4 <= number < 10**7:
        return f"{number:.0f}"
    return f"{number:#.3g}" if 1e-3 <= number < 1 else f"{number:.1e}"


@contextmanager
def open_figure(path: Path, title: str, size: tuple[float, float], option: str = "--plot") -> Iterator["Figure"]:
    """Yield a figure of this size in inches, and write it: the same bytes for the same numbers. option: for the error.

    Raises HatcastError if it cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "hatcast", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.suptitle(title, fontsize=9)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise HatcastError(f"{option}: {path} cannot be written ({error}); name a file such as out.svg") from None


@contextmanager
def open_axes(path: Path, title: str) -> Iterator["Axes"]:
    """Yield the only axes of a figure, with a legend beside them. Raises HatcastError as `open_figure`."""
    with open_figure(path, title, (7, 4.2)) as figure:
        axes = figure.add_subplot()
        yield axes
        axes.grid(visible=True, which="both", linewidth=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
