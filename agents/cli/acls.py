"""`hatcast acls`: the least privileges of each role."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

from hatcast.agents.cli.options import config_option
from hatcast.agents.config.roles import Role
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.grants import Grant, kafka_grants
from hatcast.agents.redis.grants import redis_acl
from hatcast.stream.errors import HatcastError


@click.command(epilog="Example:  hatcast acls worker --config hatcast.toml --user hatcast-worker")
@click.argument("role", type=click.Choice([role.value for role in Role]))
@config_option
@click.option(
    "--user", metavar="NAME", help="Kafka principal and Redis user, such as alice or CN=alice.  [default: hatcast-ROLE]"
)
@click.option(
    "--group", "groups", metavar="NAME", multiple=True, help="Consumer group of a reader's own program; repeatable."
)
@click.option("--redis-cluster", is_flag=True, help="The Redis is a cluster: run its line on every node.")
def command(role: str, config: Path, user: str | None, groups: tuple[str, ...], *, redis_cluster: bool) -> None:
    """Print the commands that give a user the privileges of ROLE, and no others: kafka-acls.sh, then Redis.

    They follow from the topics and the policy of the configuration; print them again when it changes. Nothing is
    connected or changed. admin.properties is the login of Kafka's administrator; in place of PASSWORD write the user's.
    """
    settings = load_settings(config)
    part = Role(role)
    if groups and part is not Role.READER:
        raise click.UsageError("--group is for the role reader: the groups of the others are known")
    name = user or f"hatcast-{role}"
    for line in lines(settings, part, name, groups, cluster=redis_cluster):
        click.echo(line)


def lines(
    settings: Settings, role: Role, user: str, groups: tuple[str, ...] = (), *, cluster: bool = False
) -> Iterator[str]:
    """Yield the commands."""
    if role in (Role.DEVICE, Role.CLUSTER) and not settings.policy.takes_reports:
        raise HatcastError(
            "the policy takes no reports of devices: name an estimator of docs/hybrid.md, or another role"
        )
    start = (
        f"kafka-acls.sh --bootstrap-server {settings.kafka.bootstrap_servers} --command-config admin.properties --add"
    )
    grants = sorted(kafka_grants(settings, role, groups), key=_rights)
    for _, alike in groupby(grants, _rights):
        same = [*alike]
        resources = " ".join(f"--{each.resource} {each.name}" for each in same)
        operations = " ".join(f"--operation {each}" for each in same[0].operations)
        pattern = " --resource-pattern-type prefixed" if same[0].prefixed else ""
        yield f"{start} --allow-principal User:{user} {operations} {resources}{pattern}"
    if (line := redis_acl(settings, role, user, cluster=cluster)) is not None:
        yield line


def _rights(grant: Grant) -> tuple[str, bool, tuple[str, ...]]:
    """Return the key by which grants share a command: kafka-acls.sh checks operations against the kind of resource."""
    return grant.resource, grant.prefixed, grant.operations
