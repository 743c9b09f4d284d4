"""Read assigned partitions with confluent-kafka, without a consumer group; the ends of partitions are reported."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.cloud_events import is_from_other_domain

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

SILENCE_S: Final = 30.0  # without a message for so long, although the end is not reached: the brokers are gone


@contextmanager
def open_consumer(settings: Settings, name: str, options: Mapping[str, Any]) -> Iterator["Consumer"]:
    """Create a consumer of committed records and close it at the end of the block.

    name      suffix of its group id; no offset is committed
    options   additional options, which replace the defaults
    """
    from confluent_kafka import Consumer, KafkaException

    defaults: dict[str, Any] = {
        "group.id": f"hatcast-{name}",  # required by the library
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",  # an offset that the log lacks must skip no records
        "fetch.wait.max.ms": 10,  # the end is reported by a fetch without records
    }
    consumer = Consumer(confluent_options(settings) | defaults | dict(options))
    try:
        yield consumer
    finally:
        with suppress(KafkaException):
            consumer.close()


def next_messages(consumer: "Consumer", most: int, fill_s: float) -> list["Message"]:
    """Wait for messages and return at most `most` of them, partition ends included: see `is_end`.

    fill_s   how long each call of the library waits for `most` messages
    Raises KafkaException, with the code _TIMED_OUT after `SILENCE_S` without a message.
    """
    from confluent_kafka import KafkaError, KafkaException

    deadline_s = monotonic_s() + SILENCE_S
    while not (messages := consumer.consume(most, fill_s)):
        if monotonic_s() > deadline_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no messages for {SILENCE_S:g} s"))  # noqa: SLF001
    return messages


def is_end(message: "Message") -> bool:
    """Return whether a message is the end of its partition and not a record. Raises KafkaException for an error.

    The end is also reported if the last offsets are transaction markers, which are not delivered.
    """
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
        raise KafkaException(error)
    return error is not None


def value_of_domain(message: "Message", telemetry: str) -> bytes | None:
    """Return a record's value; None if it has none, or is of another domain: several may share output topics."""
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return None if is_from_other_domain(headers, telemetry) else message.value()


@contextmanager
def connection_errors() -> Iterator[None]:
    """Turn confluent-kafka's errors within the block into aiokafka's KafkaConnectionError."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as raised:
        from hatcast.agents.kafka.aio import KafkaConnectionError

        raise KafkaConnectionError(raised.args[0].str()) from None
