"""Roles of those that use Kafka and Redis, one user each, and the Kafka privileges that each needs, and no other.

`hatcast acls` prints them, and a start checks them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import REQUEST_SECONDS, broker_name, confluent_options, wait_for_broker
from hatcast.stream.errors import HatcastError


class Role(StrEnum):
    """A part that one user plays.

    reader   programs that read what is published, `hatcast tail` and `hatcast export`
    cluster  `hatcast cluster live`
    """

    WORKER = "worker"
    FEED = "feed"
    DISPLAY = "display"
    READER = "reader"
    OPERATOR = "operator"
    DEVICE = "device"
    CLUSTER = "cluster"


# `tests/integration/test_access.py` runs every role with exactly these, and compares them with what the broker's
# authorizer was asked for. READ and WRITE imply DESCRIBE in Kafka, so DESCRIBE is listed only where neither is.
class Resource(StrEnum):
    """Kinds of Kafka resources, as options of kafka-acls.sh."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """Operations, as kafka-acls.sh names them."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DESCRIBE, _CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations of one user on one resource, or on all whose name begins with `name`."""

    resource: Resource
    name: str
    operations: tuple[Operation, ...]
    prefixed: bool = False


def kafka_grants(settings: Settings, role: Role, groups: Sequence[str] = ()) -> list[Grant]:
    """Return the privileges of a role under the policy and the topics of `settings`.

    groups   consumer groups of a reader's own programs
    """
    return [*_ROLES[role](settings), *(Grant(Resource.GROUP, group, (_READ,)) for group in groups)]


def _topic(name: str, *operations: Operation) -> Grant:
    return Grant(Resource.TOPIC, name, operations)


def _topics(names: Iterable[str], *operations: Operation) -> Iterator[Grant]:
    return (_topic(name, *operations) for name in names)


def _internal_group(name: str) -> Grant:
    """Return what librdkafka asks for a consumer without a group, too: it looks for a coordinator."""
    return Grant(Resource.GROUP, f"hatcast-{name}", (_DESCRIBE,))


def _worker(settings: Settings) -> Iterator[Grant]:
    """Folds, releases, and recovers what all policies of the telemetry topic published."""
    topics, policy = settings.topics, settings.policy
    made = (_CREATE, _CONFIGS)
    yield _topic(topics.telemetry, _READ, _WRITE, *made)  # WRITE: heartbeat records of silent partitions
    yield from _topics((topics.means, topics.budget, topics.registry), _READ, _WRITE, *made)
    yield _topic(topics.queries, _READ, *((_WRITE,) if policy.queries else ()), *made)  # ledger recovery reads it
    yield _topic(topics.estimates, _WRITE, *made)
    yield _topic(topics.running, _WRITE if policy.running else _DESCRIBE, *made)
    yield _topic(topics.dead_letters, _WRITE, *made)
    group = f"hatcast-{policy.name}"
    yield Grant(Resource.GROUP, group, (_READ,))
    if policy.takes_reports:
        yield _topic(topics.reports, _READ, _WRITE, *made)
        yield from _topics((topics.clusters, topics.cluster_answers), _DESCRIBE, *made)
        yield Grant(Resource.GROUP, f"{group}/reports", (_READ,))
    yield from map(_internal_group, ("registry", "recovery", "estimates"))
    # Of all policies of the topic: recovery fences the others' producers.
    yield Grant(Resource.TRANSACTIONAL_ID, f"hatcast/{topics.telemetry}/", (_WRITE,), prefixed=True)


def _feed(settings: Settings) -> Iterator[Grant]:
    """Sends telemetry to a topic that a worker has created."""
    yield _topic(settings.topics.telemetry, _WRITE, _CONFIGS)
    yield _topic(settings.topics.registry, _READ)  # the time zone of the policies, for speeds that it derives
    yield _internal_group("registry")


def _display(settings: Settings) -> Iterator[Grant]:
    """Yield the privileges of the map: it reads the public topics."""
    yield from _topics(_public(settings), _READ)


def _reader(settings: Settings) -> Iterator[Grant]:
    """`hatcast tail`, `hatcast export` and programs of docs/consume.md."""
    yield from _topics(_public(settings), _READ)
    yield _internal_group("export")


def _operator(settings: Settings) -> Iterator[Grant]:
    """`status`, `budget`, `doctor`, `contributions`, `dump` of telemetry, and `query`."""
    topics, policy = settings.topics, settings.policy
    yield _topic(topics.telemetry, _READ, _CONFIGS)
    yield _topic(topics.registry, _READ, *((_WRITE,) if _takes_requests(settings) else ()), _CONFIGS)
    others = [topics.means, topics.queries, topics.budget, topics.estimates, topics.running, topics.dead_letters]
    if policy.takes_reports:
        others += [topics.reports, topics.clusters, topics.cluster_answers]
    yield from _topics(others, _DESCRIBE, _CONFIGS)
    yield from map(_internal_group, ("registry", "dump", "doctor"))
    if _takes_requests(settings):
        yield Grant(Resource.TRANSACTIONAL_ID, f"hatcast/{topics.telemetry}/registry", (_WRITE,))


