"""Create missing topics and check existing ones against docs/specification/topics.md."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka import topic_rules as rules
from hatcast.agents.kafka.client import (
    CONNECT_SECONDS,
    LEADERS_POLL_S,
    REQUEST_SECONDS,
    admin_client,
    ask_leaders,
    broker_name,
)
from hatcast.agents.kafka.topic_rules import TopicFinding, TopicSpec, TopicState, output_topics, telemetry_topic
from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec, TopicDescription

# The standard logger: commands without structured logs print it on standard error as one line.
log = logging.getLogger(__name__)


def ensure_topics(settings: Settings, started_with: int | None = None) -> int:
    """Create missing topics and check all of them; return the number of telemetry partitions.

    Several workers may do this at the same time. Findings that are not fatal are logged as warnings.
    Args: `started_with`, for a drain, the number of telemetry partitions at the first start: topics may have more.
    Raises HatcastError if the broker is unreachable, a topic cannot be created, or a finding is fatal.
    """
    telemetry = telemetry_topic(settings)
    with admin_client(settings) as admin:
        states = _ensure(admin, settings, [telemetry])
        partitions = states[telemetry.name].partitions
        outputs = output_topics(settings, started_with or partitions)
        states |= _ensure(admin, settings, outputs)
    found = _all_findings(settings, [telemetry, *outputs], states)
    if started_with is not None:  # nothing is sent to the partitions that were added, and recovery reads all
        found = [each for each in found if each.setting != rules.PARTITIONS or int(each.found) < started_with]
    fatal = [finding for finding in found if finding.fatal]
    if fatal:
        more = f" (and {len(fatal) - 1} more: hatcast doctor lists them)" if len(fatal) > 1 else ""
        raise HatcastError(f"{fatal[0]}{more}")
    for finding in found:
        log.warning("%s", finding)
    return partitions


def broken_topics(settings: Settings, started_with: int) -> list[TopicFinding]:
    """Return what breaks a promise of the topics of a worker that runs. Raises HatcastError if no broker answers.

    A topic that is missing has no findings.
    """
    specs = [telemetry_topic(settings), *output_topics(settings, started_with)]
    with admin_client(settings, patience_s=1.0) as admin:
        states = _states(admin, settings, [topic.name for topic in specs])
    return [each for each in _all_findings(settings, specs, states) if each.fatal]


def grow_topics(settings: Settings, partitions: int) -> dict[str, int]:
    """Add partitions to telemetry and the topics that have as many; return what each that grew had before.

    Raises HatcastError if the broker does not allow it. Topics that have as many or more stay as they are.
    """
    from confluent_kafka.admin import NewPartitions

    partitioned = [spec.name for spec in output_topics(settings, partitions) if spec.partitions == partitions]
    with admin_client(settings) as admin:
        counts = _counts(admin, settings, [settings.topics.telemetry, *partitioned])
        fewer = {name: count for name, count in counts.items() if count < partitions}
        if fewer:
            for growing in admin.create_partitions([NewPartitions(name, partitions) for name in fewer]).values():
                growing.result()
            _wait_for(admin, settings, list(fewer), partitions)
    return fewer


def _all_findings(
    settings: Settings, specs: Sequence[TopicSpec], states: Mapping[str, TopicState]
) -> list[TopicFinding]:
    """Return the differences of the existing topics from their specifications."""
    return [f for topic in specs if topic.name in states for f in rules.findings(topic, states[topic.name], settings)]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """Result of `check_topics`."""

    partitions: Mapping[str, int]  # name of an existing topic -> number of its partitions
    missing: Sequence[str]  # names of the missing topics
    findings: Sequence[TopicFinding]  # differences from the specifications
    # name of a missing topic -> the error that a worker would raise when it creates the topic
    denied: Mapping[str, HatcastError]


def check_topics(settings: Settings, patience_s: float = CONNECT_SECONDS) -> TopicReport:
    """Check all topics without creating or changing any. Raises HatcastError if the broker is unreachable."""
    telemetry = telemetry_topic(settings)
    with admin_client(settings, patience_s) as admin:
        states = _states(admin, settings, [telemetry.name])
        partitions = states[telemetry.name].partitions if states else settings.kafka.partitions
        outputs = output_topics(settings, partitions)
        states |= _states(admin, settings, [topic.name for topic in outputs])
        specs = (telemetry, *outputs)
        missing = [topic for topic in specs if topic.name not in states]
        denied = {topic.name: error for topic in missing if (error := _creation_error(admin, settings, topic))}
    return TopicReport(
        partitions={name: state.partitions for name, state in states.items()},
        missing=[topic.name for topic in missing],
        findings=_all_findings(settings, specs, states),
        denied=denied,
    )


def telemetry_partitions(settings: Settings) -> int | None:
    """Return the current number of telemetry partitions; None if the topic does not exist."""
    name = settings.topics.telemetry
    with admin_client(settings) as admin:
        return _counts(admin, settings, [name]).get(name)


def topic_range(settings: Settings, name: str) -> list[tuple[int, int]]:
    """Return (first offset, offset after the last committed record) of each partition.

    Raises HatcastError if the topic does not exist.
    """
    from confluent_kafka.admin import OffsetSpec

    with admin_client(settings) as admin:
        count = _counts(admin, settings, [name]).get(name)
        if count is None:
            raise HatcastError(
                f"{broker_name(settings)} has no topic {name!r}: correct the name, or start a worker, which creates it"
            )
        first = list_offsets(admin, name, count, OffsetSpec.earliest())
        end = list_offsets(admin, name, count, OffsetSpec.latest(), committed=True)
    return [(start.offset, after.offset) for start, after in zip(first, end, strict=True)]


def list_offsets(
    admin: "AdminClient", topic: str, partitions: int, spec: "OffsetSpec", *, committed: bool = False
) -> list["ListOffsetsResultInfo"]:
    """Return what Kafka answers for each partition: offset and timestamp. Raises KafkaException.

    committed   the end is the one of committed records
    """
    from confluent_kafka import IsolationLevel, TopicPartition

    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    wanted = {TopicPartition(topic, partition): spec for partition in range(partitions)}

    def ask() -> dict[int, "ListOffsetsResultInfo"]:
        answers = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
        return {asked.partition: answer.result() for asked, answer in answers.items()}

    by_partition = ask_leaders(ask)
    return [by_partition[partition] for partition in range(partitions)]


def topic_state(settings: Settings, name: str) -> TopicState | None:
    """Return an existing topic with its settings; None if it does not exist."""
    with admin_client(settings) as admin:
        return _states(admin, settings, [name]).get(name)


def ensure_telemetry(settings: Settings) -> TopicState:
    """Return the telemetry topic; create it if it is missing. Raises HatcastError if it rejects a feed's batches."""
    with admin_client(settings) as admin:
        state = _ensure(admin, settings, [telemetry_topic(settings)])[settings.topics.telemetry]
    _check_batch_size(settings, state)
    return state


