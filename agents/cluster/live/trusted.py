"""Vectors of the trusted users: from recordings, or from the telemetry topic."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hatcast.agents.cluster.live.plan import Chosen
from hatcast.agents.cluster.vectors import read_vectors
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import open_dump
from hatcast.agents.recordings.dump_file import DUMP
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.readings.formats import Format


def recorded_vectors(
    files: Sequence[Path], feed: Format, settings: Settings, chosen: Chosen, progress: Callable[[int], None]
) -> Integers:
    """Return int64 [n, d], in steps: the vectors of all users of recordings on the date. Raises HatcastError."""
    return read_vectors(files, feed, settings, chosen.slots, progress, chosen.date).steps


def telemetry_vectors(settings: Settings, chosen: Chosen, progress: Callable[[int], None]) -> Integers:
    """Return the same of the telemetry topic, folded as `hatcast batch` folds its dump.

    The dump is in a folder that only its owner may read, and deleted. Raises HatcastError if Kafka does not have it.
    """
    with tempfile.TemporaryDirectory(prefix="hatcast-") as folder:
        path = Path(folder) / "telemetry.jsonl"
        with open_dump(settings, settings.topics.telemetry) as dump, path.open("wb") as file:
            for lines, _ in dump.chunks():
                file.write(lines)
        return recorded_vectors([path], DUMP, settings, chosen, progress)
