"""Recorded input for tests: what may be published is in tests/data, the rest in HATCAST_DATA or beside the tree."""

import json
import os
from pathlib import Path
from typing import Any, Final

from tests.services.absent import ServiceAbsent

ROOT: Final = Path(__file__).parents[2]
DATA: Final = ROOT / "tests" / "data"
# Format and files of the recording behind each golden result.
GOLDENS: Final = {
    "edge": ("jsonl", ("golden/edge.jsonl",)),
    "capmetro_2017-03-21": ("capmetro", ("capmetro/2017-03-21.csv.gz",)),
    "itms_30min": ("itms", ("itms/suratITMS_30minsTest.json",)),
    "gtfs_rt": ("gtfs-rt", ("gtfs_rt/GTFS_VP2020-09-01_08_00.pb.gz", "gtfs_rt/GTFS_VP2020-09-01_08_01.pb.gz")),
}
RECORDINGS_ABSENT: Final = "recordings absent, set HATCAST_DATA"


def recording(path: str) -> Path:
    """A recording by its path, such as ``itms/suratITMS.json`` or ``capmetro/2017-03-21.csv.gz``.

    Raises ServiceAbsent where there is none.
    """
    elsewhere = Path(os.environ.get("HATCAST_DATA") or ROOT.parent / "shared" / "data")
    found = next((each for each in (DATA / path, elsewhere / path) if each.is_file()), None)
    if found is None:
        raise ServiceAbsent(RECORDINGS_ABSENT)
    return found


def golden(name: str) -> dict[str, Any]:
    """A golden result, such as ``edge``: its policy, outcome counts and HATs (see tests/data/golden/README.md)."""
    parsed: dict[str, Any] = json.loads((DATA / "golden" / f"{name}.json").read_bytes())
    return parsed


def golden_recording(name: str) -> tuple[str, list[Path]]:
    """Format and files of the recording that a golden result was made from."""
    form, paths = GOLDENS[name]
    return form, [recording(path) for path in paths]
