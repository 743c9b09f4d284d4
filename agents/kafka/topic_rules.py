"""Topic settings that hatcast's guarantees need, and the comparison with existing topics.

Pure: `telemetry_topic` and `output_topics` derive the topics from the configuration, `findings` compares an existing
topic with them. `agents/kafka/topics.py` talks to the broker. See docs/specification/topics.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hatcast.agents.config.settings import RETENTION_MIN_MS, Settings
from hatcast.stream.policy.policy import Relation
from hatcast.stream.units import DAY_MS

DEAD_LETTERS_MS: Final = DAY_MS
ANSWERS_MS: Final = 7 * DAY_MS
UNLIMITED: Final = "-1"  # Kafka's value for unlimited retention

TIMESTAMP_TYPE: Final = "message.timestamp.type"
AFTER_MAX: Final = "message.timestamp.after.max.ms"
BEFORE_MAX: Final = "message.timestamp.before.max.ms"
RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"
COMPRESSION: Final = "compression.type"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
PARTITIONS: Final = "partitions"

# The largest batch that each of our clients sends, before compression: clients do not compress a batch that would not
# shrink, and a topic may decompress it. A single record is far smaller.
WORKER_BATCH_BYTES: Final = 16_384  # aiokafka's max_batch_size: releases, answers, budget, heartbeat records
FEED_BATCH_BYTES: Final = 1_000_000  # librdkafka's message.max.bytes: feeds and devices
_KAFKA_DEFAULT_BYTES: Final = 1_048_588


@dataclass(frozen=True, slots=True)
class TopicFinding:
    """Difference between an existing topic and its specification."""

    topic: str
    setting: str
    found: str
    expected: str
    fix: str  # what to do, in words or as a command
    fatal: bool  # True: a guarantee would not hold, so a worker does not start; False: a warning

    @property
    def difference(self) -> str:
        """The topic, the setting and both of its values, without the fix."""
        return f"topic {self.topic}: {self.setting} is {self.found}, expected {self.expected}"

    def __str__(self) -> str:
        return f"{self.difference}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Requirement on one topic setting."""

    default: str  # the value with which hatcast creates the topic
    expected: str  # the accepted values, in words
    accepts: Callable[[str], bool]  # whether a value is accepted
    # whether a value that is not accepted prevents a worker from starting
    is_fatal: Callable[[str], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Specification of a topic. `partitions` None: any number is accepted."""

    name: str
    partitions: int | None
    rules: Mapping[str, Rule]

    @property
    def configs(self) -> dict[str, str]:
        """Kafka settings for creating the topic."""
        return {setting: rule.default for setting, rule in self.rules.items()}


@dataclass(frozen=True, slots=True)
class TopicState:
    """Existing topic. `configs` is empty if this user may not read them."""

    partitions: int
    configs: Mapping[str, str]

    @property
    def retention_ms(self) -> int | None:
        """Retention in ms; None: unlimited."""
        text = self.configs.get(RETENTION, UNLIMITED)
        return None if text == UNLIMITED else int(text)

    @property
    def log_append_time(self) -> bool:
        """True if the broker replaces record timestamps with its own clock's time."""
        return self.configs.get(TIMESTAMP_TYPE) == "LogAppendTime"


def telemetry_topic(settings: Settings) -> TopicSpec:
    """Return the specification of the telemetry topic. Raises SettingError if no topic could satisfy it."""
    retention = settings.retention_ms
    log_append_time = settings.policy.relation is Relation.ADD_REMOVE
    ahead = settings.policy.max_ahead_ms
    rules = {
        TIMESTAMP_TYPE: _exactly("LogAppendTime" if log_append_time else "CreateTime"),
        CLEANUP: _exactly("delete"),  # compaction would leave one reading per vehicle
        COMPRESSION: Rule("producer", f"producer, uncompressed or {' or '.join(readable_codecs())}", is_readable),
        # Fatal for a worker only if its heartbeat records do not fit. Feeds check the limit for their own batches.
        MAX_MESSAGE_BYTES: _at_least(FEED_BATCH_BYTES, fatal_below=WORKER_BATCH_BYTES),
        RETENTION: _kept_for(RETENTION_MIN_MS, "72h", UNLIMITED if retention is None else str(retention)),
        RETENTION_BYTES: Rule(
            default=UNLIMITED,
            expected="-1, so that records are deleted by age only",
            accepts=lambda value: value == UNLIMITED,
            is_fatal=lambda _: False,  # records deleted too early leave a gap, and a worker stops at a gap
        ),
    }
    if not log_append_time:  # with LogAppendTime no record is ahead of the broker's clock
        rules[AFTER_MAX] = Rule(
            default=str(ahead),
            expected=f"{ahead} (policy.max_ahead)",
            accepts=lambda value: int(value) == ahead,
            is_fatal=lambda value: int(value) > ahead,  # below it the broker rejects more than necessary, visibly
        )
    return TopicSpec(settings.topics.telemetry, settings.kafka.partitions, rules)


def output_topics(settings: Settings, telemetry_partitions: int) -> list[TopicSpec]:
    """Return the specifications of the topics that hatcast or devices write.

    Ledger recovery reads releases and budget, so only compaction may delete records there.
    """
    compacted = _compacted()
    short_lived = {
        CLEANUP: _exactly("delete", fatal=False),
        RETENTION: Rule(
            default=str(DEAD_LETTERS_MS),
            expected=f"{DEAD_LETTERS_MS} (1 day) or less",
            accepts=lambda value: value != UNLIMITED and int(value) <= DEAD_LETTERS_MS,
            is_fatal=lambda _: False,
        ),
        MAX_MESSAGE_BYTES: _at_least(WORKER_BATCH_BYTES, fatal_below=0),  # rejected letters are counted
    }
    topics = settings.topics
    with_devices = [reports_topic(settings, telemetry_partitions), *clustering_topics(settings, telemetry_partitions)]
    return [
        *(with_devices if settings.policy.takes_reports else []),
        TopicSpec(topics.means, telemetry_partitions, compacted),
        TopicSpec(topics.queries, telemetry_partitions, compacted),
        TopicSpec(topics.budget, 1, compacted),
        TopicSpec(topics.estimates, telemetry_partitions, compacted),
        TopicSpec(topics.running, telemetry_partitions, compacted),
        TopicSpec(topics.dead_letters, 1, short_lived),
        TopicSpec(topics.registry, 1, compacted),
    ]


def reports_topic(settings: Settings, telemetry_partitions: int) -> TopicSpec:
    """Return the specification of the device reports topic: same retention and timestamps as telemetry."""
    return TopicSpec(settings.topics.reports, telemetry_partitions, telemetry_topic(settings).rules)


def clustering_topics(settings: Settings, telemetry_partitions: int) -> list[TopicSpec]:
    """Return the specifications of the topics of clusterings with devices: rounds and results, and answers."""
    answers = {  # a clustering takes minutes, and may be taken up again for days
        CLEANUP: _exactly("delete"),
        RETENTION: _kept_for(ANSWERS_MS, "7 days", str(ANSWERS_MS), fatal=False),
        MAX_MESSAGE_BYTES: _at_least(WORKER_BATCH_BYTES),
    }
    clusters = TopicSpec(settings.topics.clusters, 1, _compacted())
    return [clusters, TopicSpec(settings.topics.cluster_answers, telemetry_partitions, answers)]


def _compacted() -> dict[str, Rule]:
    return {
        CLEANUP: _exactly("compact"),
        COMPRESSION: Rule(
            default="producer",
            expected="producer, gzip or uncompressed, which every client can read",
            accepts=lambda value: value in ("producer", "gzip", "uncompressed"),
            is_fatal=lambda value: not is_readable(value),
        ),
        MAX_MESSAGE_BYTES: _at_least(WORKER_BATCH_BYTES),
    }


def readable_codecs() -> list[str]:
    """Return the compression codecs that a worker can read; aiokafka needs an extra library for some."""
    from aiokafka import codec

    known = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}
    return [name for name, has in known.items() if has()]


