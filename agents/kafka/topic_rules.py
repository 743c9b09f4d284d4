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
UNLIMITED: Final = "-1"  # Kafka's word for retention without an end

TIMESTAMP_TYPE: Final = "message.timestamp.type"
AFTER_MAX: Final = "message.timestamp.after.max.ms"
BEFORE_MAX: Final = "message.timestamp.before.max.ms"
RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"
COMPRESSION: Final = "compression.type"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
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
    fix     what to do about it, in words or as a command
    """

    topic: str
    setting: str
    found: str
    expected: str
    fix: str
    fatal: bool

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.found}, wanted {self.expected}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What one setting must be.

    made     its value when hatcast makes the topic
    wanted   the same for people
    holds    whether a value keeps the promise
    breaks   whether a value that does not hold keeps a worker from starting
    """

    default: str
    expected: str
    accepts: Callable[[str], bool]
    is_fatal: Callable[[str], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as hatcast makes it; `partitions` None: any number will do."""

    name: str
    partitions: int | None
    rules: Mapping[str, Rule]

    @property
    def configs(self) -> dict[str, str]:
        """Kafka's settings for a new topic."""
        return {setting: rule.default for setting, rule in self.rules.items()}


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the broker has it. `configs` is empty where this user may not read them."""

    partitions: int
    configs: Mapping[str, str]

    @property
    def retention_ms(self) -> int | None:
        """None: records are kept for ever."""
        text = self.configs.get(RETENTION, UNLIMITED)
        return None if text == UNLIMITED else int(text)

    @property
    def log_append_time(self) -> bool:
        """True if the broker replaces the timestamps of records by its own clock."""
        return self.configs.get(TIMESTAMP_TYPE) == "LogAppendTime"


def telemetry_topic(settings: Settings) -> TopicSpec:
    """The telemetry topic. Raises SettingError if it could not hold what hatcast promises."""
    retention = settings.retention_ms
    stamped = settings.policy.relation is Relation.ADD_REMOVE
    ahead = settings.policy.max_ahead_ms
    rules = {
        TIMESTAMP_TYPE: _exactly("LogAppendTime" if stamped else "CreateTime"),
        CLEANUP: _exactly("delete"),  # compaction would keep one reading a vehicle
        COMPRESSION: Rule(
            default="producer",
            expected=f"producer, uncompressed or {' or '.join(readable_codecs())}",
            accepts=is_readable,
        ),
        # A worker sends ticks there, and others may feed it: too little for our feeds is theirs to refuse.
        MAX_MESSAGE_BYTES: _at_least(FEED_BATCH_BYTES, fatal_below=WORKER_BATCH_BYTES),
        RETENTION: Rule(
            default=UNLIMITED if retention is None else str(retention),
            expected=f"at least {RETENTION_MIN_MS} (72h), or -1 for ever",
            accepts=lambda value: value == UNLIMITED or int(value) >= RETENTION_MIN_MS,
        ),
        RETENTION_BYTES: Rule(
            default=UNLIMITED,
            expected="-1, so that only age deletes",
            accepts=lambda value: value == UNLIMITED,
            is_fatal=lambda _: False,  # what is deleted too early is a gap, and a worker stops at a gap
        ),
    }
    if not stamped:  # where the broker stamps records, none is ahead of its clock
        rules[AFTER_MAX] = Rule(
            default=str(ahead),
            expected=f"{ahead} (policy.max_ahead)",
            accepts=lambda value: int(value) == ahead,
            is_fatal=lambda value: int(value) > ahead,  # below it the broker refuses more than need be, and says so
        )
    return TopicSpec(settings.topics.telemetry, settings.kafka.partitions, rules)


def output_topics(settings: Settings, telemetry_partitions: int) -> list[TopicSpec]:
    """The topics that hatcast writes, and that devices do.

    Releases and budget are the ledger's second home, so nothing but compaction may delete there.
    """
    compacted = {
        CLEANUP: _exactly("compact"),
        COMPRESSION: Rule(
            default="producer",
            expected="producer, gzip or uncompressed, which every client can read",
            accepts=lambda value: value in ("producer", "gzip", "uncompressed"),
            is_fatal=lambda value: not is_readable(value),
        ),
        MAX_MESSAGE_BYTES: _at_least(WORKER_BATCH_BYTES),
    }
    brief = {
        CLEANUP: _exactly("delete", fatal=False),
        RETENTION: Rule(
            default=str(DEAD_LETTERS_MS),
            expected=f"{DEAD_LETTERS_MS} (1 day) or less",
            accepts=lambda value: value != UNLIMITED and int(value) <= DEAD_LETTERS_MS,
            is_fatal=lambda _: False,
        ),
        MAX_MESSAGE_BYTES: _at_least(
            WORKER_BATCH_BYTES, fatal_below=0
        ),  # what is not taken is counted, and holds up nothing
    }
    topics = settings.topics
    reports = [reports_topic(settings, telemetry_partitions)] if settings.policy.takes_reports else []
    return [
        *reports,
        TopicSpec(topics.means, telemetry_partitions, compacted),
        TopicSpec(topics.queries, telemetry_partitions, compacted),
        TopicSpec(topics.budget, 1, compacted),
        TopicSpec(topics.dead_letters, 1, brief),
        TopicSpec(topics.registry, 1, compacted),
    ]


def reports_topic(settings: Settings, telemetry_partitions: int) -> TopicSpec:
    """What devices send: kept and stamped as telemetry is."""
    return TopicSpec(settings.topics.reports, telemetry_partitions, telemetry_topic(settings).rules)


def readable_codecs() -> list[str]:
    """Return the compressions that a worker can read, by Kafka's names: aiokafka leaves some to a library."""
    from aiokafka import codec

    known = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}
    return [name for name, has in known.items() if has()]


