"""What `hatcast acls` prints: least for the policy, and the commands of Redis that the code sends."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from redis.commands import CoreCommands

from hatcast.agents.cli import COMMANDS, hatcast
from hatcast.agents.cli.acls import lines, redis_acl
from hatcast.agents.config.settings import Settings, parse_settings
from hatcast.agents.kafka.grants import Operation, Role, kafka_grants
from hatcast.stream.errors import HatcastError
from tests.integration.tables import DEFAULTS, merged
from tests.services.data import ROOT

QUERY: Final = {"name": "today", "kind": "mean_speed", "days": 1, "epsilon": 1.0, "min_n": 1}
SENT: Final = {"delete": "del", "script_load": "script|load", "config_get": "config|get"}  # redis-py's own names


def settings(**policy: Any) -> Settings:
    return parse_settings(merged(DEFAULTS, {"policy": {"name": "city"} | policy}), Path("/nowhere"), {})


def granted(given: Settings, role: Role) -> dict[str, set[Operation]]:
    return {each.name: {*each.operations} for each in kafka_grants(given, role)}


def test_a_worker_may_write_only_what_its_policy_publishes() -> None:
    plain = granted(settings(), Role.WORKER)
    topics = settings().topics
    assert Operation.WRITE in plain[topics.means]
    for name in (topics.queries, topics.running):
        assert Operation.WRITE not in plain[name]
    assert topics.reports not in plain
    assert Operation.WRITE in granted(settings(query=[QUERY]), Role.WORKER)[topics.queries]
    assert Operation.WRITE in granted(settings(estimator={"name": "pwh"}), Role.WORKER)[topics.reports]


@pytest.mark.parametrize("role", [Role.DISPLAY, Role.READER, Role.DEVICE])
def test_who_sees_only_what_is_public_reads_no_telemetry_and_no_redis(role: Role) -> None:
    given = settings(estimator={"name": "pwh"})
    private = {given.topics.telemetry, given.topics.registry, given.topics.dead_letters}
    assert not private & granted(given, role).keys()
    assert Operation.READ not in granted(given, role).get(given.topics.reports, set())
    assert redis_acl(given, role, "x") is None


def test_an_operator_sends_redis_no_command_that_writes() -> None:
    writing = {"del", "hdel", "hset", "hsetnx", "sadd", "set", "srem", "unlink"}
    assert writing < commands(Role.WORKER)
    assert not writing & commands(Role.OPERATOR)


def commands(role: Role) -> set[str]:
    line = redis_acl(settings(estimator={"name": "pwh"}), role, "x")
    return set() if line is None else {word[1:] for word in line.split() if word.startswith("+")}


@pytest.mark.parametrize(
    ("url", "is_selected"),
    [
        ("redis://localhost:6379", False),
        ("redis://localhost:6379/0", False),
        ("redis://localhost:6379/2", True),
        ("unix:///run/redis.sock?db=3", True),
    ],
)
@pytest.mark.parametrize("role", [Role.WORKER, Role.OPERATOR, Role.FEED, Role.CLUSTER])
def test_users_of_another_database_than_the_first_may_select_it(role: Role, url: str, is_selected: bool) -> None:  # noqa: FBT001
    tables = {"policy": {"name": "city", "estimator": {"name": "pwh"}}, "redis": {"url": url}}
    line = redis_acl(parse_settings(merged(DEFAULTS, tables), Path("/nowhere"), {}), role, "x")
    assert line is not None
    assert ("+select" in line.split()) is is_selected


def code() -> str:
    """The modules and scripts that speak to Redis."""
    files = [*(ROOT / "agents").rglob("*.py"), *(ROOT / "agents" / "redis").glob("*.lua")]
    own = ROOT / "agents" / "redis" / "grants.py"
    return "\n".join(path.read_text() for path in files if path != own and "demo" not in path.parts)


def test_the_commands_of_scripts_are_allowed_and_every_allowed_command_is_sent() -> None:
    scripts = "".join(path.read_text() for path in (ROOT / "agents" / "redis").glob("*.lua"))
    called = re.findall(r"(?:redis\.p?call|run_read|run)\('([A-Z]+)'", scripts)
    called += re.findall(r"(?:hash|set|gone|join|leave) = '([A-Z]+)'", scripts)
    called += re.findall(r"(?:and|or) '([A-Z]+)'", scripts)  # one of two, by the type of the key
    assert len({*called}) > 12
    assert {command.lower() for command in called} - commands(Role.WORKER) == set()
    methods = {SENT.get(name, name) for name in re.findall(r"\.([a-z_]+)\(", code())}
    implied = {"client|setname", "ping"}  # redis-py's, of client_name and of health checks
    granted_to_any = set().union(*map(commands, Role))
    assert granted_to_any - {command.lower() for command in called} - methods - implied == set()


def test_every_command_that_a_module_sends_is_allowed_and_doctor_alone_sends_more_than_a_worker() -> None:
    names = {*re.findall(r"\b_?(?:redis|pipe)\.([a-z_]+)\(", code())}
    sent = {SENT.get(name, name) for name in names - {"execute_command"} if hasattr(CoreCommands, name)}
    assert len(sent) > 12
    assert sent - commands(Role.WORKER) == {"config|get", "time"}
    assert {"config|get", "time"} < commands(Role.OPERATOR)


@pytest.mark.parametrize("role", [Role.WORKER, Role.OPERATOR])
def test_a_policy_that_replaces_another_may_read_its_keys_and_one_with_devices_their_state(role: Role) -> None:
    line = redis_acl(settings(replaces="old", **{"from": "2026-11-24"}), role, "x")
    assert line is not None
    assert " %R~{old:* " in line
    with_devices = redis_acl(settings(estimator={"name": "pwh"}), role, "x")
    assert with_devices is not None
    assert " ~{city:* ~{city/reports:* " in with_devices


def test_what_cannot_be_is_one_line() -> None:
    with pytest.raises(HatcastError, match="takes no reports of devices"):
        [*lines(settings(), Role.DEVICE, "x")]
    wrong = CliRunner().invoke(hatcast, ["acls", "worker", "--group", "x", "--config", str(ROOT / "hatcast.toml")])
    assert (wrong.exit_code, "--group is for the role reader" in wrong.output) == (2, True)


def test_no_command_takes_a_secret_as_an_option() -> None:
    options = {
        option
        for name in COMMANDS
        for command in [hatcast.get_command(None, name)]  # type: ignore[arg-type] # the group ignores its context
        for each in [command, *getattr(command, "commands", {}).values()]
        for parameter in (each.params if each is not None else [])
        for option in parameter.opts
    }
    assert "--password-file" in options
    assert not [each for each in options if re.search(r"password|secret|token|^--key$", each) and "file" not in each]
