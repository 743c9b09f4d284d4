"""Targets: everything that reads a file: recordings, dumps, tables, ledgers, timetables, cells, settings."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from hatcast.agents.api.reading import _KINDS, read
from hatcast.agents.batch.ledger_database import back_up
from hatcast.agents.batch.ledger_days import ledger_records, read_ledger
from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.cli.cells import trip_lines
from hatcast.agents.cli.check import command as check
from hatcast.agents.config.settings import load_settings
from hatcast.agents.device.store import open_store
from hatcast.agents.export.run import STATE, open_folder
from hatcast.agents.kafka.dump import DUMP, Dump, DumpHead, DumpLine, _encode_lines
from hatcast.agents.map.surroundings import read_basemap
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.tables.arrow import table_of_records
from hatcast.agents.tables.columns import row_of
from hatcast.agents.tables.records import RELEASES
from hatcast.agents.timetable.network import read_network
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.cells_file import read_cells_file
from hatcast.stream.readings.formats import FORMATS, Columns, Format, FormatChoice
from hatcast.stream.readings.reading import ValueUnits
from tests.displaying import release
from tests.folding import record
from tests.fuzz.target import SECRET, Finding, Target, check_message
from tests.services.data import ROOT
from tests.unit.test_ledger_file import AT, POLICY, drawn
from tests.vector_tiles import POLYGON, Shape, write_archive

_FILE_MAX: Final = 1 << 18


@cache
def _folder() -> Path:
    """Return a folder of this process; in memory, where there is such a file system."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="hatcast-fuzz-", dir=shared if os.access(shared, os.W_OK) else None))


def _with_file(name: str, use: Callable[[Path], object], data: bytes) -> None:
    """Write a file and use it: a result, or one line."""
    path = _folder() / str(os.getpid()) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    try:
        use(path)
    except HatcastError as error:
        check_message(error)


def _recording(feed: Format, path: Path) -> None:
    with open_recording([path], feed) as recording:
        last: int | None = None
        for arrival, _ in recording:
            if last is not None and arrival < last:
                raise Finding("a recording is not in arrival order")
            last = arrival


def _dump(path: Path) -> None:
    with open_recording([path], DUMP) as recording:
        for line in Dump(recording, str(path)):
            if line.partition < 0 or line.offset < 0:
                raise Finding("a dump has a negative partition or offset")


def _records(path: Path) -> None:
    for kind in _KINDS:
        try:
            found = read(path, kind)  # type: ignore[call-overload]  # its kinds are literals
            list(found)
            found.to_arrow()
        except HatcastError as error:
            check_message(error)


def _ledger(path: Path) -> None:
    ledger_records(path)
    for use in (_read_days, _open_again, lambda path: back_up(path, path.with_suffix(".copy"))):
        try:
            use(path)
        except HatcastError as error:
            check_message(error)
        path.with_suffix(".copy").unlink(missing_ok=True)


def _read_days(path: Path) -> None:
    with read_ledger(path, POLICY) as days:
        for date in days.dates:
            days.summary(date)


def _open_again(path: Path) -> None:
    with open_ledger(path, POLICY) as ledger:
        list(ledger.records())
        for date in ledger.dates:
            ledger.summary(date)
    path.with_name(path.name + "-journal").unlink(missing_ok=True)


def _store(path: Path) -> None:
    with open_store(path) as store:
        store.unsent()
        store.spent("bus", "2022-01-02")
        store.id_of("bus", "2022-01-02")


def _cells(data: bytes) -> None:
    try:
        found = read_cells_file(data.decode(errors="replace"), "policy.cells", 7, 8)
    except HatcastError as error:
        check_message(error)
        return
    if read_cells_file(found.text([]), "policy.cells", 7, 8) != found:
        raise Finding("a cells file is another one after it was written")


def _columns(data: bytes) -> None:
    try:
        columns = Columns.parse(data.decode(errors="replace").split("\n"))
        feed = FormatChoice("csv", columns).format(ValueUnits(), UTC)
        list(feed.records(io.BytesIO(b"a,b,c,d,e\n1,2,3,4,5\n"), "file"))
    except HatcastError as error:
        if "\n" in str(error):
            raise Finding("an error is not one line") from None


