"""Quix Streams: a StreamingDataFrame with a stateful step; each user's sums are in RocksDB, with a changelog topic."""

import tempfile
import time

from quixstreams import Application, State

from bench.frameworks.rules import Reading, Tally, Task, read

Row = list[int]


def main() -> None:
    """Fold the task's records, one process with one thread, with the framework's defaults."""
    task = Task.given()
    tally, rows = Tally(task), dict[tuple[str, str], Row]()
    app = Application(
        broker_address=task.servers,
        consumer_group=f"quix-{time.time_ns()}",
        auto_offset_reset="earliest",
        state_dir=tempfile.mkdtemp(dir=task.result.parent),
        loglevel="ERROR",
    )

    def parse(value: bytes) -> Reading | None:
        tally.start()
        reading = read(value)
        if isinstance(reading, Reading):
            return reading
        _end(tally.add(reading))
        return None

    def fold(reading: Reading, state: State) -> None:
        row, steps = state.get(reading.hat, ([0, 0, 0], ""))
        seen, bit = int(steps or "0", 16), 1 << reading.step
        if seen & bit:
            _end(tally.add("duplicate"))
            return
        row = [row[0] + 1, row[1] + reading.speed, max(row[2], reading.speed)]
        state.set(reading.hat, (row, f"{seen | bit:x}"))
        rows[reading.plate, reading.hat] = row
        _end(tally.add("accepted"))

    def _end(last: bool) -> None:  # noqa: FBT001 - its one argument
        if last:
            app.stop()

    frame = app.dataframe(app.topic(task.topic, value_deserializer="bytes", key_deserializer="bytes"))
    frame.apply(parse).filter(lambda reading: reading is not None).update(fold, stateful=True)
    app.run()
    tally.write((hat, row[0], row[1], row[2]) for (_, hat), row in rows.items())


if __name__ == "__main__":
    main()
