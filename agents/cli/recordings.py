"""Options shared by the commands that read records of a format: `--format`, `--columns`, `--config`, files."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, tzinfo
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hatcast.agents.cli.options import PATH, Function, combined, optional_config_option
from hatcast.agents.recordings.files import open_records, recognised
from hatcast.agents.tables.terminal import table
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import FORMAT_NAMES, Columns, DeriveSpeed, Format, FormatChoice, Recorded
from hatcast.stream.readings.reading import Reading, ValuesReading, place_doubts, speed_doubts
from hatcast.stream.time_zones import time_zone

_SHOWN: Final = 3  # decoded rows
_TRIED: Final = 1_000  # first rows, of which some have to be decodable
_DOUBTED: Final = 10  # rows of which none can be decoded are not read by the right columns

_FORMAT: Final = "feed_format"  # the parameter of a command


def format_options(
    *,
    required: bool = False,
    files: str | None = None,
    default: str | None = None,
    also: Sequence[Format] = (),
    derives: bool = True,
    of: str,
) -> Callable[[Function], Function]:
    """Return a decorator that adds `--format` and the options of columns, as a `feed_format`, `FormatChoice | None`.

    files  parameter of the recordings whose contents show the format, if it is not given
    also   further formats, without columns
    derives  whether to add the options of derived speeds
    of     what has the format, for the help
    """
    # click takes default=None for a value: a required option would then be optional.
    with_default: dict[str, Any] = {} if default is None or files is not None else {"show_default": default}
    of_live = "" if default is None else f"; {default} of what is live"
    add_format = click.option(
        "--format",
        _FORMAT,
        type=click.Choice([*FORMAT_NAMES, *(each.name for each in also)]),
        required=required,
        help=f"Format of the {of}." + ("" if files is None else f"  [default: as `hatcast check` says{of_live}]"),
        **with_default,
    )

    def decorate(function: Function) -> Function:
        @wraps(function)
        def with_choice(**given: Any) -> Any:
            columns = {key: value for key in _COLUMN_KEYS if (value := given.pop(key)) not in (None, ())}
            recordings = [] if given.get(files or "") == ("-",) and default else _listed(given, files)
            recognise = partial(recognised, recordings, also=also) if recordings else None
            given[_FORMAT] = _choice(
                given[_FORMAT] or (None if recordings else default),
                columns,
                given.pop(DERIVE, None),
                recognise,
                header_time=given.pop(HEADER_TIME),
            )
            return function(**given)

        derived = (derive_options,) if derives else ()
        decorated: Any = combined(add_format, *_COLUMN_OPTIONS, header_time_option, *derived)(with_choice)
        return decorated  # type: ignore[no-any-return]  # options return the function that they get

    return decorate


DERIVE: Final = "derive"  # name of the parameter of `derive_options`


def derive_options(function: Function) -> Function:
    """Add `--derive-speed` and `--derive-speed-always`, as one `DeriveSpeed | None`."""
    always = click.option(
        "--derive-speed-always", DERIVE, flag_value="always", help="Derive all speeds: for feeds that always write 0."
    )
    missing = click.option(
        "--derive-speed",
        DERIVE,
        flag_value="missing",
        help="Derive speeds that records lack, from a vehicle's successive positions, 10 s to 150 s apart.",
    )
    return missing(always(function))


HEADER_TIME: Final = "header_time"  # name of the parameter of `header_time_option`
header_time_option: Final = click.option(
    "--header-time",
    HEADER_TIME,
    is_flag=True,
    help="gtfs-rt: a vehicle without a timestamp has that of the poll's header. Not under add_remove.",
)
times_in_option: Final = click.option(
    "--times-in", metavar="ZONE", help="Time zone of times without an offset, such as UTC.  [default: the policy's]"
)

_COLUMN_OPTIONS: Final = (
    click.option(
        "--columns",
        "names",
        multiple=True,
        metavar="FIELD=COLUMN,...",
        help="Columns of csv, parquet or jsonl for vehicle, time, lat, lon and value, such as vehicle=plate,time=ts."
        " Those that a header of csv or parquet plainly shows can be left out.",
    ),
    click.option("--unit", help="Unit of the column of speeds: km/h, m/s, mph or kn."),
    click.option(
        "--time-format",
        metavar="FORMAT",
        help="Format of the column of times: iso, s, ms, us, ns, or a pattern such as '%d.%m.%Y %H:%M:%S'.  [default:"
        " iso, or a number whose size shows its unit]",
    ),
    times_in_option,
    click.option(
        "--where", multiple=True, metavar="COLUMN=VALUE", help="Only records with this value in a column. Repeatable."
    ),
    click.option(
        "--records",
        metavar="PATH",
        help="jsonl: path of the records in a JSON document, such as data.bikes; . is the document.",
    ),
    click.option("--encoding", help="Encoding of csv and jsonl, such as latin-1.  [default: utf-8]"),
    click.option("--decimal", type=click.Choice([".", ","]), help="Decimal sign of csv and jsonl.  [default: .]"),
    click.option(
        "--skip", type=click.IntRange(0, 10_000), metavar="N", help="csv: leave out N lines before the header."
    ),
)
_COLUMN_KEYS: Final = tuple(each.name for each in fields(Columns))


def _listed(given: Mapping[str, Any], files: str | None) -> list[Path]:
    """Return the recordings of a parameter."""
    named = () if files is None else given[files] or ()
    return [*map(Path, named if isinstance(named, tuple) else (named,))]


def _choice(
    name: str | None,
    named: dict[str, Any],
    derive: DeriveSpeed | None,
    recognise: Callable[[Columns | None], FormatChoice] | None,
    *,
    header_time: bool,
) -> FormatChoice | None:
    """Return the choice of these options; None without any. Raises UsageError, RecordingError.

    named       the arguments of `Columns` that are given
    recognise   returns the format of the recordings; None: there are none
    """
    if "names" in named:
        named["names"] = Columns.parse(named["names"]).names
    if "where" in named:
        named["where"] = Columns.parse(named["where"], "where").names
    columns = Columns(**named) if named else None
    choice = recognise(columns) if name is None and recognise is not None else FormatChoice(name or "", columns)
    if derive is not None and choice.name not in FORMAT_NAMES:
        raise click.UsageError(
            "--derive-speed needs --format, of recordings: the records of a dump have their speeds already"
        )
    if choice.name:
        return replace(choice, derive=derive, header_time=header_time)
    if named or header_time:
        raise click.UsageError("--columns and the other options of a format need --format")
    return None


def checked_format(choice: FormatChoice, policy: Policy, files: Sequence[str | Path]) -> Format:
    """Return the chosen format of files for a policy, once some of their first rows can be decoded.

    It prints on standard error what is doubtful about the first records, and of named columns, on a terminal, the first
    decoded rows. A pipe is not looked at, because it can be read only once.
    Raises HatcastError: the columns are named, and none of the first rows can be decoded.
    """
    feed = policy_format(choice, policy)
    regular = [path for path in files if Path(path).is_file()]
    if regular:
        with open_records(regular[:1], feed) as read:
            records = list(islice(read(), _TRIED))
        readings = [record.reading for record in records if record.reading is not None]
        if choice.mapped:
            _show(records, readings, str(regular[0]), policy)
        # Under replace places are public and speeds are not; what is not public is for a terminal, never for a log.
        is_watched = _on_terminal()
        shows_places = is_watched or policy.relation is Relation.REPLACE
        for doubt in (
            *(place_doubts(readings, policy.timezone) if shows_places else ()),
            *(speed_doubts(readings) if is_watched else ()),
        ):
            click.echo(f"hint: {regular[0]}: {doubt}", err=True)
    return feed


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def _show(records: Sequence[Recorded], decoded: Sequence[Reading], path: str, policy: Policy) -> None:
    """Print the first decoded rows on a terminal. Raises HatcastError if there are rows, and none is decodable."""
    if not decoded:
        if len(records) >= _DOUBTED:
            [(problem, _)] = Counter(record.problem for record in records).most_common(1)
            raise HatcastError(
                f"{path}: none of its first {len(records)} rows can be decoded: {problem}; or correct --columns"
            )
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        return  # rows are raw data, which logs must not have
    console.print(_table(decoded[:_SHOWN], path, time_zone(policy.timezone)))


def _table(readings: Sequence[Reading], path: str, zone: tzinfo) -> Table:
    others = [name for reading in readings[:1] if isinstance(reading, ValuesReading) for name in reading.others]

    def row_of(reading: Reading) -> list[str]:
        place = _local(int(reading.time), zone), reading.lat, reading.lon
        cells = reading.vehicle, *place, f"{reading.speed} {reading.unit}"
        further = reading.others.values() if isinstance(reading, ValuesReading) else ()
        return [escape(str(cell)) for cell in (*cells, *further)]

    title = f"{Path(path).name}: the first rows as they are read (raw data, not private)"
    headings = ("vehicle", "time", "lat", "lon", "value", *others)
    return table(title, "", headings, map(row_of, readings), left=len(headings))


def _local(time_ms: int, zone: tzinfo) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, zone).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # outside the years 1 to 9999
        return f"{time_ms} ms"


def data_options(purpose: str, *, required: bool = False) -> Callable[[Function], Function]:
    """Return a decorator that adds `--data FILE...`, the options of a format, and `--config`.

    purpose   help of `--data`
    """

    def with_all_files(function: Function) -> Function:
        @wraps(function)
        def merged(**given: Any) -> Any:
            more = given.pop("more")
            if more and not given["data"]:
                raise click.UsageError(f"unexpected argument {more[0]}: name recordings after --data")
            if given[_FORMAT] and not given["data"]:
                raise click.UsageError("--format is for --data")
            return function(**given | {"data": (*given["data"], *more)})

        return merged  # type: ignore[return-value]  # click passes parameters by name

    return combined(
        click.option("--data", multiple=True, required=required, type=PATH, metavar="FILE...", help=purpose),
        # A shell expands the pattern after --data to several arguments: the option takes the first one.
        click.argument("more", nargs=-1, type=PATH, metavar=""),
        with_all_files,
        format_options(files="data", of="recordings"),
        optional_config_option,
    )