def _device(settings: Settings) -> Iterator[Grant]:
    """Sends reports and answers, reads the rounds of clusterings, and sees nothing else."""
    topics = settings.topics
    yield _topic(topics.reports, _WRITE)
    yield _topic(topics.cluster_answers, _WRITE)
    yield _topic(topics.clusters, _READ)
    yield _internal_group("device")


def _cluster(settings: Settings) -> Iterator[Grant]:
    """`cluster live` charges the ledger, reads telemetry, answers and the registry, and publishes; it checks topics."""
    topics = settings.topics
    yield _topic(topics.telemetry, _READ, _CONFIGS)
    yield _topic(topics.cluster_answers, _READ, _CONFIGS)
    yield _topic(topics.clusters, _READ, _WRITE, _CONFIGS)
    yield _topic(topics.budget, _WRITE, _CONFIGS)
    yield _topic(topics.registry, _READ, _CONFIGS)  # whether a policy beside it has a limit for itself alone
    others = [topics.means, topics.queries, topics.estimates, topics.dead_letters, topics.reports, topics.running]
    yield from _topics(others, _DESCRIBE, _CONFIGS)
    yield from map(_internal_group, ("cluster", "dump", "registry"))


def _public(settings: Settings) -> list[str]:
    topics = settings.topics
    names = [topics.means, topics.budget, topics.estimates, topics.queries, topics.running]
    return [*names, topics.clusters] if settings.policy.takes_reports else names


def _takes_requests(settings: Settings) -> bool:
    return any(query.on_request for query in settings.policy.queries)


_ROLES: Final = {
    Role.WORKER: _worker,
    Role.FEED: _feed,
    Role.DISPLAY: _display,
    Role.READER: _reader,
    Role.OPERATOR: _operator,
    Role.DEVICE: _device,
    Role.CLUSTER: _cluster,
}


# Brokers tell a user its own operations on a topic. Without this, a missing one would show later, as a retried failure
# of one loop among others.
#
# Without Create: it is needed only while the topic is missing, and then its creation names it.
_CHECKED: Final = (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


def check_permissions(settings: Settings, role: Role) -> None:
    """Wait for a broker; raise HatcastError if the user lacks a privilege of the role on an existing topic or a group.

    The text names all that is missing. What brokers do not tell is left to the first use. Blocks. Raises as
    `wait_for_broker` does.
    """
    cluster = wait_for_broker(settings)
    if cluster.controller_id not in cluster.brokers:
        return  # a question would wait for a controller until it times out: the demo's Kafka never has one
    missing = "; ".join(_missing(settings, kafka_grants(settings, role)))
    if missing:
        raise HatcastError(
            f"{broker_name(settings)} denies this user {missing}: `hatcast acls {role}` prints all that it needs"
        )


def _missing(settings: Settings, grants: list[Grant]) -> Iterator[str]:
    """Yield, in words, the missing operations on each resource."""
    for grant, future in _described(settings, grants):
        allowed = _allowed(future)
        if allowed is None:
            continue
        if lacking := [each for each in grant.operations if each in _CHECKED and each.name not in allowed]:
            yield f"{' and '.join(lacking)} on {grant.resource} {grant.name}"


def _described(settings: Settings, grants: list[Grant]) -> Iterator[tuple[Grant, Any]]:
    """Yield the topics and groups of the grants, each with its future description."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(confluent_options(settings))
    options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": REQUEST_SECONDS}
    names = {kind: [each.name for each in grants if each.resource is kind] for kind in Resource}
    topics = admin.describe_topics(TopicCollection(names[Resource.TOPIC]), **options)
    groups = admin.describe_consumer_groups(names[Resource.GROUP], **options) if names[Resource.GROUP] else {}
    for grant in grants:
        if grant.resource is not Resource.TRANSACTIONAL_ID:
            yield grant, (topics if grant.resource is Resource.TOPIC else groups)[grant.name]


def _allowed(future: Any) -> set[str] | None:
    """Return the names of the user's operations, none if it may not see the topic or group; None if not known."""
    from confluent_kafka import KafkaError, KafkaException

    denied = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
    try:
        operations = future.result(REQUEST_SECONDS).authorized_operations
    except KafkaException as error:
        return set() if error.args[0].code() in denied else None
    except TimeoutError:
        return None
    return {each.name for each in operations} if operations else None