def _export(path: Path) -> None:
    """An export folder whose state, and a file of one of whose days, are this."""
    folder = path.parent / "export"
    day = folder / RELEASES.name / "2022-01-02.parquet"
    day.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes()
    (folder / STATE).write_bytes(content if content[:1] == b"{" else b'{"version":1,"topics":{}}')
    day.write_bytes(content)
    with open_folder(folder) as opened:
        opened.progress("hats.means")
        row = row_of(RELEASES, release(0))
        opened.merge(RELEASES, [] if row is None else [row])


def _settings(path: Path) -> None:
    load_settings(path, {})


def _gzip_seeds() -> Iterator[bytes]:
    lines = b"\n".join(record(vehicle=f"{SECRET}{n}") for n in range(20))
    yield lines
    yield gzip.compress(lines)
    yield gzip.compress(lines)[:-6]
    yield gzip.compress(bytes(1 << 16)) * 4
    table = pa.table({"vehicle": [SECRET], "time": [1_641_124_800_000], "lat": [21.2], "lon": [72.8], "speed": [3.0]})
    for codec in ("none", "zstd", "gzip", "snappy"):
        yield _parquet(table, codec)


def _parquet(table: Any, codec: str = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=codec)
    return bytes(sink.getvalue())


_ROW: Final = f"{SECRET}1,2024-05-06 10:00:00,52.5,13.4,30\n"
_TABLE: Final = f"vehicle,time,lat,lon,speed_kmh\n{_ROW}{_ROW}"


def _table_seeds() -> Iterator[bytes]:
    """Yield a table in each container and encoding, and other files that are named like it."""
    table = _TABLE.encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", table)
    yield from (table, gzip.compress(table), bz2.compress(table), lzma.compress(table), packed.getvalue())
    yield pa.compress(table, codec="zstd", asbytes=True)
    yield from (_TABLE.encode(name) for name in ("utf-16", "utf-16-be", "utf-8-sig", "utf-32"))
    yield table.replace(SECRET.encode(), SECRET.encode() + b"\xfc")
    yield from (f'{{"a": ["{SECRET}1"]}}'.encode(), f"<gpx>{SECRET}1</gpx>".encode(), table.replace(b",", b";"))
    columns = {"Vehicle": [f"{SECRET}1", None], "ts": [1.7e9, float("nan")], "lat": [52.5, 1.0], "lon": [13.4, 1.0]}
    yield _parquet(pa.table(columns | {"speed_kmh": ["30", f"{SECRET}2"]}))
    yield _parquet(pa.table({"place": [{"lat": 52.5, "lon": 13.4}], "vehicle": [f"{SECRET}1".encode()]}))


def _table(path: Path) -> None:
    """Read a file with each way in which people name its options."""
    named = {"names": {"lat": "place.lat"}, "where": {"vehicle": SECRET}}
    ways: tuple[dict[str, Any], ...] = ({}, {"encoding": "utf-16"}, named)
    for name in ("csv", "parquet", "jsonl"):
        for options in ways:
            try:
                columns = Columns(unit="km/h", **options)
                _recording(FormatChoice(name, columns).format(ValueUnits(), UTC), path)
            except HatcastError as error:
                check_message(error)


def _check(path: Path) -> None:
    """`hatcast check`, whose output may have names of columns, but no error may."""
    with contextlib.redirect_stdout(io.StringIO()):
        check.main([str(path)], standalone_mode=False)


def _record_seeds() -> Iterator[bytes]:
    releases = [release(hour) for hour in range(3)]
    yield b"\n".join(releases)
    yield gzip.compress(b"\n".join(releases))
    yield _parquet(table_of_records(RELEASES, releases))
    yield from _dump_seeds()
    for folder in ("budget", "estimate", "query", "running"):
        yield b"\n".join(p.read_bytes().strip() for p in sorted((ROOT / "schemas/golden/0.1.0").glob(f"{folder}/*")))


