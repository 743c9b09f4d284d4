"""Compare the Kafka users of the Helm chart with the privileges that `hatcast acls` prints for their roles."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.grants import Operation, Role, kafka_grants

Object = dict[str, Any]
Right = tuple[str, str, str]
"""Kind and name of a resource, and an operation."""

# The last part of a user's name in the chart -> its role.
_ROLES: Final = {"worker": Role.WORKER, "display": Role.DISPLAY, "feeds": Role.FEED}
_CONFIG: Final = "worker.toml"  # its policy and topics are those of the other parts too


def grant_problems(made: Sequence[Object], folder: Path) -> Iterator[str]:
    """Yield the rights that a user of the rendered chart has too many or too few.

    folder   for the configuration of the chart, which is written there
    """
    users = [each for each in made if each["kind"] == "KafkaUser"]
    if not users:
        return
    settings = _settings(made, folder)
    creates = any(each["kind"] == "KafkaTopic" for each in made)
    for user in users:
        name = user["metadata"]["name"]
        wanted = set(_wanted(settings, _ROLES[name.rpartition("-")[2]], creates=creates))
        found = set(_found(user))
        yield from (f"KafkaUser {name} may {_words(each)}, which it does not need" for each in sorted(found - wanted))
        yield from (f"KafkaUser {name} may not {_words(each)}, which it needs" for each in sorted(wanted - found))


def _settings(made: Sequence[Object], folder: Path) -> Settings:
    files = [each["data"] for each in made if each["kind"] == "ConfigMap" and _CONFIG in each["data"]]
    for name, text in files[0].items():
        (folder / name).write_text(text)
    return load_settings(folder / _CONFIG, {})


def _wanted(settings: Settings, role: Role, *, creates: bool) -> Iterator[Right]:
    for grant in kafka_grants(settings, role):
        kind = "transactionalId" if grant.resource == "transactional-id" else str(grant.resource)
        for operation in grant.operations:
            if not (creates and operation is Operation.CREATE):
                yield kind, grant.name, operation


def _found(user: Object) -> Iterator[Right]:
    for each in user["spec"]["authorization"]["acls"]:
        for operation in each["operations"]:
            yield each["resource"]["type"], each["resource"]["name"], operation


def _words(right: Right) -> str:
    kind, name, operation = right
    return f"{operation} {kind} {name}"
