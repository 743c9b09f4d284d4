"""The Redis users of `hatcast acls`, as a pipeline of the tests needs them."""

from typing import Final

from hatcast.agents.cli.acls import redis_acl
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.grants import Role

PASSWORD: Final = "s3cret"


def acl_line(
    settings: Settings, role: Role = Role.WORKER, user: str = "hatcast", *, cluster: bool = False
) -> list[str]:
    """The command that makes the user of a role."""
    line = redis_acl(settings, role, user, cluster=cluster)
    assert line is not None
    return line.replace(">PASSWORD", f">{PASSWORD}").split()
