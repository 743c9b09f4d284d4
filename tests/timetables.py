"""A GTFS timetable that has these speeds in these cells."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import h3.api.basic_str as h3

_DEGREE_KM: Final = 111.195  # of latitude
_KM: Final = 0.5


def write_speeds(path: Path, speeds: Mapping[str, float]) -> Path:
    """Write a timetable in which a bus drives 0.5 km north in each cell, at about this speed (km/h)."""
    stops, times = ["stop_id,stop_lat,stop_lon"], ["trip_id,arrival_time,departure_time,stop_id,stop_sequence"]
    for cell, speed in speeds.items():
        latitude, longitude = h3.cell_to_latlng(cell)
        seconds = round(_KM / speed * 3600)
        for number, (north, at) in enumerate(((-_KM / 2, 0), (_KM / 2, seconds))):
            stops.append(f"{cell}-{number},{latitude + north / _DEGREE_KM!r},{longitude!r}")
            time = f"08:{at // 60:02}:{at % 60:02}"
            times.append(f"{cell},{time},{time},{cell}-{number},{number}")
    tables = {
        "routes.txt": ["route_id,route_type", "r,3"],
        "trips.txt": ["route_id,trip_id", *(f"r,{cell}" for cell in speeds)],
        "stops.txt": stops,
        "stop_times.txt": times,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, lines in tables.items():
            archive.writestr(name, "\n".join([*lines, ""]))
    return path
