"""What a topic must be, so that hatcast can keep its promises.    [design 6, Topics]

Pure: settings in, wanted topics out; what is there is compared by `findings`. `agents/kafka/topics.py` asks the broker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hatcast.agents.config.settings import RETENTION_MIN_MS, Settings
from hatcast.stream.policy.policy import Relation
from hatcast.stream.units import DAY_MS

DEAD_LETTERS_MS: Final = DAY_MS
FOR_EVER: Final = "-1"  # Kafka's word for retention without an end

TIMESTAMP_TYPE: Final = "message.timestamp.type"
AFTER_MAX: Final = "message.timestamp.after.max.ms"
BEFORE_MAX: Final = "message.timestamp.before.max.ms"
RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"
COMPRESSION: Final = "compression.type"
LARGEST: Final = "max.message.bytes"
PARTITIONS: Final = "partitions"

# The largest batch that each client of ours sends, before compression; clients leave a batch as it is where compression
# would not shrink it, and a topic may decompress it. A record alone in its batch is far smaller.
WORKER_BATCH_BYTES: Final = 16_384  # aiokafka's max_batch_size: releases, answers, budget, ticks
FEED_BATCH_BYTES: Final = 1_000_000  # librdkafka's message.max.bytes: feeds and devices
_KAFKAS_DEFAULT: Final = 1_048_588


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one topic that is not as it should be.

    breaks   True: a promise could not be kept, so a worker does not start. False: a warning
    mend     what to do about it, in words or as a command
    """

    topic: str
    setting: str
    found: str
    wanted: str
    mend: str
    breaks: bool

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.found}, wanted {self.wanted}; {self.mend}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What one setting must be.

    made     its value when hatcast makes the topic
    wanted   the same for people
    holds    whether a value keeps the promise
    breaks   whether a value that does not hold keeps a worker from starting
    """

    made: str
    wanted: str
    holds: Callable[[str], bool]
    breaks: Callable[[str], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic as hatcast makes it; `partitions` None: any number will do."""

    name: str
    partitions: int | None
    rules: Mapping[str, Rule]

    @property
    def configs(self) -> dict[str, str]:
        """Kafka's settings for a new topic."""
        return {setting: rule.made for setting, rule in self.rules.items()}


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the broker has it. `configs` is empty where this user may not read them."""

    partitions: int
    configs: Mapping[str, str]

    @property
    def retention_ms(self) -> int | None:
        """None: records are kept for ever."""
        text = self.configs.get(RETENTION, FOR_EVER)
        return None if text == FOR_EVER else int(text)

    @property
    def log_append_time(self) -> bool:
        """True if the broker replaces the timestamps of records by its own clock."""
        return self.configs.get(TIMESTAMP_TYPE) == "LogAppendTime"


def telemetry_topic(settings: Settings) -> WantedTopic:
    """The telemetry topic. Raises SettingError if it could not hold what hatcast promises."""
    retention = settings.retention_ms
    stamped = settings.policy.relation is Relation.ADD_REMOVE
    ahead = settings.policy.max_ahead_ms
    rules = {
        TIMESTAMP_TYPE: _exactly("LogAppendTime" if stamped else "CreateTime"),
        CLEANUP: _exactly("delete"),  # compaction would keep one reading a vehicle
        COMPRESSION: Rule(
            made="producer",
            wanted=f"producer, uncompressed or {' or '.join(readable_codecs())}",
            holds=is_readable,
        ),
        # A worker sends ticks there, and others may feed it: too little for our feeds is theirs to refuse.
        LARGEST: _at_least(FEED_BATCH_BYTES, breaks_below=WORKER_BATCH_BYTES),
        RETENTION: Rule(
            made=FOR_EVER if retention is None else str(retention),
            wanted=f"at least {RETENTION_MIN_MS} (72h), or -1 for ever",
            holds=lambda value: value == FOR_EVER or int(value) >= RETENTION_MIN_MS,
        ),
        RETENTION_BYTES: Rule(
            made=FOR_EVER,
            wanted="-1, so that only age deletes",
            holds=lambda value: value == FOR_EVER,
            breaks=lambda _: False,  # what is deleted too early is a gap, and a worker stops at a gap
        ),
    }
    if not stamped:  # where the broker stamps records, none is ahead of its clock
        rules[AFTER_MAX] = Rule(
            made=str(ahead),
            wanted=f"{ahead} (policy.max_ahead)",
            holds=lambda value: int(value) == ahead,
            breaks=lambda value: int(value) > ahead,  # below it the broker refuses more than need be, and says so
        )
    return WantedTopic(settings.topics.telemetry, settings.kafka.partitions, rules)


def output_topics(settings: Settings, telemetry_partitions: int) -> list[WantedTopic]:
    """The topics that hatcast writes, and that devices do.

    Releases and budget are the ledger's second home, so nothing but compaction may delete there.
    """
    compacted = {
        CLEANUP: _exactly("compact"),
        COMPRESSION: Rule(
            made="producer",
            wanted="producer, gzip or uncompressed, which every client can read",
            holds=lambda value: value in ("producer", "gzip", "uncompressed"),
            breaks=lambda value: not is_readable(value),
        ),
        LARGEST: _at_least(WORKER_BATCH_BYTES),
    }
    brief = {
        CLEANUP: _exactly("delete", breaks=False),
        RETENTION: Rule(
            made=str(DEAD_LETTERS_MS),
            wanted=f"{DEAD_LETTERS_MS} (1 day) or less",
            holds=lambda value: value != FOR_EVER and int(value) <= DEAD_LETTERS_MS,
            breaks=lambda _: False,
        ),
        LARGEST: _at_least(WORKER_BATCH_BYTES, breaks_below=0),  # what is not taken is counted, and holds up nothing
    }
    topics = settings.topics
    reports = [reports_topic(settings, telemetry_partitions)] if settings.policy.takes_reports else []
    return [
        *reports,
        WantedTopic(topics.means, telemetry_partitions, compacted),
        WantedTopic(topics.queries, telemetry_partitions, compacted),
        WantedTopic(topics.budget, 1, compacted),
        WantedTopic(topics.dead_letters, 1, brief),
        WantedTopic(topics.registry, 1, compacted),
    ]


def reports_topic(settings: Settings, telemetry_partitions: int) -> WantedTopic:
    """What devices send: kept and stamped as telemetry is."""
    return WantedTopic(settings.topics.reports, telemetry_partitions, telemetry_topic(settings).rules)


def readable_codecs() -> list[str]:
    """Return the compressions that a worker can read, by Kafka's names: aiokafka leaves some to a library."""
    from aiokafka import codec

    known = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}
    return [name for name, has in known.items() if has()]


