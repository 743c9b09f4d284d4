"""Memory and speed of `hatcast survey` by number of readings. No services."""

import json
import tempfile
from pathlib import Path
from typing import Final

import click

from bench.figures import Figure, say, show
from bench.process import run
from bench.survey.recording import write_recording

GROWTH: Final = 1.35  # of memory, from a tenth of the readings to all
OVER_READING: Final = 6.0  # CPU per reading, as a multiple of the CPU for only reading it from its file


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--readings", default=10_000_000, show_default=True, type=click.IntRange(1_000_000))
def command(as_json: bool, readings: int) -> int:  # noqa: FBT001 - click's way
    """Measure peak memory with a tenth of the readings on one day, with all on ten days, and with all on one day."""
    with tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        path = Path(folder) / "recording.jsonl"
        tenth = _measured(path, "a tenth", readings // 10, 1)
        days = _measured(path, "ten days", readings, 10)
        day = _measured(path, "one day", readings, 1)
    figures = [
        Figure("ten_days_memory_over_a_tenth", days["peak_mb"] / tenth["peak_mb"], "times", most=GROWTH),
        Figure("one_day_memory_over_a_tenth", day["peak_mb"] / tenth["peak_mb"], "times", most=GROWTH),
        Figure("survey_over_reading", days["cpu_us"] / days["reading_us"], "times", most=OVER_READING),
        Figure("a_tenth_peak_mb", tenth["peak_mb"], "MB"),
        Figure("ten_days_peak_mb", days["peak_mb"], "MB"),
        Figure("one_day_peak_mb", day["peak_mb"], "MB"),
        Figure("readings_per_s", days["rate"], "readings/s"),
        Figure("cpu_us", days["cpu_us"], "CPU us a reading"),
        Figure("temporary_bytes", days["bytes"], "bytes a reading"),
    ]
    return show(f"survey: {readings:,} readings of 3,000 vehicles", figures, as_json=as_json)


def _measured(path: Path, name: str, readings: int, days: int) -> dict[str, float]:
    """Run one survey in its own process."""
    write_recording(path, readings, days)
    found = path.with_suffix(".json")
    run("bench.survey.ours", str(path), str(readings), str(found), timeout=7200)
    figures: dict[str, float] = json.loads(found.read_text())
    say(f"{name}: {readings:,} readings, {figures['peak_mb']:.0f} MB, {figures['rate']:,.0f} readings/s")
    return figures
