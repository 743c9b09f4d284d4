"""Targets: everything that decodes records of vehicles and devices."""

import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import h3.api.basic_str as h3

from hatcast.agents.sources.filter import VALUE_BYTES_MAX, Filter
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import restore, take_changes, totals
from hatcast.stream.fold.partition_fold import PartitionFold
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid.report_fold import ReportFold
from hatcast.stream.hybrid.reports import ReportKeys
from hatcast.stream.hybrid.signatures import ReportVerifier, public_key
from hatcast.stream.kmeans.messages import decode_round
from hatcast.stream.readings.formats import FORMATS, Columns, Format, FormatChoice, Recorded, jsonl
from hatcast.stream.readings.reading import MISSING, NOT_FINITE, Reading, ValueUnits, number, parse_time, to_milli
from hatcast.stream.readings.vehicles import by_murmur2, canonical_vehicle
from hatcast.stream.replay.heartbeats import Router
from hatcast.stream.time_zones import time_zone
from tests.folding import HOUR, NOON, NOW, PSEUDONYMS, record, stored_of
from tests.fuzz.target import SECRET, Finding, Target, check_message
from tests.laws.test_mapped_feeds import MAPPED
from tests.replayed import policy_of
from tests.services.data import DATA
from tests.signing import AUTHORITY, Device, report_of
from tests.unit.test_reports import POLICY as REPORT_POLICY
from tests.unit.test_reports import sent

_FEEDS: Final = DATA / "feeds"
_UPPER_MILLI: Final = 65_000
_LINES: Final = ("jsonl.jsonl", "itms.csv", "hfp.txt", "capmetro.csv")  # of which each line is one record
_MOST_SEED: Final = 6_000
_ROWS_MAX: Final = 1_024  # bytes of a few rows: the more of them, the fewer inputs are tried


def _samples(name: str) -> Iterator[bytes]:
    """Yield the recordings of a format, shortened, each of their records, and all broken files."""
    for path in sorted(_FEEDS.glob(f"{name}*")):
        body = path.read_bytes()
        yield body[:_MOST_SEED]
        yield _secret(body, name)[:_MOST_SEED]
        if name in FORMATS:
            yield from (each.raw for each in FORMATS[name].records(io.BytesIO(body), path.name))
    yield from (path.read_bytes()[:_MOST_SEED] for path in sorted((_FEEDS / "broken").iterdir()))


def _secret(body: bytes, name: str) -> bytes:
    """Return a recording whose vehicles no error may name: ids of the same length, and lengths are in protobuf."""
    if name in FORMATS:
        sent = {each.reading.vehicle for each in FORMATS[name].records(io.BytesIO(body), name) if each.reading}
        for vehicle in sorted(sent, key=len, reverse=True):
            if len(vehicle) >= len(SECRET):
                body = body.replace(vehicle.encode(), (SECRET * len(vehicle))[: len(vehicle)].encode())
    return body


def _parts(body: bytes) -> list[bytes]:
    return [body, *body.splitlines()]


def check_reading(reading: Reading) -> None:
    """Raise Finding unless each field is what rule 3 says, and the rules after it can take it."""
    values = [reading.lat, reading.lon, *([] if reading.speed is MISSING else [reading.speed])]
    if not all(isinstance(value, float) or value in NOT_FINITE for value in values):
        raise Finding("a reading whose numbers are neither floats nor texts of NOT_FINITE")
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise Finding("a number of a reading is not finite")
    canonical_vehicle(reading.vehicle)
    parse_time(reading.time)
    if isinstance(reading.speed, float):
        to_milli(number(reading.speed), reading.unit)


def _message(feed: Format, data: bytes) -> None:
    """Split a message and decode its records; every one of them reaches the topic as a record that decodes to it."""
    for raw in (*feed.split(data), *feed.split(data, "/hfp/v2/journey/ongoing/vp/bus/0018/00817")):
        if not raw:
            raise Finding("a message has an empty record, which is a heartbeat")
        reading = feed.decode(raw)
        if reading is not None:
            check_reading(reading)
            if jsonl.decode(jsonl.canonical_value(Recorded(raw, reading, None))) != reading:
                raise Finding("a reading is another one on the topic")


def _recording(feed: Format, data: bytes) -> None:
    """Read a recording: records, or one error."""
    try:
        for each in feed.records(io.BytesIO(data), "file"):
            if not each.raw:
                raise Finding("a recording has an empty record")
            if each.reading is not None:
                check_reading(each.reading)
    except HatcastError as error:
        check_message(error)


