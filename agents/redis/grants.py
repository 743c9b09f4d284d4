"""The Redis privileges that each role needs, and no other, as a line of an ACL: `hatcast acls` prints it.

The commands are listed one by one: a category such as `@hash` has commands that hatcast never sends.
"""

from typing import Final

from hatcast.agents.config.roles import Role
from hatcast.agents.config.settings import Settings

CONNECT: Final = ("client|setname", "info")  # at the start of every connection
READ: Final = (
    *("evalsha", "exists", "get", "hexists", "hget", "hgetall", "hkeys", "hlen", "hmget", "hvals", "mget", "ping"),
    *("scard", "script|load", "sismember", "smembers", "smismember", "strlen"),
)
WRITE: Final = ("del", "hdel", "hset", "hsetnx", "sadd", "set", "srem", "unlink")
DOCTOR: Final = ("config|get", "time")
CLUSTER: Final = ("asking", "cluster|slots", "command")


def redis_acl(settings: Settings, role: Role, user: str, *, cluster: bool = False) -> str | None:
    """Return the ACL SETUSER line of a role; None if it does not use Redis. The password is not in it.

    cluster   the Redis is a cluster: run the line on each of its nodes
    """
    keys, commands = _rules(settings, role)
    if not commands:
        return None
    wanted = sorted({*CONNECT, *commands, *(CLUSTER if cluster else ())})
    rules = [*keys, "resetchannels", "-@all", *(f"+{command}" for command in wanted)]
    return f"ACL SETUSER {user} on >PASSWORD resetkeys {' '.join(rules)}"


def _rules(settings: Settings, role: Role) -> tuple[list[str], tuple[str, ...]]:
    """Return the key patterns and the commands of a role."""
    policy, domain = settings.policy, f"{{{settings.topics.telemetry}}}:*"
    names = [f"{{{policy.name}:*", *([f"{{{policy.name}/reports:*"] if policy.takes_reports else [])]
    match role:
        case Role.WORKER:
            old = [] if policy.replaces is None else [f"%R~{{{policy.replaces}:*"]
            return [*(f"~{own}" for own in names), f"~{domain}", *old], (*READ, *WRITE)
        case Role.OPERATOR:
            # Not `%R~`: Redis takes every key of a script for written. None of the commands writes.
            return [*(f"~{own}" for own in names), f"~{domain}"], (*READ, *DOCTOR)
        case Role.FEED:  # of recordings, which must not be older than what is folded
            return [f"%R~{{{policy.name}:*}}:state"], ("hget",)
        case _:
            return [], ()