def is_readable(compression: str) -> bool:
    """Return whether a worker can read this `compression.type`; True for `producer`, where the records decide."""
    return compression in ("producer", "uncompressed", *readable_codecs())


def _at_least(batch_bytes: int, *, fatal_below: int | None = None) -> Rule:
    """Return the rule for a topic's largest batch."""
    fatal_bytes = batch_bytes if fatal_below is None else fatal_below
    return Rule(
        default=str(_KAFKA_DEFAULT_BYTES),
        expected=f"at least {batch_bytes}, the largest batch that hatcast sends there",
        accepts=lambda value: int(value) >= batch_bytes,
        is_fatal=lambda value: int(value) < fatal_bytes,
    )


def _kept_for(least_ms: int, least: str, default: str, *, fatal: bool = True) -> Rule:
    """Return the rule for how long a topic keeps its records. `least`: the same as `least_ms`, in words."""
    expected = f"at least {least_ms} ({least}), or -1 (unlimited)"
    return Rule(default, expected, lambda value: value == UNLIMITED or int(value) >= least_ms, lambda _: fatal)


def _exactly(value: str, *, fatal: bool = True) -> Rule:
    return Rule(value, value, lambda found: found == value, lambda _: fatal)


def findings(spec: TopicSpec, state: TopicState, settings: Settings) -> list[TopicFinding]:
    """Compare an existing topic with its specification; return the differences."""
    found = _partition_findings(spec, state, settings)
    if not state.configs:
        fix = "grant this user DESCRIBE_CONFIGS on it"
        return [*found, TopicFinding(spec.name, "settings", "not readable", "readable", fix, fatal=True)]
    for setting, rule in spec.rules.items():
        value = state.configs.get(setting)
        if value is None:  # AFTER_MAX, on a broker before 3.6
            fix = "update Kafka, or keep the feeds' clocks right: a record dated ahead blocks its partition"
            found.append(TopicFinding(spec.name, setting, "unknown to this broker", rule.expected, fix, fatal=False))
        elif not rule.accepts(value):
            fix = alter_command(settings, spec.name, setting, rule.default)
            found.append(TopicFinding(spec.name, setting, value, rule.expected, fix, fatal=rule.is_fatal(value)))
    return found


