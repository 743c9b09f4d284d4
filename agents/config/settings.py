"""Decode hatcast.toml, once, in `agents/cli`.

Secrets come from the environment or from `*_file` keys; relative paths are relative to the file.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from hatcast.agents.config.tables import (
    Address,
    DisplaySettings,
    DisplayTable,
    TopicsTable,
    display_settings,
    parse_address,
)
from hatcast.stream.errors import UNREADABLE, HatcastError, SettingError, name_fix
from hatcast.stream.estimators import ESTIMATOR_KEYS, Parameters
from hatcast.stream.estimators.values import values_form
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HYBRID_KEYS, HybridParameters, check
from hatcast.stream.hybrid.reports import ReportKeys, parse_report_keys
from hatcast.stream.policy.policy import (
    ContinualKeys,
    HybridKeys,
    MeansKeys,
    Policy,
    TrackerKeys,
    ValuesKeys,
    read_policy,
)
from hatcast.stream.policy.toml_tables import Duration, decode_table, duration_ms, such_as
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from hatcast.stream.readings.formats import FORMATS, format_with, jsonl
from hatcast.stream.readings.vehicles import KEY_BYTES, PARTITIONERS

RETENTION_MIN_MS: Final = 72 * 3_600_000  # a lost Redis is rebuilt from telemetry
DEFAULT_FILE: Final = "hatcast.toml"
KAFKA_VARIABLE: Final = "HATCAST_KAFKA_BOOTSTRAP_SERVERS"
REDIS_VARIABLE: Final = "HATCAST_REDIS_URL"
USER_KEY_VARIABLE: Final = "HATCAST_USER_KEY"
_PASSWORD_VARIABLE: Final = "HATCAST_KAFKA_PASSWORD"  # noqa: S105 - the name of a variable, not a password


class KafkaTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[kafka]`, with the option names of Kafka's clients for Python."""

    bootstrap_servers: str = "localhost:9092"
    """comma-separated; `HATCAST_KAFKA_BOOTSTRAP_SERVERS` overrides it"""
    partitions: int = 8
    """partitions of the telemetry topic, if hatcast creates it"""
    security_protocol: str = "PLAINTEXT"
    """or `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`"""
    sasl_mechanism: Annotated[str | None, such_as("SCRAM-SHA-512")] = None
    """`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`, with `SASL_*`"""
    sasl_plain_username: Annotated[str | None, such_as("hatcast")] = None
    """hatcast's user name"""
    sasl_plain_password_file: Annotated[str | None, such_as("kafka-password")] = None
    """a file with its password; or `HATCAST_KAFKA_PASSWORD`"""
    ssl_cafile: Annotated[str | None, such_as("ca.pem")] = None
    """PEM: certificate authorities of the brokers"""
    ssl_certfile: Annotated[str | None, such_as("client.pem")] = None
    """PEM: hatcast's client certificate, if brokers require one"""
    ssl_keyfile: Annotated[str | None, such_as("client.key")] = None
    """PEM: its private key"""
    ssl_check_hostname: bool = True
    """whether a broker's certificate must have the broker's name"""


class RedisTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[redis]`: address, login and TLS."""

    url: str = "redis://localhost:6379/0"
    """`rediss://` for TLS; `HATCAST_REDIS_URL` overrides it"""
    username: Annotated[str | None, such_as("hatcast")] = None
    """hatcast's ACL user"""
    password_file: Annotated[str | None, such_as("redis-password")] = None
    """a file with its password; or `HATCAST_REDIS_PASSWORD`"""
    ssl_ca_certs: Annotated[str | None, such_as("ca.pem")] = None
    """PEM, with `rediss://`: certificate authorities of the server"""
    ssl_certfile: Annotated[str | None, such_as("client.pem")] = None
    """PEM: hatcast's client certificate, if the server requires one"""
    ssl_keyfile: Annotated[str | None, such_as("client.key")] = None
    """PEM: its private key"""


class WorkerTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[worker]`: checkpoints, user key, and the operators' address."""

    checkpoint_interval: Duration = "1s"
    """time between checkpoints to Redis; 50ms to 60s"""
    session_timeout: Duration = "10s"
    """the partitions of a worker that does not answer are reassigned after this time; those of a killed one within
    seconds, if another runs or starts on its machine; 1s to 1800s"""
    idle_after: Duration = "30s"
    """a live partition gets a heartbeat record after this time without records"""
    user_key_file: Annotated[str | None, such_as("user-key")] = None
    """32 bytes in hexadecimal, also from `HATCAST_USER_KEY`; without it a key is created once and stored in Redis,
    or in the ledger file of `batch`"""
    report_keys_file: Annotated[str | None, such_as("report-keys")] = None
    """public keys of the authorities that certify devices: only reports that a device with a certificate has signed
    are counted ([device.md](device.md#signed-reports)). Without it signatures are not checked"""
    listen: Annotated[str | None, such_as("127.0.0.1:9464")] = None
    """`"127.0.0.1:9464"` serves `/livez`, `/readyz` and `/metrics` ([metrics.md](metrics.md)) there; without it
    nothing is served, so that several workers can share one file on one machine. Port 0 takes any free port and logs
    it"""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    kafka: KafkaTable = KafkaTable()
    redis: RedisTable = RedisTable()
    topics: TopicsTable = TopicsTable()
    worker: WorkerTable = WorkerTable()
    display: DisplayTable = DisplayTable()
    policy: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """Configuration of a command, checked."""

    kafka: KafkaTable
    redis: RedisTable
    topics: TopicsTable
    policy: Policy
    checkpoint_interval_s: float
    session_timeout_s: float
    idle_after_ms: int
    retention_ms: int | None  # retention of telemetry if hatcast creates it; None: unlimited (recordings)
    kafka_password: str | None
    redis_password: str | None
    user_key: bytes | None  # 32 bytes; None: created once and stored in Redis
    # keys that decide which device reports are genuine; None: signatures are not checked
    report_keys: ReportKeys | None
    # address of the health endpoints; None: not served, so that several workers can share one machine
    listen: Address | None
    display: DisplaySettings

    @property
    def sources(self) -> list[str]:
        """The topics that workers fold: telemetry, then reports if the policy takes them."""
        return [self.topics.telemetry, self.topics.reports] if self.policy.takes_reports else [self.topics.telemetry]


def load_settings(
    path: str | Path,
    environment: Mapping[str, str] = os.environ,
    transform_policy: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Settings:
    """Load and check the configuration file. Raises HatcastError with one line: key, problem and fix.

    transform_policy   changes the decoded [policy] table before it is checked, for commands that release nothing
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HatcastError(f"{path}: no such file; create it with `hatcast init`, or name another file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HatcastError(f"{path}: cannot be read ({error}); name a readable file") from None
    except UNREADABLE as error:
        raise HatcastError(f"{path}: is not TOML: {_toml_problem(error)}; correct it there") from None
    policy = table.get("policy")
    if transform_policy is not None and isinstance(policy, dict):
        table["policy"] = transform_policy(policy)
    try:
        return parse_settings(table, path.resolve().parent, environment)
    except SettingError as refusal:
        raise HatcastError(f"{path}: {refusal}") from None


def _toml_problem(error: Exception) -> str:
    if isinstance(error, tomllib.TOMLDecodeError):
        return str(error)
    return "brackets are nested too deeply" if isinstance(error, RecursionError) else "a number has thousands of digits"


def parse_settings(table: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> Settings:
    """Check a decoded file and return its settings. Relative paths start at `folder`. Raises SettingError."""
    return _settings(
        table, folder, environment, lambda given: _policy_in(folder, given.policy, given.topics.telemetry_format)
    )


def policy_of_keys(table: Mapping[str, Any], folder: Path) -> Policy:
    """Return the policy of a `[policy]` table; names of files are relative to `folder`. Raises SettingError."""
    return _policy_in(folder, table, jsonl.NAME)


def _policy_in(folder: Path, table: Mapping[str, Any], telemetry_format: str) -> Policy:
    tracker = table.get("tracker")
    if isinstance(tracker, Mapping) and isinstance(name := tracker.get("timetable"), str):
        table = {**table, "tracker": {**tracker, "timetable": str(folder / name)}}  # it is read later, by who needs it
    return policy_of_table(table, telemetry_format, lambda name: _read(folder, name, "policy.cells"))


def settings_of_policy(policy: Policy, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a file that has this policy and no other table. Raises SettingError."""
    return _settings({"policy": {}}, Path(), environment, lambda _: policy)


def _settings(
    table: Mapping[str, Any], folder: Path, environment: Mapping[str, str], policy_of: Callable[[_File], Policy]
) -> Settings:
    given = decode_table(table, _File, "")
    given = msgspec.structs.replace(given, topics=given.topics.prefixed(table.get("topics", {})))
    _check_choices(given)
    retention = given.topics.telemetry_retention
    interval = _seconds(given.worker.checkpoint_interval, "worker.checkpoint_interval", 50, 60_000)
    kafka = msgspec.structs.replace(
        given.kafka,
        bootstrap_servers=environment.get(KAFKA_VARIABLE) or given.kafka.bootstrap_servers,
        ssl_cafile=_path(folder, given.kafka.ssl_cafile),
        ssl_certfile=_path(folder, given.kafka.ssl_certfile),
        ssl_keyfile=_path(folder, given.kafka.ssl_keyfile),
    )
    redis = msgspec.structs.replace(
        given.redis,
        url=environment.get(REDIS_VARIABLE) or given.redis.url,
        ssl_ca_certs=_path(folder, given.redis.ssl_ca_certs),
        ssl_certfile=_path(folder, given.redis.ssl_certfile),
        ssl_keyfile=_path(folder, given.redis.ssl_keyfile),
    )
    retention_ms = None if retention == "none" else duration_ms(retention, "topics.telemetry_retention", "72h")
    if retention_ms is not None and retention_ms < RETENTION_MIN_MS:
        raise SettingError(
            "topics.telemetry_retention", f"{retention!r} is too short to rebuild a lost Redis", 'use "72h" or more'
        )
    policy = policy_of(given)
    display = given.display
    if display.title is None:
        what = "bus speeds" if policy.value_name is None else f"mean {policy.value_name}"
        name = policy.name.replace("-", " ").replace("_", " ").strip() or policy.name
        display = msgspec.structs.replace(display, title=f"{name[:1].upper()}{name[1:]}: {what}, hour by hour")
    return Settings(
        kafka=kafka,
        redis=redis,
        topics=given.topics,
        policy=policy,
        checkpoint_interval_s=interval,
        session_timeout_s=_seconds(given.worker.session_timeout, "worker.session_timeout", 1_000, 1_800_000),
        idle_after_ms=duration_ms(given.worker.idle_after, "worker.idle_after"),
        retention_ms=retention_ms,
        kafka_password=_secret(
            environment.get(_PASSWORD_VARIABLE),
            folder,
            given.kafka.sasl_plain_password_file,
            "kafka.sasl_plain_password_file",
        ),
        redis_password=_secret(
            environment.get("HATCAST_REDIS_PASSWORD"), folder, given.redis.password_file, "redis.password_file"
        ),
        user_key=_user_key(environment.get(USER_KEY_VARIABLE), folder, given.worker.user_key_file),
        report_keys=_report_keys(folder, given.worker.report_keys_file),
        listen=None if given.worker.listen is None else parse_address(given.worker.listen, "worker.listen"),
        display=display_settings(display, folder),
    )


def _check_choices(given: _File) -> None:
    topics = given.topics
    if topics.telemetry_format not in FORMATS:
        raise SettingError(
            "topics.telemetry_format",
            f"{topics.telemetry_format!r} is not a format",
            name_fix(topics.telemetry_format, FORMATS),
        )
    if topics.telemetry_partitioner not in PARTITIONERS:
        raise SettingError(
            "topics.telemetry_partitioner",
            f"{topics.telemetry_partitioner!r} is not a partitioner",
            name_fix(topics.telemetry_partitioner, PARTITIONERS),
        )
    if not 1 <= given.kafka.partitions <= 10_000:
        raise SettingError("kafka.partitions", f"{given.kafka.partitions} is out of range", "use 1 to 10000")
    topics.check_names()


def _seconds(text: str, key: str, least_ms: int, most_ms: int) -> float:
    milliseconds = duration_ms(text, key)
    if not least_ms <= milliseconds <= most_ms:
        raise SettingError(key, f"{text!r} is out of range", f"use {least_ms}ms to {most_ms // 1000}s")
    return milliseconds / 1000


def _path(folder: Path, name: str | None) -> str | None:
    return None if name is None else str(folder / name)


def _read(folder: Path, name: str, key: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            key, f"{folder / name} cannot be read ({type(error).__name__})", "name a readable file"
        ) from None


def _secret(value: str | None, folder: Path, name: str | None, key: str) -> str | None:
    if value:
        return value
    return None if name is None else _read(folder, name, key).strip()


def _user_key(value: str | None, folder: Path, name: str | None) -> bytes | None:
    text = _secret(value, folder, name, "worker.user_key_file")
    if text is None:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise SettingError(
            "worker.user_key_file",
            f"the user key is not {KEY_BYTES} bytes in hexadecimal",
            "create one with `openssl rand -hex 32`",
        )
    return key


def _report_keys(folder: Path, name: str | None) -> ReportKeys | None:
    if name is None:
        return None
    key = "worker.report_keys_file"
    try:
        return parse_report_keys(_read(folder, name, key))
    except ValueError as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(key, f"{folder / name}: {error}", "write what `hatcast keys authority` printed") from None


def policy_of_table(table: Mapping[str, Any], telemetry_format: str, read_cells: Callable[[str], str]) -> Policy:
    """Return the policy of a table.

    telemetry_format   name of the format of telemetry, which must have the values that the policy releases
    read_cells         returns the text of a file of cells that a key names
    Raises SettingError with the key, the problem and the fix.
    """
    policy = read_policy(table, {**ESTIMATOR_KEYS, **HYBRID_KEYS, **TRACKER_ESTIMATOR}, read_cells)
    Parameters.of(policy)
    format_with(telemetry_format, policy.value_units)
    match policy.method:
        case ValuesKeys():
            values_form(policy)
        case HybridKeys():
            check(HYBRID_ESTIMATORS[policy.estimator], HybridParameters.of(policy))
        case ContinualKeys(kind=kind):
            from hatcast.stream.continual import check as check_sums
            from hatcast.stream.release.continual import setting_of

            check_sums(kind, setting_of(policy))
        case MeansKeys() | TrackerKeys():
            pass  # `Parameters.of` has checked them; a tracker has no others
    return policy