def check_replay_target(settings: Settings, first_arrival_ms: int) -> TopicState:
    """Return the telemetry topic for a recording that starts at `first_arrival_ms` (ms UTC); create it if missing.

    Raises HatcastError if the topic would replace the records' timestamps, reject the records or delete them; such a
    topic is not created.
    """
    name = settings.topics.telemetry
    spec = telemetry_topic(settings)
    with admin_client(settings) as admin:
        existing = _states(admin, settings, [name]).get(name)
        state = existing or TopicState(settings.kafka.partitions, spec.configs)
        _check_replay(settings, state, first_arrival_ms, exists=existing is not None)
        return existing or _ensure(admin, settings, [spec])[name]


def _check_replay(settings: Settings, state: TopicState, first_ms: int, *, exists: bool) -> None:
    name = settings.topics.telemetry
    _check_batch_size(settings, state)
    age_ms = now_ms() - first_ms
    if state.log_append_time:
        raise HatcastError(
            f"topic {name} has {rules.TIMESTAMP_TYPE} LogAppendTime, so a recording would lose its timestamps:"
            " replay into a topic with CreateTime (topics.telemetry; needs policy.privacy.relation replace)"
        )
    first = datetime.fromtimestamp(first_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if state.retention_ms is not None and age_ms > state.retention_ms:
        set_first = 'set topics.telemetry_retention = "none"'
        fix = rules.alter_command(settings, name, rules.RETENTION, rules.UNLIMITED) if exists else set_first
        raise HatcastError(
            f"topic {name} deletes records older than {_hours(state.retention_ms)} ({rules.RETENTION}), and these start"
            f" at {first}: {fix}"
        )
    before_max = int(state.configs.get(rules.BEFORE_MAX, "0")) or age_ms
    if age_ms > before_max:
        raise HatcastError(
            f"topic {name} rejects records older than {_hours(before_max)} ({rules.BEFORE_MAX}), and these start at"
            f" {first}: {rules.alter_command(settings, name, rules.BEFORE_MAX, str(2**63 - 1))}"
        )


def _check_batch_size(settings: Settings, state: TopicState) -> None:
    """Raise HatcastError if the broker would reject a full batch of a feed, and its readings with it."""
    name = settings.topics.telemetry
    rule, largest = telemetry_topic(settings).rules[rules.MAX_MESSAGE_BYTES], state.configs.get(rules.MAX_MESSAGE_BYTES)
    if largest is not None and not rule.accepts(largest):
        raise HatcastError(
            f"topic {name}: {rules.MAX_MESSAGE_BYTES} is {largest}, expected {rule.expected};"
            f" {rules.alter_command(settings, name, rules.MAX_MESSAGE_BYTES, rule.default)}"
        )


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / 3_600_000:g}h"


