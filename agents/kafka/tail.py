"""Follow published records: of `hats.means`, `hats.queries`, `hats.estimates` and `hats.running`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import kafka_python_options, translate_kafka_errors
from hatcast.agents.kafka.cloud_events import is_from_other_domain
from hatcast.agents.kafka.topics import topic_range

POLL_SECONDS: Final = 0.5


def follow(
    settings: Settings,
    topics: Sequence[str],
    stopping: Callable[[], bool],
    *,
    from_beginning: bool,
    seconds: float | None,
) -> Iterator[bytes]:
    """Yield the values of records, from the log start or the end, until `stopping` or for so many seconds.

    Only committed records of this domain, in offset order within each partition. Waits for a broker that becomes
    unreachable.
    Raises HatcastError if the broker is unreachable at the start, or one of the topics does not exist.
    """
    from kafka import KafkaConsumer, TopicPartition

    starts = {
        TopicPartition(name, partition): first if from_beginning else end
        for name in topics
        for partition, (first, end) in enumerate(topic_range(settings, name))
    }
    deadline_s = None if seconds is None else monotonic_s() + seconds
    with (
        translate_kafka_errors(settings),
        closing(
            KafkaConsumer(
                **kafka_python_options(settings),
                group_id=None,
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="earliest",  # compaction may have removed the next record
            )
        ) as consumer,
    ):
        consumer.assign([*starts])
        for partition, start in starts.items():
            consumer.seek(partition, start)
        while not stopping() and (deadline_s is None or monotonic_s() < deadline_s):
            wait_s = POLL_SECONDS if deadline_s is None else min(POLL_SECONDS, deadline_s - monotonic_s())
            for records in consumer.poll(timeout_ms=max(1, int(wait_s * 1000))).values():
                for record in records:
                    if record.value is not None and not is_from_other_domain(record.headers, settings.topics.telemetry):
                        yield record.value