def _dump_seeds() -> Iterator[bytes]:
    head = DumpHead("telemetry", 2, [0, 5])
    lines = [
        DumpLine("telemetry", 1, 5, 1_641_124_800_000, b"bus", record()),
        DumpLine("telemetry", 0, 0, 7, None, None),
    ]
    yield bytes(_encode_lines([head, *lines]))
    yield bytes(_encode_lines([head, *lines, head]))


def _made(make: Callable[[Path], object]) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made"
        make(path)
        return [path.read_bytes()]


def _new_ledger(path: Path) -> None:
    with open_ledger(path, POLICY) as opened:
        opened.commit([drawn(cell) for cell in "abc"], AT)


def _new_store(path: Path) -> None:
    with open_store(path) as store:
        store.id_of("bus", "2022-01-02")


def _timetables() -> Iterator[bytes]:
    tables = {
        "routes.txt": "route_id,route_type,route_short_name\nr,3,7\n",
        "trips.txt": "route_id,trip_id,shape_id,service_id\nr,t,s,w\nr,u,,w\n",
        "shapes.txt": "shape_id,shape_pt_sequence,shape_pt_lat,shape_pt_lon\ns,1,21.2,72.8\ns,2,21.3,72.9\n",
        "stops.txt": "stop_id,stop_lat,stop_lon,stop_name\na,21.2,72.8,A\nb,21.3,72.9,B\n",
        "stop_times.txt": "trip_id,stop_sequence,stop_id\nt,1,a\nt,2,b\nu,1,a\nu,2,b\n",
    }
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", method) as archive:
            for name, text in tables.items():
                archive.writestr(name, text)
        yield made.getvalue()


def _timetable(path: Path) -> None:
    read_network(path)
    list(trip_lines(path))


def _configurations() -> list[bytes]:
    paths = [
        ROOT / "hatcast.toml",
        *sorted((ROOT / "examples").glob("*.toml")),
        *sorted((ROOT / "examples/audit").glob("*.toml")),
    ]
    return [path.read_bytes() for path in paths]


def _cells_seeds() -> list[bytes]:
    private = b'source = "private"\nepsilon = 1.0\ndays = "2022-01-02,2022-01-05"\ntimezone = "UTC"\n87608b0d2ffffff\n'
    return [(ROOT / "examples/audit/cells.txt").read_bytes(), b'source = "public"\n# c\n87608b0d2ffffff\n', private]


def _basemaps() -> list[bytes]:
    shape = Shape("water", POLYGON, ((72.8, 21.2), (72.9, 21.2), (72.9, 21.3)))
    return _made(lambda path: write_archive(path.with_suffix(".pmtiles"), [shape], [10]).rename(path))


def _file(
    name: str, use: Callable[[Path], object], seeds: Callable[[], Sequence[bytes] | Iterator[bytes]], **more: Any
) -> Target:
    return Target(name, partial(_with_file, name, use), seeds, **({"max_bytes": _FILE_MAX, "share": 0.7} | more))


def targets() -> Iterator[Target]:
    """Yield the targets."""
    yield _file("file-recording", partial(_recording, FORMATS["jsonl"]), _gzip_seeds)
    yield _file("file-table", _table, _table_seeds)
    yield _file("file-check", _check, _table_seeds)
    yield _file("file-dump", _dump, _dump_seeds, max_bytes=1 << 15)
    yield _file("file-records", _records, _record_seeds)
    yield _file("file-ledger", _ledger, lambda: _made(_new_ledger))
    yield _file("file-device", _store, lambda: _made(_new_store))
    yield _file("file-timetable", _timetable, _timetables, max_bytes=1 << 15)
    yield _file(
        "file-export",
        _export,
        lambda: [_parquet(table_of_records(RELEASES, [release(0)])), b'{"version":1,"topics":{}}'],
    )
    yield _file("file-basemap", read_basemap, _basemaps)
    yield _file("hatcast.toml", _settings, _configurations, max_bytes=8_192, share=2.0)
    yield Target("cells", _cells, _cells_seeds)
    yield Target("columns", _columns, lambda: [b"vehicle=1,time=2,lat=3,lon=4,value=5", b'lat=Y,"a,b=c",speed=v'])