def _partition_findings(spec: TopicSpec, state: TopicState, settings: Settings) -> list[TopicFinding]:
    """Compare the number of partitions.

    Telemetry may have any number: the first start of the policy fixes it, not the settings. Topics that need one
    partition may have more, and so may topics that workers publish on, which grow with another city's telemetry:
    records go to the partitions that telemetry has, and ledger recovery and readers read all. Kafka cannot remove a
    partition, so rejecting such a topic would leave no fix.
    """
    topics = settings.topics
    if spec.name == topics.telemetry or spec.partitions in (None, state.partitions):
        return []
    published = (topics.means, topics.queries, topics.estimates, topics.running)
    harmless = spec.name in (topics.budget, topics.dead_letters, topics.clusters) or (
        spec.name in published and state.partitions > spec.partitions
    )
    fix = "set another topic under [topics] before the first start, and hatcast creates it"
    if state.partitions < spec.partitions:
        fix += "; or, after telemetry has grown, add partitions: hatcast topics --grow N (docs/runbook.md)"
    if harmless:
        fix = "no action needed: records are in the expected ones, and the others stay empty or are another city's"
    elif spec.name == topics.registry:
        fix = "delete it while it is empty, and hatcast creates it"
    return [TopicFinding(spec.name, PARTITIONS, str(state.partitions), str(spec.partitions), fix, fatal=not harmless)]


def alter_command(settings: Settings, topic: str, setting: str, value: str) -> str:
    """Return the kafka-configs.sh command that changes a topic's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server {settings.kafka.bootstrap_servers} --alter --entity-type topics"
        f" --entity-name {topic} --add-config {setting}={value}"
    )
