"""A device's part in clusterings: rounds in, answers out, each once its day is final."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.device.answers import Answering, AnswerTally
from hatcast.agents.device.fold import Rules
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.rounds import RoundReader, open_rounds
from hatcast.agents.device.store import Store
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.kmeans.messages import Round
from hatcast.stream.mechanisms import Noise
from hatcast.stream.units import nano_floor

log = structlog.get_logger()

_MOST_OPEN: Final = 100  # rounds that wait for their slots; an operator has one for each clustering that is under way
_FINISH_S: Final = 10.0  # what the broker does not acknowledge until then is sent at the next start


class Clusterings:
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
        if has_room and self._clock() < round_.closes and self._answering.may_answer(round_):
            self._open[key] = round_

    def finish(self) -> None:
        """Wait for the broker to acknowledge the answers."""
        self._outbox.finish(_FINISH_S)


@contextmanager
def open_clusterings(
    settings: Settings, rules: Rules, store: Store, noise: Noise, epsilon: float
) -> Iterator[Clusterings]:
    """Open a device's clusterings and send its unsent answers. Raises HatcastError if a topic does not exist.

    epsilon   the most that all clusterings of one local date may cost
    """
    topic = settings.topics.cluster_answers
    partitions = len(topic_range(settings, topic))
    with ExitStack() as stack:
        reader = stack.enter_context(open_rounds(settings))
        outbox = stack.enter_context(Outbox(confluent_options(settings), topic, partitions, store.answers, live=now_ms))
        outbox.send(store.answers.unsent())
        yield Clusterings(Answering(rules, store, noise, nano_floor(epsilon)), reader, outbox, now_ms)
