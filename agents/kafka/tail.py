"""Follow published records: of `hats.means`, `hats.queries`, `hats.estimates` and `hats.running`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Final

import msgspec

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import kafka_python_options, translate_kafka_errors
from hatcast.agents.kafka.cloud_events import is_from_other_domain
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import UNREADABLE

POLL_SECONDS: Final = 0.5


class DisplayedNormal(msgspec.Struct, frozen=True):
    """A mean of an estimate, or a running mean. Numbers keep their digits."""

    value: Decimal
    interval95: tuple[Decimal, Decimal]


class DisplayedGroup(msgspec.Struct, frozen=True):
    """Mean of one group of a hybrid policy."""

    mean: Decimal
    users: int


class DisplayedValue(msgspec.Struct, frozen=True):
    """One of several values of a release. Numbers keep their digits."""

    name: str
    unit: str
    mean: Decimal
    interval95: tuple[Decimal, Decimal]


class DisplayedRunning(msgspec.Struct, frozen=True):
    """A running sum: the first local date of its horizon."""

    horizon: str


class DisplayedRelease(msgspec.Struct, frozen=True):
    """Fields of a release that are displayed. Its values are absent unless it is `released`. Numbers keep their digits.

    A `query` that is a text, and the fields after it, belong to the answer to a query over days: its first and last
    date, its number of dates, how many of them it used, its limit, and why it is suppressed. `value` is the name of a
    value other than the speed. `stage` and `road` belong to an estimate; `running_id`, its `name` and its number of
    `slots` to a running mean, `running` to a running sum of `[policy.continual]`. `groups` are those of a hybrid policy
    that publishes each group's own mean.
    """

    cell: str
    date: str
    slot: str
    end: str
    release_id: str = ""
    estimate_id: str = ""
    running_id: str = ""
    name: str = ""
    slots: int = 0
    status: str = ""
    estimator: str = ""
    mean: Decimal | DisplayedNormal | None = None
    unit: str = ""
    interval95: tuple[Decimal, Decimal] | None = None
    values: tuple[DisplayedValue, ...] = ()
    query: str | dict[str, object] = ""
    first_date: str = ""
    last_date: str = ""
    days: int = 1
    days_used: int = 1
    speed_limit: Decimal | None = None
    threshold: Decimal | None = None
    value: str = ""
    reason: str = ""
    stage: str = ""
    road: DisplayedNormal | None = None
    groups: dict[str, DisplayedGroup] = {}
    running: DisplayedRunning | None = None

    @property
    def policy(self) -> str:
        """Name of the record's policy: the first part of its id; empty if there is none."""
        return (self.release_id or self.estimate_id or self.running_id).partition("/")[0]


_decode: Final = msgspec.json.Decoder(DisplayedRelease).decode


def read_release(value: bytes) -> DisplayedRelease | None:
    """Decode a record; None if it is not a release."""
    try:
        return _decode(value)
    except UNREADABLE:
        return None


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
