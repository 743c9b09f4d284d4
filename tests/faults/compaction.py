"""Telemetry that is compacted for a while: nothing that lacks records is passed off as complete."""

import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaException

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import DumpHead, DumpLine
from hatcast.stream.fold.calendar import Calendar
from tests.faults.actors import WrongSetting
from tests.faults.generate import DATES, FIRST_MS, PARTITIONS
from tests.faults.stage import Stage
from tests.integration.harness import Pipeline
from tests.integration.test_compacted import CLEANER
from tests.services import Record
from tests.services.kafka_records import first_offsets

# Of a broker that compacts, but only topics whose `min.compaction.lag.ms` is 0: what was published is looked at whole.
COMPACTING: Final = {**CLEANER, "log.cleaner.min.compaction.lag.ms": str(2**63 - 1)}
ACCEPT_GAP: Final = "--accept-gap"
# With segments of half an hour of the log, so that all but the last one can be compacted.
CLEANABLE: Final = {"segment.ms": "1800000", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"}
_CLEANED_S: Final = 60.0
_DUMPED_S: Final = 600.0
_MET: Final = "records were compacted away"  # in the log of a worker that folds what is left


def compact(stage: Stage) -> None:
    """Set telemetry to compact, as by mistake, and back once records are gone. What it held before is dumped first.

    Nothing is sent meanwhile, so the dump has whatever compaction removes.
    """
    topic = stage.pipeline.settings.topics.telemetry
    stage.kafka.resume()
    stage.compacted_ms = stage.rest()
    stage.dumped = dump_telemetry(stage.pipeline, "before.jsonl", _DUMPED_S)
    compacting = WrongSetting(topic, "cleanup.policy", "compact", "delete")
    stage.alter(compacting)
    deadline = time.monotonic() + _CLEANED_S
    while not _is_compacted(stage, topic):
        if time.monotonic() > deadline:
            stage.broken.append(f"compacted: the broker has not compacted {topic}")
            break
        stage.wait(0.5)
    stage.set_back(compacting)
    while compacting in stage.wrong or not _takes_records_without_key(stage, topic):
        stage.wait(0.5)
    stage.tally["telemetry compacted"] += 1


def _is_compacted(stage: Stage, topic: str) -> bool:
    """Whether most partitions have lost their first record: the others' may be the only one of its vehicle there."""
    try:
        return sum(offset > 0 for offset in first_offsets(stage.kafka.bootstrap_servers, topic)) > PARTITIONS / 2
    except KafkaException:  # it is away
        return False


def _takes_records_without_key(stage: Stage, topic: str) -> bool:
    """Whether no partition is compacted any more: the broker answers a change of the topic before it applies it."""
    try:
        stage.kafka.produce(topic, [Record(b"", None, partition, FIRST_MS) for partition in range(PARTITIONS)])
    except KafkaException:
        return False
    return True


def dump_telemetry(pipeline: Pipeline, file: str, seconds: float) -> Path:
    """`hatcast dump telemetry`."""
    path = pipeline.folder / file
    pipeline.run("dump", "telemetry", "--output", path, timeout=seconds)
    return path


def joined(before: Path, after: Path) -> Path:
    """The dump of before the compaction, with what the one of the end has beyond it."""
    read_line, following = msgspec.json.Decoder(DumpLine).decode, [0] * PARTITIONS
    path = after.with_name("joined.jsonl")
    with before.open("rb") as first, after.open("rb") as last, path.open("wb") as file:
        head = first.readline()
        assert msgspec.json.decode(head, type=DumpHead).start_offsets == following
        last.readline()
        file.write(head)
        for raw in chain(first, last):
            line = read_line(raw)
            if line.offset >= following[line.partition]:
                following[line.partition] = line.offset + 1
                file.write(raw)
    before.unlink()
    return path.replace(after)


def has_met_what_is_left(logs: Iterable[str]) -> bool:
    """Whether a worker has folded telemetry that lacks records; logs: of all workers."""
    return any(_MET in log for log in logs)


def dates_that_lack_records(settings: Settings, compacted_ms: int, logs: Iterable[str]) -> frozenset[str]:
    """Whose HATs may be incomplete: dates of the compacted records, if a worker has met what was left of them."""
    if not has_met_what_is_left(logs):
        return frozenset()
    calendar, complete_ms = Calendar(settings.policy), compacted_ms + settings.policy.max_ahead_ms
    return frozenset(date for date in DATES if calendar.day_start(date) < complete_ms)
