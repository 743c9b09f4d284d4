"""Readings per second and core of each format: decoded, from recordings and from messages. No services."""

import gc
import io
import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import BinaryIO, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq
from google.transit.gtfs_realtime_pb2 import FeedMessage
from msgspec.structs import replace

from bench.city import START, reports
from bench.figures import Figure, middle, show
from hatcast.agents.recordings.parquet import parquet_records
from hatcast.stream.readings.formats import FORMATS, Columns, Format, FormatChoice, Recorded, itms
from hatcast.stream.readings.formats.capmetro import COLUMNS
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.positions import Derivation, SpeedDeriver
from hatcast.stream.readings.reading import MISSING, Reading, ValueUnits, parse_time
from hatcast.stream.time_zones import time_zone

LEAST: Final = 150_000.0  # readings/s
LEAST_GTFS_RT: Final = 50_000.0
LEAST_SIRI: Final = 30_000.0
_PATTERN: Final = "%d.%m.%Y %H:%M:%S"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--records", default=50_000, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def command(as_json: bool, records: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure readings per CPU second of each format: decoded one by one, and from a recording."""
    bodies = _bodies(records)
    work: dict[str, Callable[[], int]] = {}
    for name, body in bodies.items():
        feed = FORMATS[name]
        work[f"{name}_decode"] = _decoding(feed, _records_of(feed, body))
        work[f"{name}_recording"] = partial(_recorded, feed.records, body)
    polls = FORMATS["gtfs-rt"]
    work["gtfs-rt_split_and_decode"] = partial(_split, polls, bodies[polls.name])
    for form, body in _siri(records).items():
        work[f"siri_{form}_split_and_decode"] = partial(_split, FORMATS["siri"], body)
        work[f"siri_{form}_recording"] = partial(_recorded, FORMATS["siri"].records, body)
    work["parquet_recording"] = partial(
        _recorded, partial(parquet_records, feed=FORMATS["jsonl"]), _parquet(bodies["jsonl"])
    )
    work["derived_speeds"] = partial(_derived, _city_positions(records))
    work |= _named_columns(bodies["jsonl"])
    gc.collect()
    gc.freeze()
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):  # in turns, so that a slow moment affects all of them
        for name, run in work.items():
            rates[name].append(_rate(run, records))
    return show(
        f"feeds: {records:,} readings, {rounds} rounds", [_figure(*each) for each in rates.items()], as_json=as_json
    )


def _named_columns(canonical: bytes) -> dict[str, Callable[[], int]]:
    """Return the work on CSV and JSON with columns of other names: with ISO times, and times of a pattern."""
    rows = [json.loads(line) for line in canonical.splitlines()]
    zone = time_zone("Asia/Kolkata")
    names = {"vehicle": "plate", "time": "ts", "lat": "y", "lon": "x", "value": "v"}
    columns = Columns(names, unit="km/h")
    patterned = Columns(names, unit="km/h", time_format=_PATTERN)
    numbered = Columns(dict(zip(names, map(str, range(1, 6)), strict=True)), unit="km/h")
    csv_rows = [f"{row['vehicle']},{row['time']},{row['lat']},{row['lon']},{row['speed']}" for row in rows]
    local = [f"{_local(row['time'])},{row['vehicle']},{row['lat']},{row['lon']},{row['speed']}" for row in rows]
    objects = [json.dumps(dict(zip(names.values(), line.split(","), strict=True))).encode() for line in csv_rows]

    def feed(name: str, chosen: Columns) -> Format:
        return FormatChoice(name, chosen).format(ValueUnits(), zone, live=chosen is numbered)

    files = {
        "csv_iso": (columns, "plate,ts,y,x,v", csv_rows),
        "csv_pattern": (patterned, "ts,plate,y,x,v", local),
    }
    return {
        "mapped_csv_decode": _decoding(feed("csv", numbered), [line.encode() for line in csv_rows]),
        "mapped_jsonl_decode": _decoding(feed("jsonl", columns), objects),
        "mapped_jsonl_recording": partial(_recorded, feed("jsonl", columns).records, b"\n".join(objects)),
        **{
            f"mapped_{name}_recording": partial(
                _recorded, feed("csv", chosen).records, "\n".join((header, *lines)).encode()
            )
            for name, (chosen, header, lines) in files.items()
        },
    }