def _ensure(admin: "AdminClient", settings: Settings, specs: Sequence[TopicSpec]) -> dict[str, TopicState]:
    """Create the missing topics; return all by name."""
    names = [topic.name for topic in specs]
    states = _states(admin, settings, names)
    missing = [topic for topic in specs if topic.name not in states]
    if missing:
        for topic in missing:
            error = _creation_error(admin, settings, topic, validate_only=False)
            if error is not None:
                raise error
        created = [topic.name for topic in missing]
        _wait_for(admin, settings, created)
        states |= _states(admin, settings, created)
    return states


def _creation_error(
    admin: "AdminClient", settings: Settings, topic: TopicSpec, *, validate_only: bool = True
) -> HatcastError | None:
    """Create a topic, or let the broker check whether it would; return the error, None if there is none.

    With the broker's default replication. It is no error if another worker has just created it.
    """
    from confluent_kafka import KafkaError

    configs = topic.configs
    error = _request_creation(admin, topic, configs, validate_only=validate_only)
    if error is not None and error.code() == KafkaError.INVALID_CONFIG and rules.AFTER_MAX in configs:
        del configs[rules.AFTER_MAX]  # unknown before Kafka 3.6; `findings` warns about it
        error = _request_creation(admin, topic, configs, validate_only=validate_only)
    if error is None or error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return None
    return HatcastError(
        f"{broker_name(settings)} did not create the topic {topic.name!r} ({error.str()}): grant this user CREATE, or"
        f" create it with {topic.partitions} partitions and"
        f" {', '.join(f'{key}={value}' for key, value in configs.items())}"
    )


def _request_creation(
    admin: "AdminClient", topic: TopicSpec, configs: dict[str, str], *, validate_only: bool
) -> "KafkaError | None":
    """Send the request; return the broker's error for this topic, None if there is none."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    partitions = -1 if topic.partitions is None else topic.partitions  # -1: the broker's default
    wanted = NewTopic(topic.name, partitions, replication_factor=-1, config=configs)
    asked = admin.create_topics([wanted], validate_only=validate_only, request_timeout=REQUEST_SECONDS)
    try:
        asked[topic.name].result()
    except KafkaException as raised:
        error: KafkaError = raised.args[0]
        if error.code() < KafkaError.UNKNOWN:  # librdkafka's own: no broker answered
            raise
        return error
    return None


def _wait_for(admin: "AdminClient", settings: Settings, names: Sequence[str], least: int = 1) -> None:
    """Wait until these topics have at least so many partitions, each with a leader.

    A broker answers a request for topics or partitions before it tells of them to those who ask next.
    Raises HatcastError after `REQUEST_SECONDS`.
    """
    deadline_s = monotonic_s() + REQUEST_SECONDS
    while True:
        known = [each.partitions for each in _described(admin, settings, names).values()]
        if len(known) == len(names) and all(len(each) >= least and all(p.leader for p in each) for each in known):
            return
        if monotonic_s() > deadline_s:
            raise HatcastError(
                f"{broker_name(settings)} has made {', '.join(names)}, but not every partition has a leader yet:"
                " see the broker's log"
            )
        time.sleep(LEADERS_POLL_S)


def _counts(admin: "AdminClient", settings: Settings, names: Sequence[str]) -> dict[str, int]:
    """Return the number of partitions of each existing topic."""
    return {name: len(topic.partitions) for name, topic in _described(admin, settings, names).items()}


def _described(admin: "AdminClient", settings: Settings, names: Sequence[str]) -> "dict[str, TopicDescription]":
    """Return the existing topics by name."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    found: dict[str, TopicDescription] = {}
    for name, asked in admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_SECONDS).items():
        try:
            found[name] = asked.result()
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() < KafkaError.UNKNOWN:  # librdkafka's own: no broker answered
                raise
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise HatcastError(
                    f"{broker_name(settings)} does not show the topic {name!r} ({error.str().rstrip('.')}): correct the"
                    " name, or this user's ACLs"
                ) from None
    return found


def _states(admin: "AdminClient", settings: Settings, names: Sequence[str]) -> dict[str, TopicState]:
    """Return the existing topics among these names, with their settings."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    counts = _counts(admin, settings, names)
    if not counts:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in counts]
    states = {name: TopicState(partitions, {}) for name, partitions in counts.items()}
    for resource, asked in admin.describe_configs(resources, request_timeout=REQUEST_SECONDS).items():
        try:
            entries = asked.result().values()
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                continue
            raise
        configs = {each.name: str(each.value) for each in entries if each.value is not None}
        states[resource.name] = TopicState(counts[resource.name], configs)
    return states
