"""Time zone data of another version, in which Asia/Kolkata has the rules of Asia/Dhaka: +06:00 instead of +05:30."""

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pytest
import tzdata

ZONE: Final = "Asia/Kolkata"
_OTHER: Final = "Asia/Dhaka"


def use_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calendars that this process makes from now on have the other rules."""
    with files(tzdata).joinpath("zoneinfo", _OTHER).open("rb") as file:
        zone = ZoneInfo.from_file(file, key=ZONE)
    monkeypatch.setattr("hatcast.stream.fold.hats.time_zone", lambda name: {ZONE: zone}[name])


def install_other_tzdata(folder: Path) -> Path:
    """Put a package tzdata with the other rules into a folder, for PYTHONPATH; return the folder."""
    package = Path(str(files(tzdata)))
    shutil.copytree(package, folder / "tzdata", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "zoneinfo" / _OTHER, folder / "tzdata" / "zoneinfo" / ZONE)
    with (folder / "tzdata" / "__init__.py").open("a") as init:
        init.write('IANA_VERSION = "1999z"\n')
    return folder
