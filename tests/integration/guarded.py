"""A Kafka with SCRAM, client certificates and an authorizer, a Redis with TLS and users, and what was asked of them.

The broker's own listener, by which the tests administer it, is open to this machine; a client of it is a super user.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.integration.acls import admin_api, grant, revoke
from tests.integration.redis_commands import CommandLog, logged_commands
from tests.services import KafkaServer, RedisServer, local_kafka, local_redis
from tests.services.kafka_jars import HERE
from tests.services.lifecycle import ServerProcess, free_ports, wait_until
from tests.services.tls import Certificate, make_certificate

MECHANISM: Final = "SCRAM-SHA-512"
_KINDS: Final = {
    "topic": admin_api.ResourceType.TOPIC,
    "group": admin_api.ResourceType.GROUP,
    "transactional-id": admin_api.ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: Final = {
    "Read": admin_api.AclOperation.READ,
    "Write": admin_api.AclOperation.WRITE,
    "Create": admin_api.AclOperation.CREATE,
    "Describe": admin_api.AclOperation.DESCRIBE,
    "DescribeConfigs": admin_api.AclOperation.DESCRIBE_CONFIGS,
}


@dataclass(frozen=True)
class Privilege:
    """One operation of a user on a resource, in the words of kafka-acls.sh."""

    user: str  # User:NAME
    operation: str
    kind: str
    name: str
    prefixed: bool

    @property
    def _pattern(self) -> Any:
        return admin_api.ResourcePatternType.PREFIXED if self.prefixed else admin_api.ResourcePatternType.LITERAL

    @property
    def binding(self) -> Any:
        kind, operation = _KINDS[self.kind], _OPERATIONS[self.operation]
        return admin_api.AclBinding(
            kind, self.name, self._pattern, self.user, "*", operation, admin_api.AclPermissionType.ALLOW
        )

    @property
    def filter(self) -> Any:
        kind, operation = _KINDS[self.kind], _OPERATIONS[self.operation]
        return admin_api.AclBindingFilter(
            kind, self.name, self._pattern, self.user, None, operation, admin_api.AclPermissionType.ALLOW
        )

    def is_used_by(self, decisions: "set[Decision]") -> bool:
        """Whether it was asked for as itself: what it implies does not count."""
        return any(
            f"User:{each.user}" == self.user
            and each.allowed
            and each.operation == _OPERATIONS[self.operation].name
            and each.kind.lower() == self.kind.replace("-", "")
            and (each.name.startswith(self.name) if self.prefixed else each.name == self.name)
            for each in decisions
        )


# The authorizer writes each decision, the allowed ones too.
_AUTHORIZER: Final = "logger.authorizer.name = kafka.authorizer.logger\nlogger.authorizer.level = DEBUG\n"
_DECISION: Final = re.compile(
    r"Principal = User:(?P<user>\S+) is (?P<decision>Allowed|Denied) operation = (?P<operation>\w+)"
    r" .*? on resource = (?P<kind>\w+):LITERAL:(?P<name>\S+) for request = (?P<request>\w+)"
)


@dataclass(frozen=True)
class Decision:
    """What the broker's authorizer was asked."""

    user: str
    allowed: bool
    operation: str
    kind: str
    name: str
    request: str


