"""A device's part in clusterings: rounds in, answers out, each once its day is final."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.device.fold import Rules
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.store import DeviceStore
from hatcast.agents.device.stored import StoredMessage
from hatcast.agents.kafka.client import broker_name, confluent_options
from hatcast.agents.kafka.partition_reader import open_consumer
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import closes_at
from hatcast.stream.kmeans.groups import nearest, noisy_vector, randomised_cluster
from hatcast.stream.kmeans.messages import ClusterAnswer, Round, RoundRequest, accepted, decode_round, encode, speeds_of
from hatcast.stream.kmeans.setting import hat_vectors
from hatcast.stream.mechanisms import Noise
from hatcast.stream.units import nano_ceil, nano_floor

if TYPE_CHECKING:
    from confluent_kafka import Consumer


_BATCH: Final = 500


class RoundReader:
    """Rounds on the topic, in order."""

    def __init__(self, settings: Settings, consumer: "Consumer") -> None:
        self._broker = broker_name(settings)
        self._topic = settings.topics.clusters
        self._consumer = consumer

    def take(self, seconds: float = 0.0) -> Iterator[Round]:
        """Yield the rounds that have arrived, waiting up to `seconds`. Raises HatcastError if the topic is denied."""
        from confluent_kafka import KafkaError

        for message in self._consumer.consume(_BATCH, seconds):
            error = message.error()
            if error is not None:
                # Errors below 0 are librdkafka's own: the end of the partition, or brokers that it dials again.
                if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    raise HatcastError(f"{self._broker} does not show {self._topic} ({error.str()}): grant Read on it")
                continue
            round_ = decode_round(message.value() or b"")
            if round_ is not None:
                yield round_


# From rounds of a clustering to stored answers.    [docs/proofs.md, "Clusterings with devices"]

_USER = np.zeros(1, np.uint64)  # one vehicle at a time needs no pseudonym


@dataclass(slots=True)
class AnswerTally:
    """Number of rounds, one for each vehicle, by result."""

    answered: int = 0  # answer drawn and stored now
    repeated: int = 0  # answered before: the stored bytes are sent again
    rejected: int = 0  # other parameters than the policy's or the first round's, or no budget left


class Answering:
    """Answers rounds for one device, or for a fleet."""

    def __init__(self, rules: Rules, store: DeviceStore, noise: Noise, epsilon_nano: int) -> None:
        """Args: `epsilon_nano`, the most that all clusterings of one local date may cost a vehicle, in 1e-9."""
        self.tally = AnswerTally()
        self._rules = rules
        self._store = store
        self._noise = noise
        self._epsilon_nano = epsilon_nano

    def final_ms(self, round_: Round) -> int | None:
        """Return the time (ms UTC) from which the operator rejects readings of the round's slots; None if unknown."""
        calendar = self._rules.calendar
        slots = [calendar.slot_named(round_.date, name) for name in round_.slots]
        found = [closes_at(slot, self._rules.policy) for slot in slots if slot is not None]
        return max(found, default=None)

    def allows(self, round_: Round) -> bool:
        """Return whether the policy allows a round."""
        return accepted(round_, self._rules.policy) is not None and self.final_ms(round_) is not None

    def draw(self, round_: Round, at_ms: int) -> list[StoredMessage]:
        """Return the answers of all vehicles with readings on the round's date, stored and durable.

        A round that a vehicle has answered gets the stored bytes, whatever it says now. at_ms: wall clock, ms UTC.
        """
        request = accepted(round_, self._rules.policy)
        store = self._store.answers
        if self._store.is_forgotten(round_.date):
            return []
        found = []
        with self._store.transaction():
            sums = store.sums(round_.date)
            for vehicle, rows in sums.items():
                stored = store.find(vehicle, round_.clustering, round_.round)
                if stored is not None:
                    self.tally.repeated += 1
                else:
                    stored = None if request is None else self._draw(vehicle, rows, request, at_ms)
                if stored is None:
                    self.tally.rejected += 1
                else:
                    found.append(stored)
        return found

    def _draw(
        self, vehicle: str, rows: list[tuple[str, int, int]], request: RoundRequest, at_ms: int
    ) -> StoredMessage | None:
        round_, setting = request.round, request.setting
        store, parameters = self._store.answers, round_.parameters
        joined, first = store.joined(vehicle, round_.clustering), False
        if joined is None:
            cost = nano_ceil(round_.epsilon)
            if not self._fits(vehicle, round_.date, cost):
                return None
            joined, first = store.join(vehicle, round_.clustering, round_.date, parameters, cost), True
        if joined.parameters != parameters:
            return None
        _, vectors = hat_vectors(_contributions(rows), round_.slots, self._rules.policy)
        true_cluster = int(nearest(vectors, request.centres)[0])
        vector = noisy_vector(vectors[0].tolist(), setting, self._noise) if first else None
        answer = ClusterAnswer(
            clustering=round_.clustering,
            round=round_.round,
            id=joined.id,
            cluster=randomised_cluster(true_cluster, setting, self._noise),
            vector=None if vector is None else speeds_of(vector, self._rules.policy),
        )
        self.tally.answered += 1
        new = StoredMessage(0, joined.id, encode(answer), at_ms, round_.closes)
        return store.add((vehicle, round_.clustering, round_.round), round_.date, new)

    def _fits(self, vehicle: str, date: str, cost_nano: int) -> bool:
        """Return whether a clustering fits the device's own epsilon, and the day's limit beside its reports."""
        _, spent = self._store.spent(vehicle, date)
        clusterings = self._store.answers.spent(vehicle, date)
        return clusterings + cost_nano <= self._epsilon_nano and spent + cost_nano <= self._rules.limit_nano