def _neighbours(feed: Format, header: bytes, good: tuple[bytes, bytes], data: bytes) -> None:
    """A line never changes how the lines before and after it are read."""
    first, last = good
    line = data.replace(b"\n", b" ").replace(b"\r", b" ").strip()
    if line.strip(b"\xef\xbb\xbf").startswith(b"["):
        return  # an array of records instead
    records = list(feed.records(io.BytesIO(header + b"\n".join((first, line, last))), "file"))
    if records[0].raw != first or records[-1].raw != last or records[0].reading is None or records[-1].reading is None:
        raise Finding("a line changed how its neighbours are read")


def _bridge(feed: Format) -> Callable[[bytes], None]:
    """Return a run of a bridge's filter: what it forwards is small, canonical, and of the partition of its key."""
    passing = Filter(feed, Router(4, by_murmur2), HOUR, clock=lambda: NOW)

    def run(data: bytes) -> None:
        for message in passing.messages(data, "/hfp/v2/journey/ongoing/vp/bus/0018/00817"):
            if not message.value or len(message.value) > VALUE_BYTES_MAX or jsonl.decode(message.value) is None:
                raise Finding("a bridge forwards a record that is too large or not decodable")
            if message.partition != by_murmur2(message.key or b"", 4):
                raise Finding("a bridge forwards a record to another partition than that of its key")

    return run


def _check_state(fold: PartitionFold[Any], most: int, make: Callable[[], PartitionFold[Any]]) -> None:
    """Raise Finding unless contributions are within their bounds, and stored and restored they are the same."""
    found = totals(fold.slots.values())
    for users, count, total, maximum in found.values():
        if not (0 < users <= count and 0 <= maximum <= most and maximum <= total <= count * most):
            raise Finding("a contribution is out of its bounds")
    stored = stored_of(take_changes(fold))
    again = make()
    restore(again, stored)
    if totals(again.slots.values()) != found:
        raise Finding("a stored contribution is another one")


def _folded(make: Callable[[], PartitionFold[Any]], good: tuple[bytes, bytes], most: int, data: bytes) -> None:
    """Fold records between two good ones: each has one outcome, and the good ones are accepted."""
    fold = make()
    values = [good[0], *data.split(b"\n"), good[1]]
    fold.apply(NOW, [NOON + HOUR] * len(values), values)
    if sum(fold.outcomes.values()) != len(values):
        raise Finding("a record has no outcome, or several")
    _check_state(fold, most, make)
    if fold.outcomes["accepted"] < len(good):
        raise Finding("a record changed what became of its neighbours")


def _reports() -> Target:
    calendar = Calendar(REPORT_POLICY)

    def make() -> ReportFold:
        return ReportFold(REPORT_POLICY, calendar, FoldUsers(PSEUDONYMS), None)

    def run(data: bytes) -> None:
        _folded(make, (sent(11), sent(12)), 1 << 62, data)

    seeds = [sent(1), sent(2, value=1e3), sent(3) + b"\n" + sent(4)]
    return Target("reports", run, lambda: seeds)


def _signed_reports() -> Target:
    """No input is counted but what devices with a certified key have signed."""
    calendar, keys = Calendar(REPORT_POLICY), ReportKeys(frozenset({public_key(AUTHORITY)}))
    cell = h3.latlng_to_cell(21.2, 72.8, 7)
    genuine = [device.sign(report_of(device, REPORT_POLICY.policy_id, cell)) for device in map(Device, range(4))]

    def run(data: bytes) -> None:
        check = ReportVerifier(keys).is_genuine
        fold = ReportFold(REPORT_POLICY, calendar, FoldUsers(PSEUDONYMS), None, check)
        values = data.split(b"\n")
        fold.apply(NOW, [NOON + HOUR] * len(values), values)
        if fold.outcomes["accepted"] != len({*values} & {*genuine}):
            raise Finding("a report was counted that no certified device has signed")

    return Target("signed-reports", run, lambda: [*genuine, b"\n".join(genuine), sent(1)])


def _fold() -> Target:
    policy = policy_of(lateness="48h", drop_zero=False)
    calendar = Calendar(policy)

    def make() -> PartitionFold[Any]:
        return Fold(policy, calendar, FoldUsers(PSEUDONYMS), jsonl.decode, None)

    good = record(vehicle="first"), record(vehicle="last")
    return Target("fold", partial(_folded, make, good, _UPPER_MILLI), partial(_samples, "jsonl"))


def _rounds() -> Target:
    def run(data: bytes) -> None:
        decode_round(data)

    folder = DATA.parents[1] / "schemas" / "golden" / "0.1.0"
    return Target("rounds", run, lambda: [path.read_bytes() for path in sorted(folder.glob("cluster*/*.json"))])


