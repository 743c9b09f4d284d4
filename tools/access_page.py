"""Write docs/access.md: the roles, and what `hatcast acls` prints for each: python -m tools.access_page [--check]."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hatcast.agents.cli.acls import lines
from hatcast.agents.config.roles import Role
from hatcast.agents.config.settings import Settings, load_settings, parse_settings

_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = _ROOT / "docs" / "access.md"
_ROLES: Final = {
    Role.WORKER: "`hatcast worker`",
    Role.FEED: "`hatcast feed` and the bridges; only `replay` and `synthetic` use Redis",
    Role.DISPLAY: "`hatcast display`",
    Role.READER: "`hatcast tail`, `hatcast export`, [programs of your own](consume.md), whose groups `--group` names",
    Role.OPERATOR: "`status`, `budget`, `doctor`, `contributions`, `dump` of the telemetry, `query`: sees raw data",
    Role.DEVICE: "`hatcast device`, under a [policy with devices](hybrid.md)",
    Role.CLUSTER: "`hatcast cluster live`, under such a policy: sees raw data, and charges the ledger",
}
_HYBRID: Final = (Role.DEVICE, Role.CLUSTER)  # under a policy with devices only
_HEAD: Final = """\
# Access: a user for each role

With TLS and logins ([Kafka](configuration.md#kafka), [Redis](redis.md#login-and-tls)), give each role a user of its
own with the least that it needs. `hatcast acls` prints it for your configuration:

```sh
hatcast acls worker --config hatcast.toml --user hatcast-worker
```

It connects to nothing and changes nothing. It prints commands of `kafka-acls.sh`, and for roles that use Redis a line
for `redis-cli`, in which you write the user's password in place of `PASSWORD`. `--user` is the name of the login, or
with client certificates the certificate's name, such as `CN=hatcast-worker`. `--redis-cluster` adds what a cluster
needs; run the line on every node. What a role needs depends on the topics, the policy and the database in `redis.url`,
so print it again when they change: a policy with `[[policy.query]]`, a tracker, running means or devices needs more.

| role | what it runs |
|---|---|
"""
_MIDDLE: Final = """
A role that lacks a privilege on a topic or a group ends at its start, with one line that names all that is missing.
Later ones are in the log once, and again when they are back. `Create` is for topics that do not exist yet: without it,
create them as the error says.

Secrets come from files (`password_file`, `sasl_plain_password_file`, `user_key_file`, `--password-file`) or the
environment, never from options, so no process list has them; no log and no error has them either. Do not write a
password into `redis.url`: it would be in the configuration.

Nobody but workers needs to read `reports`: whoever sees an id there early in the day could send under it. Kafka does
not tell workers which user has sent a record, so ACLs cannot bind ids to devices; [signed
reports](device.md#signed-reports) do.

Feeds can read the keys `{POLICY:N}:state` of Redis, and there the user key if hatcast made it: set
`worker.user_key_file`.

`hatcast doctor` also runs with a worker's login, as in `helm test`: it then warns that it could not compare the clocks
(`TIME`), and checks all else.

What each role could learn if its user is stolen is in [SECURITY.md](../SECURITY.md).

## What it prints

For the `hatcast.toml` of the repository. Tests run every role with exactly such lines, and the broker's own record of
decisions shows that each privilege is used: `tests/integration/test_access.py`.
"""
_DEVICES: Final = '\n## With devices\n\nThe same with `policy.estimator.name = "pwh"`: what differs.\n'


def render_page() -> str:
    """Return the page."""
    settings = load_settings(_ROOT / "hatcast.toml", {})
    rows = "".join(f"| `{role}` | {text} |\n" for role, text in _ROLES.items())
    printed = "".join(_block(settings, role) for role in _ROLES if role not in _HYBRID)
    privacy = {"epsilon": 1.0, "max_hats_per_day": 5, "daily_limit": 5.0}
    policy = {
        "name": "surat-speed",
        "upper_bound": 65.0,
        "timezone": "Asia/Kolkata",
        "hours": [9, 21],
        "privacy": privacy,
    }
    hybrid = parse_settings({"policy": policy | {"estimator": {"name": "pwh"}}}, _ROOT, {})
    hybrids = "".join(_block(hybrid, role) for role in (Role.WORKER, *_HYBRID))
    return f"{_HEAD}{rows}{_MIDDLE}{printed}{_DEVICES}{hybrids}"


def _block(settings: Settings, role: Role) -> str:
    text = "".join(f"{line}\n" for line in _wrapped(settings, role))
    return f"\n`hatcast acls {role}`:\n\n```text\n{text}```\n"


def _wrapped(settings: Settings, role: Role) -> Iterator[str]:
    """Yield the commands without what they all begin with, so that they can be read."""
    for line in lines(settings, role, f"hatcast-{role}"):
        yield line.replace(
            f" --bootstrap-server {settings.kafka.bootstrap_servers} --command-config admin.properties", " ..."
        )


def main() -> None:
    """Write the page; with `--check` exit 1 if it differs."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(render_page())
    elif not PAGE.exists() or PAGE.read_text() != render_page():
        sys.exit("docs/access.md differs from what `hatcast acls` prints: run python -m tools.access_page")


if __name__ == "__main__":
    main()