def _local(time_text: str) -> str:
    return datetime.fromisoformat(time_text).strftime(_PATTERN)


def _figure(name: str, rates: list[float]) -> Figure:
    limit = LEAST_GTFS_RT if name.startswith("gtfs-rt") else LEAST_SIRI if name.startswith("siri") else LEAST
    least = limit if name.endswith(("_decode", "_speeds")) else None
    return middle(name.replace("-", "_") + "_readings_per_s", rates, "readings/s", least=least)


def _rate(run: Callable[[], int], records: int) -> float:
    """Return readings per CPU second: on a busy machine far steadier than wall time."""
    begun = time.process_time()
    found = run()
    seconds = time.process_time() - begun
    if found != records:
        raise AssertionError(f"{found} readings of {records} records")
    return records / seconds


def _decoding(feed: Format, values: list[bytes]) -> Callable[[], int]:
    decode = feed.decode
    return lambda: sum(decode(value) is not None for value in values)


def _split(feed: Format, body: bytes) -> int:
    return _decoding(feed, feed.split(body))()


def _recorded(read: Callable[[BinaryIO, str], Iterator[Recorded]], body: bytes) -> int:
    return sum(record.reading is not None for record in read(io.BytesIO(body), "recording"))


def _city_positions(records: int) -> list[tuple[int, Reading]]:
    """Return (arrival, reading without a speed) of every bus, every 10 s."""
    positions = []
    for report in islice(reports(), records):
        reading = itms.decode(report.at(START))
        if reading is not None and (time_ms := parse_time(reading.time)) is not None:
            positions.append((time_ms, replace(reading, speed=MISSING)))
    return positions


def _derived(positions: list[tuple[int, Reading]]) -> int:
    deriver = SpeedDeriver(Derivation("Asia/Kolkata", 150.0, 120_000))
    for arrival_ms, reading in positions:
        deriver.reading(arrival_ms, reading)
    return len(positions)


def _records_of(feed: Format, body: bytes) -> list[bytes]:
    return [record.raw for record in feed.records(io.BytesIO(body), feed.name)]


def _readings(records: int) -> tuple[list[bytes], list[Reading]]:
    values = [report.at(START) for report in islice(reports(), records)]
    return values, [reading for value in values if (reading := itms.decode(value)) is not None]


def _bodies(records: int) -> dict[str, bytes]:
    """Return the city of the other benchmarks as a recording in each format."""
    values, readings = _readings(records)
    lines = {
        "jsonl": [canonical_value(Recorded(b"", reading, None)) for reading in readings],
        "itms": values,
        "hfp": [_hfp(reading) for reading in readings],
        "capmetro": [",".join(COLUMNS).encode(), *map(_capmetro, readings)],
    }
    return {name: b"\n".join(some) for name, some in lines.items()} | {"gtfs-rt": _poll(readings)}


def _metres(reading: Reading) -> float:
    return float(reading.speed) / 3.6


def _hfp(reading: Reading) -> bytes:
    event = {"desi": "3", "dir": "1", "oper": 40, "veh": 436, "tst": reading.time, "tsi": 1741778691}
    event |= {"spd": round(_metres(reading), 2), "hdg": 268, "lat": reading.lat, "long": reading.lon, "acc": 0.11}
    event |= {"dl": 262, "odo": 9070, "drst": 0, "oday": "2025-03-12", "jrn": 762, "line": 31, "start": "12:50"}
    event |= {"loc": "GPS", "stop": None, "route": "1003", "occu": 0}
    topic = f"/hfp/v2/journey/ongoing/vp/tram/0040/{reading.vehicle}/1003/1/Made Up/12:50/1160403/4/60;24/28/09/38"
    return f"{topic} {json.dumps({'VP': event})}".encode()


