"""(a) Upper bound: a plain confluent-kafka loop with the same decode and fold, in memory."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.ingest.contender import Task, write
from bench.settings import PARTITIONS
from bench.stopwatch import Stopwatch
from hatcast.agents.clock import now_ms


def main() -> None:
    """Fold the task's records."""
    task = Task.given()
    folds = task.folds()
    consumer = Consumer(
        {
            "bootstrap.servers": task.settings.kafka.bootstrap_servers,
            "group.id": "bench-plain",  # required by the library; no offset is committed
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 262_144,
        }
    )
    consumer.assign([TopicPartition(task.topic, partition, 0) for partition in range(PARTITIONS)])
    stopwatch = Stopwatch()
    left = task.records
    while left:
        messages = consumer.consume(10_000, timeout=0.2)
        if not messages:
            continue
        stopwatch.start()
        left -= len(messages)
        timestamps: list[list[int]] = [[] for _ in folds]
        values: list[list[bytes | None]] = [[] for _ in folds]
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            partition = message.partition() or 0
            timestamps[partition].append(message.timestamp()[1])
            values[partition].append(message.value())
        for partition, fold in enumerate(folds):
            fold.apply(now_ms(), timestamps[partition], values[partition])
            fold.take_rows()  # of the journal: a loop without checkpoints has none, and would keep them all
    stopwatch.stop()
    write(task, stopwatch, folds)


if __name__ == "__main__":
    main()