def is_readable(compression: str) -> bool:
    """Return whether a worker can read what a topic of this `compression.type` holds, as far as the topic says."""
    return compression in ("producer", "uncompressed", *readable_codecs())


def _at_least(wanted: int, *, breaks_below: int | None = None) -> Rule:
    """Bytes of the largest batch that a topic takes."""
    least = wanted if breaks_below is None else breaks_below
    return Rule(
        made=str(_KAFKAS_DEFAULT),
        wanted=f"at least {wanted}, the largest batch that hatcast sends there",
        holds=lambda value: int(value) >= wanted,
        breaks=lambda value: int(value) < least,
    )


def _exactly(value: str, *, breaks: bool = True) -> Rule:
    return Rule(value, value, lambda found: found == value, lambda _: breaks)


def findings(wanted: WantedTopic, state: TopicState, settings: Settings) -> list[Finding]:
    """What of an existing topic is not as it should be."""
    found = _partition_findings(wanted, state, settings)
    if not state.configs:
        mend = "allow this user DESCRIBE_CONFIGS on it"
        return [*found, Finding(wanted.name, "settings", "not readable", "readable", mend, breaks=True)]
    for setting, rule in wanted.rules.items():
        value = state.configs.get(setting)
        if value is None:  # a broker before 3.6 has no AFTER_MAX: such a record holds its partition up
            mend = (
                "update Kafka, or be sure that the feeds' clocks are right: a record dated ahead holds its partition up"
            )
            found.append(Finding(wanted.name, setting, "unknown to this broker", rule.wanted, mend, breaks=False))
        elif not rule.holds(value):
            mend = alter_command(settings, wanted.name, setting, rule.made)
            found.append(Finding(wanted.name, setting, value, rule.wanted, mend, breaks=rule.breaks(value)))
    return found


def _partition_findings(wanted: WantedTopic, state: TopicState, settings: Settings) -> list[Finding]:
    """Telemetry may have any number of partitions: it is fixed by the first start, not by the settings.

    So may topics that have one: all of it goes to partition 0 then, and who reads the ledger back reads all that there
    are. Kafka takes no partition away again, so to refuse them would leave no way out.
    """
    topics = settings.topics
    if wanted.name == topics.telemetry or wanted.partitions in (None, state.partitions):
        return []
    grown = wanted.name in (topics.budget, topics.dead_letters)
    mend = "name another topic under [topics] before the first start, and hatcast makes it"
    if grown:
        mend = "nothing need be done: records are in partition 0, and the others stay empty"
    elif wanted.name == topics.registry:
        mend = "delete it while it is empty, and hatcast makes it"
    return [Finding(wanted.name, PARTITIONS, str(state.partitions), str(wanted.partitions), mend, breaks=not grown)]


def alter_command(settings: Settings, topic: str, setting: str, value: str) -> str:
    """Kafka's own command that changes a topic's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server {settings.kafka.bootstrap_servers} --alter --entity-type topics"
        f" --entity-name {topic} --add-config {setting}={value}"
    )