def _siri(records: int) -> dict[str, bytes]:
    """Return the city as SIRI deliveries in XML and JSON, with as many elements as the deliveries of Oslo have."""
    _, readings = _readings(records)
    wrapped: dict[str, object] = {"Siri": {"ServiceDelivery": {"VehicleMonitoringDelivery": [{"VehicleActivity": []}]}}}
    empty = json.dumps(wrapped).encode()
    in_json = b",".join(json.dumps(_activity(reading)).encode() for reading in readings)
    elements = "".join(f"<VehicleActivity>{_elements(_activity(reading))}</VehicleActivity>" for reading in readings)
    opening = '<Siri xmlns="http://www.siri.org.uk/siri" version="2.0"><ServiceDelivery><VehicleMonitoringDelivery>'
    closing = "</VehicleMonitoringDelivery></ServiceDelivery></Siri>"
    return {"xml": f"{opening}{elements}{closing}".encode(), "json": empty.replace(b"[]", b"[%b]" % in_json)}


def _activity(reading: Reading) -> dict[str, object]:
    journey = {"LineRef": "MUP:Line:31", "DirectionRef": "1", "VehicleMode": "bus", "PublishedLineName": "31"}
    journey |= {"OperatorRef": "MUP:Operator:210", "OriginRef": "MUP:Quay:1", "OriginName": "Made Up"}
    framed = {"DataFrameRef": "2026-03-12", "DatedVehicleJourneyRef": "MUP:ServiceJourney:31-123-456"}
    call = {"StopPointRef": "MUP:Quay:7", "VisitNumber": 4, "StopPointName": "Made Up", "VehicleAtStop": "false"}
    return {
        "RecordedAtTime": reading.time,
        "ValidUntilTime": "2026-03-12T09:35:47+01:00",
        "ProgressBetweenStops": {"LinkDistance": 314, "Percentage": 60.5},
        "MonitoredVehicleJourney": journey
        | {"FramedVehicleJourneyRef": framed, "DestinationRef": "MUP:Quay:2", "DestinationName": "Made Up"}
        | {"Monitored": "true", "InCongestion": "false", "DataSource": "MUP"}
        | {"VehicleLocation": {"Longitude": reading.lon, "Latitude": reading.lat}}
        | {"Bearing": 123, "Velocity": round(_metres(reading)), "Delay": "PT2M10S", "VehicleRef": reading.vehicle}
        | {"MonitoredCall": call, "IsCompleteStopSequence": "false"},
    }


def _elements(fields: object) -> str:
    if not isinstance(fields, dict):
        return str(fields)
    return "".join(f"<{name}>{_elements(value)}</{name}>" for name, value in fields.items())


def _capmetro(reading: Reading) -> bytes:
    numbers = f"{_metres(reading):.5f},1,1723912,{reading.lat},{reading.lon}"
    return f"{reading.vehicle},{reading.time},{numbers},1-Made Up-SB".encode()


def _poll(readings: list[Reading]) -> bytes:
    message = FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    message.header.timestamp = int(START.timestamp())
    for number, reading in enumerate(readings):
        vehicle = message.entity.add(id=f"{number}").vehicle
        vehicle.trip.trip_id, vehicle.trip.route_id, vehicle.trip.start_date = "1084925", "2433_754", "20200901"
        vehicle.trip.start_time = "07:25:00"
        vehicle.position.latitude, vehicle.position.longitude = float(reading.lat), float(reading.lon)
        vehicle.position.speed, vehicle.position.bearing = _metres(reading), 24.0
        vehicle.timestamp = (parse_time(reading.time) or 0) // 1000
        vehicle.vehicle.id = reading.vehicle
    return message.SerializeToString()


def _parquet(lines: bytes) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in lines.splitlines()]), file)
    return file.getvalue()
