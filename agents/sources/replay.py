"""Replay: send a recording to the telemetry topic with its recorded arrival times; the producer of all such feeds."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.queued_producer import QUEUE_FULL_WAIT_S, QUEUE_KIB, PolledProducer, one_line
from hatcast.agents.monitoring.declarations import BRIDGE_READINGS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.sources.pacing import FeedSummary, Pace, ProgressBar
from hatcast.agents.sources.target import open_target, reject_if_late
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.recording import Recording
from hatcast.stream.replay.heartbeats import Replay, TelemetryMessage

# Flow control: limit how far a feed runs ahead of the workers.
#
# librdkafka's mock cluster keeps 5 MiB of a partition and drops older records, consumed or not.
LIMIT_BYTES: Final = 2 << 20
RECORD_BYTES: Final = 80  # overhead of a record beside its key and value, at most
_POLL_INTERVAL_S: Final = 0.05

Offsets = Callable[[], Sequence[int | None]]
"""Return each partition's stored offset, the next record that its worker reads; None before the first checkpoint."""


def stored_offsets(redis: Any, name: str, partitions: int) -> Offsets:
    """Return a reader of a policy's stored offsets. `redis`: a synchronous redis-py client; its errors pass through."""
    keys = [PartitionKeys(name, partition).state for partition in range(partitions)]

    def read() -> list[int | None]:
        with redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hget(key, "offset")
            return [None if offset is None else int(offset) for offset in pipe.execute()]

    return read


class FlowControl:
    """Bound the uncompressed bytes of each partition that were sent and not folded yet.

    It counts offsets from `starts`, so it must be the topic's only producer.
    """

    def __init__(self, offsets: Offsets, starts: Sequence[int], limit_bytes: int = LIMIT_BYTES) -> None:
        """Args:
        offsets:  called only when the limit seems to be reached
        starts:   offset that each partition's first record will get
        """
        self._offsets = offsets
        self._limit = limit_bytes
        self._next_offsets = list(starts)  # the offset of the first record still counted
        self._sizes: list[deque[int]] = [deque() for _ in starts]
        self._bytes_ahead = [0 for _ in starts]

    def wait(self, partition: int, size: int, stop: threading.Event) -> bool:
        """Wait until a record of `size` bytes fits, and count it; return False if the feed has to stop first.

        A record larger than the limit fits when nothing else is ahead.
        """
        size += RECORD_BYTES
        while not self._fits(partition, size):
            self._subtract_folded()
            if not self._fits(partition, size) and stop.wait(_POLL_INTERVAL_S):
                return False
        self._sizes[partition].append(size)
        self._bytes_ahead[partition] += size
        return True

    def _fits(self, partition: int, size: int) -> bool:
        ahead = self._bytes_ahead[partition]
        return not ahead or ahead + size <= self._limit

    def _subtract_folded(self) -> None:
        """Subtract the records that were folded since the last call."""
        for partition, offset in enumerate(self._offsets()):
            sizes = self._sizes[partition]
            while sizes and offset is not None and self._next_offsets[partition] < offset:
                self._bytes_ahead[partition] -= sizes.popleft()
                self._next_offsets[partition] += 1


_QUEUE_MESSAGES: Final = 100_000
_DELIVERY_MS: Final = 60_000
_POLL_EVERY: Final = 1_000  # messages between two polls for delivery reports

ProgressCallback = Callable[[int, int], object]
"""Called now and then with the number of records sent and the time (ms UTC) of the next."""


