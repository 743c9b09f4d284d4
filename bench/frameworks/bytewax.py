"""bytewax: a dataflow with tumbling windows of an hour by event time, keyed by user and HAT; its state is in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.kafka import KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower
from bytewax.testing import TestingSink, run_main

from bench.frameworks.rules import Reading, Tally, Task, read

# Asia/Kolkata has no clock changes: its hours begin half past those of UTC.
_ALIGNED = datetime(2022, 1, 1, 0, 30, tzinfo=UTC)
_LATENESS = timedelta(hours=48)  # as the worker's


@dataclass(slots=True)
class Row:
    """A user's sums in one HAT. steps: a bit for each step that was seen."""

    count: int = 0
    total: int = 0
    maximum: int = 0
    steps: int = 0


def main() -> None:
    """Fold the task's records with one worker, then close all windows."""
    task = Task.given()
    tally, windows = Tally(task), list[tuple[str, tuple[int, Row]]]()

    def parse(message: KafkaSourceMessage[Any, Any]) -> Iterator[tuple[str, Reading]]:
        tally.start()
        reading = read(message.value)
        if isinstance(reading, Reading):
            yield f"{reading.hat} {reading.plate}", reading
        else:
            tally.add(reading)

    def fold(row: Row, reading: Reading) -> Row:
        bit = 1 << reading.step
        if row.steps & bit:
            tally.add("duplicate")
            return row
        row.count += 1
        row.total += reading.speed
        row.maximum = max(row.maximum, reading.speed)
        row.steps |= bit
        tally.add("accepted")
        return row

    def merge(_one: Row, _other: Row) -> Row:
        raise NotImplementedError("tumbling windows are never merged")

    flow = Dataflow("fold")
    messages = op.input("read", flow, KafkaSource([task.servers], [task.topic], tail=False, batch_size=1000))
    readings = op.flat_map("parse", messages, parse)
    clock = EventClock(ts_getter=lambda reading: reading.time.astimezone(UTC), wait_for_system_duration=_LATENESS)
    windower = TumblingWindower(length=timedelta(hours=1), align_to=_ALIGNED)
    folded = win.fold_window("fold", readings, clock, windower, Row, fold, merge)
    op.output("write", folded.down, TestingSink(windows))
    run_main(flow)
    tally.write((key.split()[0], row.count, row.total, row.maximum) for key, (_, row) in windows)


if __name__ == "__main__":
    main()
