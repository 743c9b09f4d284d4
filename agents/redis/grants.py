"""The Redis privileges that each role needs, and no other, as a line of an ACL: `hatcast acls` prints it.

The commands are listed one by one: a category such as `@hash` has commands that hatcast never sends.
`tests/integration/test_access.py` compares them with what each role sends.
"""

from typing import Final

from hatcast.agents.config.roles import Role
from hatcast.agents.config.settings import Settings
from hatcast.agents.redis.connection import database_of

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
_CLUSTERING: Final = (*_SCRIPTS, *_IDLE, "hget", "hgetall", "hlen", "hmget", "hset", "sadd", "scard")
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