class RecordedProducer(PolledProducer[None]):
    """Producer of records with their own timestamps."""

    def __init__(
        self, options: Mapping[str, Any], topic: str, stop: threading.Event, flow_control: FlowControl | None = None
    ) -> None:
        """Args:
        options:       connection options (hatcast.agents.kafka.client.confluent_options)
        stop:          set it to stop the feed
        flow_control:  needed if the broker drops records that were not consumed
        """
        super().__init__(
            options,
            topic,
            {
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": _QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_KIB,
                "message.timeout.ms": _DELIVERY_MS,
                "delivery.report.only.error": True,  # a callback for every record halves the rate
            },
        )
        # records, heartbeats: readings and heartbeat records produced so far; `finish` waits until the broker has them
        self.records = 0
        self.heartbeats = 0
        self.stop = stop
        self._flow_control = flow_control
        self._reported = 0
        self._failed = 0
        self._error: KafkaError | None = None

    def send_all(
        self, messages: Iterable[TelemetryMessage], pace: Pace, on_progress: ProgressCallback | None = None
    ) -> bool:
        """Send messages when they are due; return False if the feed was stopped before their end.

        Raises HatcastError if the broker rejects one.
        """
        timestamp = 0

        def meanwhile() -> None:
            self.poll()
            if on_progress is not None:
                on_progress(self.records, timestamp)

        until_poll = 0
        for message in messages:
            timestamp = message.timestamp_ms
            if not pace.wait(timestamp, meanwhile) or not self._send(message):
                return False
            until_poll -= 1
            if until_poll < 0:
                until_poll = _POLL_EVERY
                meanwhile()
        meanwhile()
        return True

    def _send(self, message: TelemetryMessage) -> bool:
        """Produce a message, waiting while the queue is full; return False if the feed has to stop first."""
        partition, _, key, value = message
        size, flow = len(key or b"") + len(value), self._flow_control
        if flow is not None and not flow.wait(partition, size, self.stop):
            return False
        while not self._produce(message):
            if self.stop.is_set():
                return False
            self.poll(QUEUE_FULL_WAIT_S)
        if key is None:
            self.heartbeats += 1
        else:
            self.records += 1
        return True

    def poll(self, seconds: float = 0.0) -> None:
        """Handle delivery reports, waiting up to `seconds` for them. Raises HatcastError if a delivery failed."""
        self._producer.poll(seconds)
        for _, error in self._taken_reports():
            if error is not None:
                self._failed += 1
                self._error = error
        self.in_flight = len(self._producer)  # only errors are reported
        acknowledged = self.records - self._failed - self.in_flight  # a lower bound: heartbeats are in flight too
        if acknowledged > self._reported:
            METERS.count(BRIDGE_READINGS, acknowledged - self._reported)
            self._reported = acknowledged
        if self._error is not None:
            raise self._rejection(self._error)

    def _rejection(self, error: KafkaError, size: int | None = None) -> HatcastError:
        what = f"{self._failed} records" if size is None else f"a record of {size} bytes"
        return HatcastError(
            f"Kafka rejected {what} ({one_line(error)}), so topic {self.topic} has only a part of the feed:"
            " fix that, and send the feed again to a new topic"
        )


_START_AFRESH = "the topic still has what was sent; to start afresh give topics.telemetry and policy.name new names"


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """Callbacks of a feed."""

    on_progress: ProgressCallback  # called now and then by `RecordedProducer.send_all`
    note: Callable[[str], object]  # called with a sentence for the user


def run_replay(
    settings: Settings,
    recording: Recording,
    speedup: float,
    stop: threading.Event,
    *,
    with_end: bool,
    left_out: frozenset[str] = frozenset(),
) -> FeedSummary:
    """Run `hatcast feed replay`: check the target, then send all vehicles except `left_out` (canonical ids).

    Raises HatcastError as `open_target`, `reject_if_late` and `send_recording` do.
    """
    calendar = Calendar(settings.policy)
    now = now_ms()
    first = recording.first_ms
    if first is not None and not 0 <= first <= now + settings.policy.max_ahead_ms:
        first = None  # it is not sent
    target = open_target(settings, first)
    if first is not None:
        reject_if_late(settings, target, calendar, first, _START_AFRESH)
    plan = Replay(settings.policy, calendar, target.router, now, left_out)
    with (
        ProgressBar(calendar, len(recording)) as bar,
        RecordedProducer(confluent_options(settings), settings.topics.telemetry, stop) as sender,
    ):
        listener = ProgressListener(bar.show, bar.note)
        pace = replay_pace(settings.policy, speedup, stop)
        finished = send_recording(recording, plan, sender, pace, with_end=with_end, listener=listener)
    return FeedSummary(
        topic=sender.topic,
        partitions=target.router.partitions,
        records=sender.records,
        ticks=sender.heartbeats,
        undecodable=plan.undecodable,
        arrived_in_future=plan.arrived_in_future,
        arrived_before_1970=plan.arrived_before_1970,
        seconds=round(bar.seconds, 3),
        finished=finished,
    )


def send_recording(
    recording: Recording,
    plan: Replay,
    sender: RecordedProducer,
    pace: Pace,
    *,
    with_end: bool,
    listener: ProgressListener,
) -> bool:
    """Send a recording, and its last heartbeat records if `with_end`; return False if it was stopped before its end.

    Returns once the broker has everything that was sent. Raises HatcastError if the broker rejects a record,
    RecordingError.
    """
    finished = sender.send_all(plan.messages(recording), pace, listener.on_progress)
    end_ms = plan.end_ms()
    if finished and with_end and end_ms is not None:
        # The time after the last record was not recorded: wait only for what is ahead of the wall clock.
        pace.disable_pacing()
        missing_s = (end_ms - pace.ahead_ms - now_ms()) / 1000
        if missing_s > 0:
            listener.note(f"waiting {missing_s:.0f} s until the last slot may be closed (--no-end omits that)")
        finished = sender.send_all(plan.end(), pace, listener.on_progress)
    sender.finish()
    return finished


def replay_pace(policy: Policy, speedup: float, stop: threading.Event) -> Pace:
    """Return the pace of a replay: no record is sent so early that rule 1 rejects it."""
    return Pace(speedup, policy.max_ahead_ms, stop)
