"""(c) Stock Faust: an agent that calls the same fold for one record at a time, in memory."""

import os
import sys

import faust

from bench.ingest.contender import Task, write
from bench.stopwatch import Stopwatch
from hatcast.agents.clock import now_ms


def main() -> None:
    """Fold the task's records in an idiomatic agent, then end the process."""
    task = Task.given()
    folds = task.folds()
    stopwatch = Stopwatch()
    app = faust.App(
        f"bench-stock-{os.getpid()}",
        broker=f"kafka://{task.settings.kafka.bootstrap_servers}",
        datadir=str(task.result.with_suffix(".faust")),
        topic_disable_leader=True,
        web_enabled=False,
    )

    async def fold_all(stream: faust.StreamT[bytes]) -> None:
        left = task.records
        async for event in stream.events():
            stopwatch.start()
            message = event.message
            folds[message.partition].apply(now_ms(), (round(message.timestamp * 1000),), (event.value,))
            left -= 1
            if not left:
                stopwatch.stop()
                write(task, stopwatch, folds)
                os._exit(0)  # Faust's shutdown would take longer than the run

    app.agent(app.topic(task.topic, value_serializer="raw", key_serializer="raw"))(fold_all)
    sys.argv[1:] = ["--quiet", "worker", "--without-web", "--loglevel", "error"]
    app.main()


if __name__ == "__main__":
    main()
