"""Rounds out and answers in: the Kafka side of a clustering."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from hatcast.agents.clock import now_ms
from hatcast.agents.cluster.live.state import ClusteringPlan, ClusteringState
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import broker_name, confluent_options
from hatcast.agents.kafka.cloud_events import cloud_event
from hatcast.agents.kafka.partition_reader import is_end, next_messages, open_consumer
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import HatcastError
from hatcast.stream.kmeans.messages import decode_answer
from hatcast.stream.kmeans.setting import ClusteringSetting

# Compare the state file of a clustering with its published records: an older copy would draw noise again.
#
# A state file is durable before a byte of it is sent. So everything on `hats.clusters` is in the file, with the same
# bytes, unless the file is an older copy that was put back, or another copy is in use. What was drawn after the copy is
# published through the centres that follow from it, and the charge is for one draw.
PARTITION: Final = 0  # the topic has one
RESULT: Final = "result"
_CHECK_BATCH: Final = 500
_CHECK_POLL_S: Final = 0.1


def check_published(settings: Settings, state: ClusteringState, path: Path) -> set[str]:
    """Check the published records of a clustering against its state file; return their rounds, and `result`.

    path   of the state file
    Raises HatcastError if the state file does not have it with the same bytes.
    """
    published = _published(settings, state.plan.clustering)
    for name, record in published.items():
        if record != _stored(state, name):
            raise HatcastError(
                f"{path} does not have what {settings.topics.clusters} has of this clustering ({name}): it is an older"
                " copy, or another copy is in use, and would draw noise again that is charged once; go on with the"
                " newest file, or start a new clustering with another --state"
            )
    return {*published}


def _stored(state: ClusteringState, name: str) -> bytes | None:
    if name == RESULT:
        return state.result
    stored = state.round(int(name)) if name.isdecimal() and len(name) < 10 else None
    return None if stored is None else stored[0]


def _published(settings: Settings, clustering: str) -> dict[str, bytes]:
    """Return round or `result` -> the newest record of a clustering on `hats.clusters`."""
    found: dict[str, bytes] = {}
    try:
        with open_consumer(settings, "cluster", {}) as consumer:
            consumer.assign([TopicPartition(settings.topics.clusters, PARTITION, OFFSET_BEGINNING)])
            while True:
                for message in next_messages(consumer, _CHECK_BATCH, _CHECK_POLL_S):
                    if is_end(message):
                        return found
                    owner, _, name = (message.key() or b"").decode(errors="replace").partition("/")
                    if owner == clustering:
                        found[name] = message.value() or b""
    except KafkaException as error:
        raise HatcastError(
            f"{broker_name(settings)} does not show {settings.topics.clusters} ({error.args[0].str()}): grant Read on"
            " it, or start again with the same --state"
        ) from None


_BATCH: Final = 1_000
_POLL_S: Final = 0.2
_DELIVERY_S: Final = 60.0
CLUSTERS: Final = "clusters"  # name of its records in `tools.schemas.RECORDS`


@dataclass(slots=True)
class DeviceAnswers:
    """Acceptable answers to one clustering: of each device its first vector, and its first answer to each round."""

    vectors: dict[str, list[int]] = field(default_factory=dict)  # id -> noisy vector, steps
    clusters: dict[int, dict[str, int]] = field(default_factory=dict)  # round -> id -> cluster

    def of_round(self, number: int) -> tuple[list[int], list[list[int]]]:
        """Return the clusters and vectors of the devices that answered a round and have sent a vector."""
        answered = self.clusters.get(number, {})
        ids = sorted(answered.keys() & self.vectors.keys())
        return [answered[each] for each in ids], [self.vectors[each] for each in ids]


class AnswerReader:
    """Answers on the topic."""

    def __init__(
        self, settings: Settings, plan: ClusteringPlan, setting: ClusteringSetting, consumer: Consumer
    ) -> None:
        self.answers = DeviceAnswers()  # those read so far
        self._settings = settings
        self._plan = plan
        self._setting = setting
        self._consumer = consumer
        self._reached: dict[int, int] = {}

    def collect(self, number: int, closes_ms: int, note: Callable[[int], object]) -> None:
        """Read until all known devices have answered a round, or it is over and the topic is read to its end.

        note   called with the number of answers to this round
        """
        ends: dict[int, int] | None = None
        while True:
            if ends is None and now_ms() >= closes_ms:
                bounds = topic_range(self._settings, self._settings.topics.cluster_answers)
                ends = dict(enumerate(end for _, end in bounds))
            self._read()
            known, answered = self.answers.vectors.keys(), self.answers.clusters.get(number, {}).keys()
            note(len(answered))
            if number > 1 and known and known <= answered:  # the first round may still bring new devices
                return
            if ends is not None and all(self._reached.get(partition, 0) >= end for partition, end in ends.items()):
                return

    def _read(self) -> None:
        for message in self._consumer.consume(_BATCH, _POLL_S):
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name
                if error.code() > 0:
                    name = self._settings.topics.cluster_answers
                    raise HatcastError(f"{broker_name(self._settings)} failed to send {name} ({error.str()})")
                continue  # librdkafka's own: it dials the brokers again
            if partition is None or offset is None:
                continue
            self._reached[partition] = max(self._reached.get(partition, 0), offset + (error is None))
            if error is None:
                self._add(message.value() or b"")

    def _add(self, raw: bytes) -> None:
        found = decode_answer(raw, self._setting, self._settings.policy)
        if found is None or found[0].clustering != self._plan.clustering:
            return
        answer, vector = found
        self.answers.clusters.setdefault(answer.round, {}).setdefault(answer.id, answer.cluster)
        if vector is not None:
            self.answers.vectors.setdefault(answer.id, vector)


@contextmanager
def open_answers(settings: Settings, plan: ClusteringPlan, setting: ClusteringSetting) -> Iterator[AnswerReader]:
    """Open the reader at the clustering's first offsets."""
    topic = settings.topics.cluster_answers
    with open_consumer(settings, "cluster", {}) as consumer:
        consumer.assign([TopicPartition(topic, partition, start) for partition, start in enumerate(plan.answers_from)])
        yield AnswerReader(settings, plan, setting, consumer)


def answer_ends(settings: Settings) -> tuple[int, ...]:
    """Return the current end of each partition of the answers. Raises HatcastError if the topic does not exist."""
    return tuple(end for _, end in topic_range(settings, settings.topics.cluster_answers))


def publish(settings: Settings, event_id: str, record: bytes) -> None:
    """Send a record to `hats.clusters` and wait until Kafka has it. Raises HatcastError if it does not take it.

    event_id   of the CloudEvent, and the record's key: a record that is sent again replaces the first
    """
    topic, failed = settings.topics.clusters, list[str]()

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error.str())

    own = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": int(_DELIVERY_S * 1000)}
    producer = Producer(own | confluent_options(settings))
    try:
        headers = cloud_event(CLUSTERS, event_id, settings.topics.telemetry)
        producer.produce(topic, record, event_id, PARTITION, headers=[*headers], on_delivery=delivered)
        unsent = producer.flush(_DELIVERY_S + 1)
    except (BufferError, KafkaException) as error:
        failed.append(str(error))
        unsent = 0
    if failed or unsent:
        reason = " ".join((failed or ["no answer"])[0].split())
        raise HatcastError(
            f"topic {topic} did not take a record ({reason}): fix that and start again with the same --state"
        )
