"""Time zone data of another version, in which Asia/Kolkata has the rules of Asia/Dhaka: +06:00 instead of +05:30."""

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pytest
import tzdata

from hatcast.stream.fold import calendar
from hatcast.stream.time_zones import time_zone

ZONE: Final = "Asia/Kolkata"
_OTHER: Final = "Asia/Dhaka"


def use_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calendars that this process makes from now on have the other rules."""
    monkeypatch.setattr("hatcast.stream.fold.calendar.time_zone", _other_zone)


def use_other_tables_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let times without an offset that are those of `ZONE` have the other rules, and policies of other zones theirs."""

    def of(name: str) -> ZoneInfo:
        return _other_zone(name) if name == ZONE else time_zone(name)

    monkeypatch.setattr("hatcast.stream.fold.calendar.time_zone", of)
    monkeypatch.setattr("hatcast.stream.readings.formats._times.time_zone", of)


def have_other_tables() -> None:
    """Wrap a worker: whatever its policy's zone is, its calendars have the other rules."""
    calendar.time_zone = _other_zone  # type: ignore[attr-defined,assignment]  # in the worker's own process


def _other_zone(name: str) -> ZoneInfo:
    with files(tzdata).joinpath("zoneinfo", _OTHER).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def install_other_tzdata(folder: Path) -> Path:
    """Put a package tzdata with the other rules into a folder, for PYTHONPATH; return the folder."""
    package = Path(str(files(tzdata)))
    shutil.copytree(package, folder / "tzdata", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "zoneinfo" / _OTHER, folder / "tzdata" / "zoneinfo" / ZONE)
    with (folder / "tzdata" / "__init__.py").open("a") as init:
        init.write('IANA_VERSION = "1999z"\n')
    return folder