def _contributions(rows: list[tuple[str, int, int]]) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    for slot, count, total in rows:
        yield slot, _USER, np.array([count], np.int64), np.array([total], np.int64)


log = structlog.get_logger()

_MOST_OPEN: Final = 100  # rounds that wait for their slots; an operator has one for each clustering that is under way
_FINISH_S: Final = 10.0  # what the broker does not acknowledge until then is sent at the next start


class DeviceClusterings:
    """Open clusterings of a device or a fleet."""

    def __init__(self, answering: Answering, reader: RoundReader, outbox: Outbox, clock: Callable[[], int]) -> None:
        self._answering = answering
        self._reader = reader
        self._outbox = outbox
        self._clock = clock
        self._open: dict[tuple[str, int], Round] = {}

    @property
    def tally(self) -> AnswerTally:
        """The counts of answers."""
        return self._answering.tally

    def poll(self, *, ended: bool, seconds: float = 0.0) -> None:
        """Read rounds, and answer those that are due. Raises HatcastError as `Outbox.poll`.

        ended    the readings have ended, so every day is final; else a round waits until its slots are
        seconds  how long to wait for a round
        """
        for round_ in self._reader.take(seconds):
            self._wait_for(round_)
        now = self._clock()
        for key, round_ in list(self._open.items()):
            if now >= round_.closes:
                del self._open[key]
            elif ended or ((final := self._answering.final_ms(round_)) is not None and now >= final):
                del self._open[key]
                answers = self._answering.draw(round_, now)
                self._outbox.send(answers)
                log.info("round of a clustering answered", round=round_.round, answers=len(answers))
        self._outbox.poll()

    def _wait_for(self, round_: Round) -> None:
        """Store a round until it is due, in bounded memory: who may write rounds must not exhaust a device's."""
        key = round_.clustering, round_.round
        has_room = key in self._open or len(self._open) < _MOST_OPEN
        if has_room and self._clock() < round_.closes:
            if self._answering.allows(round_):
                self._open[key] = round_
            else:
                self.tally.rejected += 1

    def finish(self) -> None:
        """Wait for the broker to acknowledge the answers."""
        self._outbox.finish(_FINISH_S)


@contextmanager
def open_clusterings(
    settings: Settings, rules: Rules, store: DeviceStore, noise: Noise, epsilon: float
) -> Iterator[DeviceClusterings]:
    """Open a device's clusterings and send its unsent answers. Raises HatcastError if a topic does not exist.

    epsilon   the most that all clusterings of one local date may cost
    """
    from confluent_kafka import TopicPartition

    topic, rounds = settings.topics.cluster_answers, settings.topics.clusters
    partitions, starts = len(topic_range(settings, topic)), topic_range(settings, rounds)
    with ExitStack() as stack:
        consumer = stack.enter_context(open_consumer(settings, "device", {}))
        consumer.assign([TopicPartition(rounds, number, start) for number, (start, _) in enumerate(starts)])
        outbox = stack.enter_context(Outbox(confluent_options(settings), topic, partitions, store.answers, live=now_ms))
        outbox.send(store.answers.unsent())
        yield DeviceClusterings(
            Answering(rules, store, noise, nano_floor(epsilon)), RoundReader(settings, consumer), outbox, now_ms
        )