def is_readable(compression: str) -> bool:
    """Return whether a worker can read what a topic of this `compression.type` holds, as far as the topic says."""
    return compression in ("producer", "uncompressed", *readable_codecs())


def _at_least(wanted: int, *, fatal_below: int | None = None) -> Rule:
    """Bytes of the largest batch that a topic takes."""
    least = wanted if fatal_below is None else fatal_below
    return Rule(
        default=str(_KAFKAS_DEFAULT),
        expected=f"at least {wanted}, the largest batch that hatcast sends there",
        accepts=lambda value: int(value) >= wanted,
        is_fatal=lambda value: int(value) < least,
    )


def _exactly(value: str, *, fatal: bool = True) -> Rule:
    return Rule(value, value, lambda found: found == value, lambda _: fatal)


def findings(spec: TopicSpec, state: TopicState, settings: Settings) -> list[Finding]:
    """What of an existing topic is not as it should be."""
    found = _partition_findings(spec, state, settings)
    if not state.configs:
        fix = "allow this user DESCRIBE_CONFIGS on it"
        return [*found, Finding(spec.name, "settings", "not readable", "readable", fix, fatal=True)]
    for setting, rule in spec.rules.items():
        value = state.configs.get(setting)
        if value is None:  # a broker before 3.6 has no AFTER_MAX: such a record holds its partition up
            fix = (
                "update Kafka, or be sure that the feeds' clocks are right: a record dated ahead holds its partition up"
            )
            found.append(Finding(spec.name, setting, "unknown to this broker", rule.expected, fix, fatal=False))
        elif not rule.accepts(value):
            fix = alter_command(settings, spec.name, setting, rule.default)
            found.append(Finding(spec.name, setting, value, rule.expected, fix, fatal=rule.is_fatal(value)))
    return found


def _partition_findings(spec: TopicSpec, state: TopicState, settings: Settings) -> list[Finding]:
    """Telemetry may have any number of partitions: it is fixed by the first start, not by the settings.

    So may topics that have one: all of it goes to partition 0 then, and who reads the ledger back reads all that there
    are. Kafka takes no partition away again, so to refuse them would leave no way out.
    """
    topics = settings.topics
    if spec.name == topics.telemetry or spec.partitions in (None, state.partitions):
        return []
    grown = spec.name in (topics.budget, topics.dead_letters)
    fix = "name another topic under [topics] before the first start, and hatcast makes it"
    if grown:
        fix = "nothing need be done: records are in partition 0, and the others stay empty"
    elif spec.name == topics.registry:
        fix = "delete it while it is empty, and hatcast makes it"
    return [Finding(spec.name, PARTITIONS, str(state.partitions), str(spec.partitions), fix, fatal=not grown)]


def alter_command(settings: Settings, topic: str, setting: str, value: str) -> str:
    """Kafka's own command that changes a topic's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server {settings.kafka.bootstrap_servers} --alter --entity-type topics"
        f" --entity-name {topic} --add-config {setting}={value}"
    )
