"""Produce records to Kafka as fast as librdkafka can."""

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bench.city import Sent


class RecordedProducer:
    """Producer with acks=all, keys partitioned by murmur2, and explicit timestamps.

    transaction   its name: all that is sent is one transaction, and nobody reads it before `commit`
    """

    def __init__(self, bootstrap_servers: str, transaction: str | None = None) -> None:
        self.refused: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 200_000,
                "log_level": 0,
                **({} if transaction is None else {"transactional.id": transaction, "transaction.timeout.ms": 900_000}),
            }
        )
        if transaction is not None:
            self._producer.init_transactions(60)
            self._producer.begin_transaction()
        self._sent = 0

    def send(self, topic: str, record: Sent, partition: int = -1) -> None:
        """Produce one record, waiting while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    topic, record.value, record.key, partition, self._answered, timestamp=record.arrival_ms
                )
                break
            except BufferError:
                self._producer.poll(0.05)
        self._sent += 1
        if self._sent % 5_000 == 0:
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has all records. Raises KafkaException if it rejected one."""
        unsent = self._producer.flush(120)
        if self.refused or unsent:
            raise KafkaException(self.refused[0] if self.refused else KafkaError(KafkaError._MSG_TIMED_OUT))  # noqa: SLF001 - its name

    def commit(self) -> None:
        """Commit the transaction; flush first. Raises KafkaException."""
        self._producer.commit_transaction(60)

    def _answered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.refused.append(error)