def targets() -> Iterator[Target]:
    """Yield the targets."""
    for feed in FORMATS.values():
        seeds = partial(_samples, feed.name)
        yield Target(f"message-{feed.name}", partial(_message, feed), seeds)
        yield Target(f"recording-{feed.name}", partial(_recording, feed), seeds)
        yield Target(f"bridge-{feed.name}", _bridge(feed), seeds, share=0.5)
        if feed.without_speed is not None:
            yield Target(f"positions-{feed.name}", partial(_recording, feed.without_speed), seeds, share=0.5)
    yield from _of_lines()
    for sample in MAPPED:
        name = sample.path.suffix[1:]
        body = sample.path.read_bytes()
        yield Target(f"columns-{name}", partial(_recording, sample.feed), partial(_parts, body), max_bytes=_ROWS_MAX)
    yield from _generic()
    yield _fold()
    yield _reports()
    yield _signed_reports()
    yield _rounds()


_READ: Final = {"vehicle": f"{SECRET}1", "time": "2024-05-06T10:00:00Z", "lat": 52.5, "lon": 13.4, "speed": 30}
_ROW: Final = f"{SECRET}1,2024-05-06 10:00:00 UTC,52.5,13.4,30\n{SECRET}1,2024-10-27 02:10:00,52.5,13.4,\\N\n"
_HEADER: Final = "vehicle,time,lat,lon,speed_kmh\n"
_TABLES: Final = tuple(each.encode() for each in (f"sep=,\n{_HEADER}{_ROW}", f"title\n\n{_HEADER}{_ROW}", _ROW))
_DOCUMENTS: Final = tuple(
    json.dumps(each).encode()
    for each in (
        {"data": {"bikes": [_READ, _READ]}},
        {"data": {"bikes": {"key": _READ, "other": _READ, "at": 7}}},
        [{"data": {"bikes": [_READ | {"vehicle": 7}]}}],
        _READ,
    )
)
_COMMAS: Final = _TABLES[0].replace(b"sep=,", b"sep=;").replace(b",", b";").replace(b"52.5", b"52,5")
_OPTIONS: Final[dict[str, tuple[str, dict[str, Any], Sequence[bytes]]]] = {
    "csv": ("csv", {}, _TABLES),
    "csv-where": ("csv", {"where": {"vehicle": f"{SECRET}1"}, "skip": 1}, _TABLES),
    "csv-decimal": ("csv", {"decimal": ","}, (_COMMAS, *_TABLES)),
    "csv-numbered": (
        "csv",
        {"names": {"vehicle": "1", "time": "2", "lat": "3", "lon": "4", "value": "5"}, "unit": "km/h"},
        _TABLES,
    ),
    "csv-derived": ("csv", {"times_in": "Asia/Kolkata", "unit": "m/s"}, _TABLES),
    "csv-times": ("csv", {"time_format": "%Y-%m-%d %H:%M:%S"}, _TABLES),
    "csv-encoding": ("csv", {"encoding": "cp1252"}, (*_TABLES, _TABLES[0].replace(b"title", b"M\xfcnchen"))),
    "json-topic": ("jsonl", {"names": {"vehicle": "topic:2"}, "unit": "km/h", "decimal": ","}, _DOCUMENTS),
    "json-records": ("jsonl", {"records": "data.bikes", "unit": "km/h"}, _DOCUMENTS),
    "json-document": ("jsonl", {"records": ".", "names": {"vehicle": "@key"}, "unit": "km/h"}, _DOCUMENTS),
    "json-joined": ("jsonl", {"unit": "km/h", "where": {"lat": "52.5"}}, (_DOCUMENTS[3] * 3, *_DOCUMENTS)),
}


def _generic() -> Iterator[Target]:
    """Yield readers of foreign columns with each option: no error has data, and each reading is one on the topic."""
    for name, (form, options, seeds) in _OPTIONS.items():
        feed = FormatChoice(form, Columns(**options)).format(ValueUnits(), time_zone("Europe/Berlin"))
        if name == "csv-derived":
            feed = feed.without_speed or feed
        yield Target(f"generic-{name}", partial(_read_both, feed), partial(list, seeds), max_bytes=_ROWS_MAX)


def _read_both(feed: Format, data: bytes) -> None:
    _recording(feed, data)
    _message(feed, data)


def _of_lines() -> Iterator[Target]:
    for name in _LINES:
        feed, format_name = FORMATS[name.partition(".")[0]], name.partition(".")[0]
        body = (_FEEDS / name).read_bytes()
        found = [each.raw for each in feed.records(io.BytesIO(body), name) if each.reading]
        header = body.partition(b"\n")[0] + b"\n" if name.endswith("csv") else b""
        run = partial(_neighbours, feed, header, (found[0], found[-1]))
        yield Target(f"neighbours-{format_name}", run, partial(_samples, format_name), share=0.5)
