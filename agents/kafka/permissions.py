"""Check before a start that the user has the privileges of its role, so that one line names all that is missing.

Brokers tell a user its own operations on a topic. Without this, a missing one would show later, as a retried failure of
one loop among others.
"""

from collections.abc import Iterator
from typing import Any, Final

from hatcast.agents.config.roles import Role
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import REQUEST_SECONDS, broker_name, confluent_options, wait_for_broker
from hatcast.agents.kafka.grants import Grant, Operation, Resource, kafka_grants
from hatcast.stream.errors import HatcastError

# Without Create: it is needed only while the topic is missing, and then its creation names it.
_CHECKED: Final = (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


def check_permissions(settings: Settings, role: Role) -> None:
    """Wait for a broker; raise HatcastError if the user lacks a privilege of the role on an existing topic or a group.

    The text names all that is missing. What brokers do not tell is left to the first use. Blocks. Raises as
    `wait_for_broker` does.
    """
    wait_for_broker(settings)
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
        if lacking := [each for each in grant.operations if each in _CHECKED and each not in allowed]:
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
    return {_name(each.name) for each in operations} if operations else None


def _name(operation: str) -> str:
    """Return `DescribeConfigs` for `DESCRIBE_CONFIGS`."""
    return "".join(part.capitalize() for part in operation.split("_"))
