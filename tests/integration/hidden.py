"""A pipeline under `add_remove`: a public list of cells, most of them without a bus, and a topic with LogAppendTime."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import h3.api.basic_str as h3

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.stream.release.schedule import listed_cells
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import NOON_MS, PLACES
from tests.integration.tables import merged
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

EPSILON: Final = 1e7  # so large that no noise is left on the grid
FAR_AWAY: Final = [(48.0 + i / 5, 11.0) for i in range(3)]  # listed, and never a bus
CELLS: Final = sorted(h3.latlng_to_cell(*place, 7) for place in [*PLACES[:3], *FAR_AWAY])
HOURS: Final = [11, 15]
SLOTS: Final = ["12:00", "13:00", "14:00"]  # from the first slot on
HIDDEN: Final[dict[str, Any]] = {
    "policy": {
        "cells": "cells.txt",
        "hours": HOURS,
        "privacy": {
            "relation": "add_remove",
            "min_users": None,
            "epsilon": EPSILON,
            "acknowledge_weak_privacy": True,
            "max_hats_per_day": 20,
            "daily_limit": 1e9,
        },
        "estimator": {"name": "capped_ratio", "array_length": 2},
    }
}


@contextmanager
def open_hidden(
    kafka: KafkaServer, redis_server: RedisServer, folder: Path, title: str, changes: Mapping[str, Any] | None = None
) -> Iterator[Pipeline]:
    """The pipeline with its topics. Its first worker was started at noon on 2022-01-02, if one asks Redis."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cells.txt").write_text('source = "public"\n' + "\n".join(CELLS))
    with open_pipeline(kafka, redis_server, folder, title, merged(HIDDEN, changes or {})) as pipeline:
        assert listed_cells(pipeline.settings.policy) == CELLS
        ensure_topics(pipeline.settings)
        with closing(redis_server.client()) as redis:
            redis.hset(progress_key(pipeline), "first", str(NOON_MS))
        yield pipeline


def progress_key(pipeline: Pipeline) -> str:
    return f"{{{pipeline.name}}}:progress:{pipeline.name}"


def stamp_by(kafka: KafkaServer, pipeline: Pipeline, clock: str) -> None:
    """Let telemetry keep the producer's times (`CreateTime`), so that a test need not wait for hours to pass."""
    kafka.alter_topic(pipeline.settings.topics.telemetry, {"message.timestamp.type": clock})


def release_ids(pipeline: Pipeline, *slots: str) -> list[str]:
    """Those of every listed cell of slots `dateTname`, in the order of release."""
    return [f"{pipeline.name}/{slot}/{cell}" for slot in slots for cell in CELLS]


def in_partitions(pipeline: Pipeline) -> list[list[Any]]:
    """What stands on `hats.means`, committed, by partition."""
    logs: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    for received in sorted(pipeline.kafka.read(pipeline.settings.topics.means)):
        logs[received.partition].append(received)
    return logs
