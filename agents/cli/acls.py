"""`hatcast acls`: the least privileges of each role."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from hatcast.agents.cli.options import config_option
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.grants import Grant, Role, kafka_grants
from hatcast.agents.redis.connection import database_of
from hatcast.stream.errors import HatcastError

# The Redis privileges that each role needs, and no other, as a line of an ACL: `hatcast acls` prints it.
#
# The commands are listed one by one: a category such as `@hash` has commands that hatcast never sends.
# `tests/integration/test_access.py` compares them with what each role sends.

CONNECT: Final = ("client|setname", "info")  # at the start of every connection
SELECT: Final = ("select",)  # there too, if `redis.url` names another database than 0
_SCRIPTS: Final = ("evalsha", "script|load")
_IDLE: Final = ("ping",)  # on a connection that has been idle for half a minute
_WORKER: Final = (
    *_SCRIPTS,
    *_IDLE,
    *("exists", "get", "hexists", "hget", "hgetall", "hkeys", "hlen", "hmget", "mget"),
    *("scard", "sismember", "smembers", "smismember"),
    *("del", "hdel", "hset", "hsetnx", "sadd", "set", "srem", "unlink"),
)
_OPERATOR: Final = (
    *_SCRIPTS,
    *_IDLE,
    *("get", "hget", "hgetall", "hkeys", "hlen", "hmget", "mget", "scard", "smembers", "smismember"),
    *("config|get", "time"),  # doctor
)
_CLUSTERING: Final = (*_SCRIPTS, *_IDLE, "hget", "hgetall", "hlen", "hmget", "hset")
CLUSTER: Final = ("asking", "cluster|slots", "command")


def redis_acl(settings: Settings, role: Role, user: str, *, cluster: bool = False) -> str | None:
    """Return the ACL SETUSER line of a role; None if it does not use Redis. The password is not in it.

    cluster   the Redis is a cluster: run the line on each of its nodes
    """
    keys, commands = _rules(settings, role)
    if not commands:
        return None
    selected = SELECT if database_of(settings) else ()
    wanted = sorted({*CONNECT, *selected, *commands, *(CLUSTER if cluster else ())})
    rules = [*keys, "resetchannels", "-@all", *(f"+{command}" for command in wanted)]
    return f"ACL SETUSER {user} on >PASSWORD resetkeys {' '.join(rules)}"


def _rules(settings: Settings, role: Role) -> tuple[list[str], tuple[str, ...]]:
    """Return the key patterns and the commands of a role."""
    policy, domain = settings.policy, f"{{{settings.topics.telemetry}}}:*"
    names = [f"{{{policy.name}:*", *([f"{{{policy.name}/reports:*"] if policy.takes_reports else [])]
    old = [] if policy.replaces is None else [f"%R~{{{policy.replaces}:*"]
    keys = [*(f"~{own}" for own in names), f"~{domain}", *old]
    match role:
        case Role.WORKER:
            return keys, _WORKER
        case Role.OPERATOR:
            # Its own keys not by `%R~`: Redis takes every key of a script for written. None of the commands writes.
            return keys, _OPERATOR
        case Role.FEED:  # of recordings, which must not be older than what is folded
            return [f"%R~{{{policy.name}:*}}:state"], ("hget",)
        case Role.CLUSTER:  # it reserves its cost, and reads a day's ledger; no contribution
            return [f"~{domain}"], _CLUSTERING
        case _:
            return [], ()


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
