"""Run one survey and write its time and memory. Arguments: FILE READINGS OUT."""

import json
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Final

from bench.process import cpu_s, peak_mb
from hatcast.agents.clock import now_ms
from hatcast.agents.recordings.files import open_records
from hatcast.lab.survey.run import SurveyJob, survey, survey_policy
from hatcast.stream.readings.formats import jsonl

READ_ALONE: Final = 300_000


def main() -> None:
    """Survey the file; then only read a part of it, for comparison."""
    path, readings, out = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    sizes = [0]

    def look(what: str, _: int) -> None:
        if what == "counting days":  # all rows have been written
            folders = Path(tempfile.gettempdir()).glob("hatcast-survey-*")
            sizes.append(sum(file.stat().st_size for folder in folders for file in folder.rglob("*.parquet")))

    policy = survey_policy(None, jsonl.FORMAT.name, {"timezone": "Asia/Kolkata"}, None)
    before, begun = cpu_s(), time.monotonic()
    survey(SurveyJob([path], jsonl.FORMAT, policy, None, Fraction(10), now_ms(), look))
    taken, used, peak = time.monotonic() - begun, cpu_s() - before, peak_mb()
    before = cpu_s()
    with open_records([path], jsonl.FORMAT) as read:
        for number, _ in enumerate(read(), start=1):
            if number == READ_ALONE:
                break
    figures = {
        "peak_mb": peak,
        "rate": readings / taken,
        "cpu_us": used / readings * 1e6,
        "reading_us": (cpu_s() - before) / READ_ALONE * 1e6,
        "bytes": max(sizes) / readings,
    }
    out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