@dataclass(frozen=True)
class Guarded:
    """Both services, their listeners and their administrators."""

    kafka: KafkaServer
    redis_server: RedisServer
    certificate: Certificate
    folder: Path
    scram_port: int
    mutual_port: int
    redis_port: int
    redis_log: CommandLog = field(repr=False)
    admin: Any = field(repr=False)

    def scram_users(self, passwords: dict[str, str]) -> None:
        """Make users with passwords. Returns when the broker knows them: it answers before that."""
        info = admin_api.ScramCredentialInfo(admin_api.ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = [
            admin_api.UserScramCredentialUpsertion(name, info, password.encode())
            for name, password in passwords.items()
        ]
        for done in self.admin.alter_user_scram_credentials(wanted).values():
            done.result(30)
        wait_until(lambda: passwords.keys() <= self._users(), None, 30, "users of Kafka")

    def _users(self) -> set[str]:
        return set(self.admin.describe_user_scram_credentials().result(30))

    def apply(self, lines: Iterable[str], password: str) -> None:
        """Do what `hatcast acls` prints: a line of kafka-acls.sh, or of redis-cli."""
        privileges: list[Privilege] = []
        for line in lines:
            if line.startswith("ACL SETUSER "):
                with closing(self.redis_server.client()) as redis:
                    redis.execute_command(*line.replace(">PASSWORD", f">{password}").split())  # type: ignore[no-untyped-call] # redis-py leaves it open
            else:
                privileges += privileges_of(line)
        self.give(privileges)

    def give(self, privileges: Iterable[Privilege]) -> None:
        """Grant privileges."""
        grant(self.admin, [each.binding for each in privileges])

    def revoke(self, privileges: Iterable[Privilege]) -> None:
        """Take privileges away."""
        revoke(self.admin, [each.filter for each in privileges])

    def decisions(self) -> set[Decision]:
        """What the authorizer decided since the broker was started."""
        assert isinstance(self.kafka.lifecycle, ServerProcess)
        found = _DECISION.finditer(self.kafka.lifecycle._log.read_text())
        return {
            Decision(
                each["user"],
                each["decision"] == "Allowed",
                each["operation"],
                each["kind"],
                each["name"],
                each["request"],
            )
            for each in found
        }


def privileges_of(line: str) -> list[Privilege]:
    """The privileges of a line of kafka-acls.sh; an option that is not known here is an error."""
    words = shlex.split(line)
    assert words.pop(0) == "kafka-acls.sh"
    principal, prefixed = "", False
    operations, resources = [], []
    while words:
        match words.pop(0):
            case "--add":
                pass
            case "--bootstrap-server" | "--command-config":
                words.pop(0)
            case "--allow-principal":
                principal = words.pop(0)
            case "--operation":
                operations.append(words.pop(0))
            case "--resource-pattern-type":
                assert words.pop(0) == "prefixed"
                prefixed = True
            case option:
                resources.append((option.removeprefix("--"), words.pop(0)))
    return [
        Privilege(principal, operation, kind, name, prefixed) for kind, name in resources for operation in operations
    ]


@contextmanager
def open_guarded(folder: Path) -> Iterator[Guarded]:
    """Both services. Raises ServiceAbsent without Java, redis-server or openssl."""
    certificate = make_certificate(folder)
    whole = folder / "keystore.pem"
    whole.write_text(certificate.key_file.read_text() + certificate.cert_file.read_text())
    log4j = folder / "log4j2.properties"
    log4j.write_text((HERE / "log4j2.properties").read_text() + _AUTHORIZER)
    with free_ports(3) as (scram, mutual, redis_port):
        pass
    guards = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # of the listener of the broker itself and of the tests
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SCRAM:SASL_SSL,MUTUAL:SSL",
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.scram.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
        " required;",
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(whole),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.ca_file),
    }
    tls = ["--tls-port", str(redis_port), "--tls-auth-clients", "no"]
    for option, file in (
        ("--tls-cert-file", certificate.cert_file),
        ("--tls-key-file", certificate.key_file),
        ("--tls-ca-cert-file", certificate.ca_file),
    ):
        tls += [option, str(file)]
    with ExitStack() as stack:
        kafka = stack.enter_context(local_kafka("256m", guards, {"SCRAM": scram, "MUTUAL": mutual}, log4j))
        redis_server = stack.enter_context(local_redis(*tls))
        admin = admin_api.AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        log = stack.enter_context(logged_commands(redis_server))
        yield Guarded(kafka, redis_server, certificate, folder, scram, mutual, redis_port, log, admin)


def scram_tables(guarded: Guarded, user: str, password_file: str, *, redis: bool) -> dict[str, Any]:
    """`[kafka]` and `[redis]` of a user who logs in by SCRAM over TLS."""
    made: dict[str, Any] = {
        "kafka": {
            "bootstrap_servers": f"127.0.0.1:{guarded.scram_port}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password_file": password_file,
            "ssl_cafile": str(guarded.certificate.ca_file),
        },
        # The others are not to be able to reach it.
        "redis": {"url": "redis://127.0.0.1:1/0"},
    }
    if redis:
        made["redis"] = {
            "url": f"rediss://127.0.0.1:{guarded.redis_port}/0?client_name={user}",  # for the log of commands
            "username": user,
            "password_file": password_file,
            "ssl_ca_certs": str(guarded.certificate.ca_file),
        }
    return made


def certificate_tables(guarded: Guarded, own: Certificate, user: str, password_file: str) -> dict[str, Any]:
    """The same of a user who shows a certificate to Kafka."""
    made = scram_tables(guarded, user, password_file, redis=True)
    made["kafka"] = {
        "bootstrap_servers": f"127.0.0.1:{guarded.mutual_port}",
        "security_protocol": "SSL",
        "ssl_cafile": str(own.ca_file),
        "ssl_certfile": str(own.cert_file),
        "ssl_keyfile": str(own.key_file),
    }
    return made
