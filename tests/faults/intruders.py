"""Workers that come with what contradicts the others: each has to refuse to start, and to say what contradicts."""

import subprocess
from contextlib import suppress
from typing import Any, Final

from tests.faults.actors import Intruder
from tests.faults.observe import has_open_date
from tests.faults.stage import Stage
from tests.other_tzdata import have_other_tables

_REFUSED_S: Final = 60.0  # how long a start may take until it is refused
_OPENED_S: Final = 20


def other_configuration(stage: Stage) -> None:
    """A worker comes whose file contradicts what is registered."""
    elsewhere = f"{stage.pipeline.name}.elsewhere"
    changes: list[tuple[dict[str, Any], str]] = [
        ({"topics": {"means": elsewhere}}, "topics.means"),
        ({"topics": {"telemetry_partitioner": "crc32"}}, "topics.telemetry_partitioner"),
        ({"policy": {"upper_bound": 64.0}}, "upper_bound"),
    ]
    _come(stage, "another configuration", *stage.random.choice(changes))


def other_format(stage: Stage) -> None:
    """A worker comes that would read records in another format."""
    _come(stage, "another format", {"topics": {"telemetry_format": "hfp"}}, "topics.telemetry_format is 'hfp'")


def _come(stage: Stage, kind: str, change: dict[str, Any], says: str) -> None:
    if any("worker started" in worker.process.logged() for worker in stage.workers):
        file = f"other-{len(stage.intruders)}.toml"
        process = stage.pipeline.worker(config=stage.pipeline.changed(change, file))
        stage.intruders.append(Intruder(process, says))
        stage.tally[f"worker with {kind}"] += 1


def other_time_zone_data(stage: Stage) -> None:
    """A worker comes whose time zone data have other rules for a date that is open.

    Redis loses nothing until it has ended: a date that Redis has lost is not open, and who comes first opens it.
    """
    stage.end_moves()
    for _ in range(_OPENED_S):
        stage.kafka.resume()
        stage.redis.resume()
        if has_open_date(stage.pipeline.settings):
            break
        stage.wait(1.0)
    else:
        return
    intruder = Intruder(stage.pipeline.worker(wrap=have_other_tables), "was opened as")
    stage.intruders.append(intruder)
    with suppress(subprocess.TimeoutExpired):
        intruder.process.wait(_REFUSED_S)
    intruder.process.kill()  # one that runs is told of in the end
    stage.tally["worker with other time zone data"] += 1
