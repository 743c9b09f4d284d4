"""Causes of failed operations: the service and the reason, from the error's type and the codes listed here.

An error's text may contain the failed command, and with it a record. So only words of these lists and a script's line
number are taken from it. Types are compared by name, so that neither a client nor `ssl` has to be imported.

Another cause is an optional package that is not installed: `EXTRAS` has the extra that installs it.
"""

import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Final

from hatcast.stream.errors import HatcastError

NOTICE_S: Final = 1.5  # a service that starts, or a connection that is lost for a moment, is no news before that


class Waiting:
    """The wait for a service. Elsewhere than on a terminal, logs and the error that ends the wait are all there is.

    name        of the service, with its address and without a password
    patience_s  how long the wait lasts at most
    start_s     its first moment, on the clock of `tried`
    """

    def __init__(self, name: str, patience_s: float, start_s: float) -> None:
        self._line = f"hatcast: waiting for {name} (up to {patience_s:g} s)"
        self._from_s: float | None = start_s + NOTICE_S if patience_s > 2 * NOTICE_S else None

    def tried(self, now_s: float) -> None:
        """Say once that the wait goes on. Call it after each attempt that failed, before the next one."""
        if self._from_s is None or now_s < self._from_s:
            return
        self._from_s = None
        if sys.stderr.isatty():
            sys.stderr.write(f"{self._line}\n")
            sys.stderr.flush()


REDIS: Final = "Redis"
KAFKA: Final = "Kafka"
HATCAST: Final = "hatcast"
FULL: Final = "Redis is full: raise its `maxmemory`; until then nothing is committed, and nothing is lost"

# Redis' error codes; the first one in a text counts. A script's error contains the code of the command that failed.
_REDIS_CODES: Final[Mapping[str, str]] = {
    "MISCONF": "it cannot write to its disk (MISCONF): free space on it, and see the server's log",
    "READONLY": "it is a read-only replica (READONLY): set redis.url to the master",
    "NOREPLICAS": "it has too few replicas (NOREPLICAS): start them, or lower min-replicas-to-write",
    "NOAUTH": "it requires a login (NOAUTH): set redis.username and HATCAST_REDIS_PASSWORD",
    "WRONGPASS": "it rejects the login (WRONGPASS): correct redis.username and HATCAST_REDIS_PASSWORD",
    "NOPERM": "its ACL does not allow a command or a key (NOPERM): see `hatcast acls`",
    "LOADING": "it is loading its data (LOADING)",
    "BUSY": "a script or function blocks it (BUSY)",
    "CLUSTERDOWN": "its cluster misses a node (CLUSTERDOWN): start it, or give its slots to another",
    "MASTERDOWN": "its master is down (MASTERDOWN)",
    "TRYAGAIN": "its cluster moves keys (TRYAGAIN)",
    "MOVED": "its cluster moves keys (MOVED)",
    "ASK": "its cluster moves keys (ASK)",
    "CROSSSLOT": "keys of one script are on two nodes (CROSSSLOT): this is a bug in hatcast",
    "NOSCRIPT": "a script is missing from its cache (NOSCRIPT)",
    "EXECABORT": "it aborted a transaction (EXECABORT)",
    "WRONGTYPE": "a key has another type (WRONGTYPE): something else writes to this Redis",
    "UNBLOCKED": "it was demoted while a command waited (UNBLOCKED)",
}
# redis-py removes the codes of these errors from their texts.
_REDIS_KINDS: Final[Mapping[str, str]] = {
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "ClusterCrossSlotError": "CROSSSLOT",
    "NoScriptError": "NOSCRIPT",
    "ExecAbortError": "EXECABORT",
    "AuthenticationError": "NOAUTH",
    "AuthorizationError": "NOPERM",
}
_CODE: Final = re.compile(rf"\b({'|'.join(_REDIS_CODES)})\b")
_NOT_ALLOWED_IN_SCRIPT: Final = re.compile(r"user executing the script can't|ACL failure in script|NOPERM")
_SCRIPT_LINE: Final = re.compile(r"user_script:(\d{1,6})\b")
_MAX_CLIENTS: Final = "max number of clients reached"
_NO_DATABASE: Final = "DB index is out of range"
_ERRNO: Final = re.compile(r"\[Errno (\d{1,3})\]")
_TLS_REASON: Final = re.compile(r"[A-Z0-9_]{1,60}")
_OUT_OF_MEMORY: Final = "OOM command not allowed"

_FEW_REPLICAS: Final = "too few replicas are in sync: start the brokers, or lower min.insync.replicas"
# Classes of aiokafka's errors. For any other, the class name is the reason: it names the broker's error code.
_KAFKA_KINDS: Final[Mapping[str, str]] = {
    "KafkaConnectionError": "no broker can be reached",
    "NodeNotReadyError": "a broker is not ready",
    "NoBrokersAvailable": "no broker can be reached",
    "KafkaTimeoutError": "no answer in time",
    "RequestTimedOutError": "no answer in time",
    "KafkaStorageError": "a broker's disk fails: see the broker's log",
    "LogDirNotFound": "a broker's disk fails: see the broker's log",
    "NotEnoughReplicasError": _FEW_REPLICAS,
    "NotEnoughReplicasAfterAppendError": _FEW_REPLICAS,
    "TopicAuthorizationFailedError": "this user may not use a topic: see `hatcast acls`",
    "GroupAuthorizationFailedError": "this user may not use the consumer group: see `hatcast acls`",
    "ClusterAuthorizationFailedError": "this user lacks a cluster permission: change its ACLs",
    "TransactionalIdAuthorizationFailed": "this user may not use a transactional id: see `hatcast acls`",
    "SaslAuthenticationFailed": "the login is rejected: correct kafka.sasl_plain_username or HATCAST_KAFKA_PASSWORD",
    "AuthenticationFailedError": "the login is rejected: correct kafka.sasl_plain_username or HATCAST_KAFKA_PASSWORD",
    "UnknownTopicOrPartitionError": "a topic or partition does not exist",
    "MessageSizeTooLargeError": "a record is larger than the topic's max.message.bytes",
    "RecordListTooLargeError": "a batch is larger than the brokers' segment.bytes",
    "NotLeaderForPartitionError": "a partition's leader moved",
    "LeaderNotAvailableError": "a partition has no leader",
    "UnsupportedCodecError": "a batch has a compression that is not supported here",
    "CorruptRecordException": "a batch is corrupt",
}
_STATES: Final[Mapping[str, str]] = {
    "Unrecovered": "Redis may have lost releases, and the ledger has to be recovered first",
    "DaySealed": "the day is sealed: nothing more is committed to it",
    "Replaced": "another policy has the day",
    "Unclaimed": "Redis has no entry of this policy's transition",
    "ConsumerStoppedError": "the consumer has stopped",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an operation failed, without the error's own text."""

    service: str  # `Redis`, `Kafka`, or `hatcast` for a bug or a state of hatcast itself
    text: str


def is_full(error: BaseException) -> bool:
    """Return whether Redis rejected a write because it is out of memory. Before 7.0 a script's error hides that."""
    kinds = _kinds(error)
    return "OutOfMemoryError" in kinds or ("ResponseError" in kinds and _OUT_OF_MEMORY in str(error))


class ClearError(Exception):
    """Error whose text is safe to print: one line, without data, with a fix."""


def cause_of(error: BaseException) -> Cause:
    """Return the service that failed and why."""
    if isinstance(error, ClearError):
        return Cause(REDIS, str(error))
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if "redis" in packages:
        return Cause(REDIS, _redis_text(error))
    if "aiokafka" in packages and "KafkaError" in _kinds(error):
        text, why = _KAFKA_KINDS.get(type(error).__name__, type(error).__name__), network_text(error)
        return Cause(KAFKA, text if why is None else f"{text} ({why})")
    name = type(error).__name__
    if name in _STATES:
        return Cause(HATCAST, _STATES[name])
    return Cause(HATCAST, network_text(error) or name)


def network_text(error: BaseException) -> str | None:
    """Return the operating system's or TLS's reason for an error or its causes; None if there is none."""
    for cause in _chain(error):
        kinds = _kinds(cause)
        if "gaierror" in kinds:
            return "unknown host"
        if "SSLCertVerificationError" in kinds:
            return "its certificate is not trusted"
        if "SSLError" in kinds:
            reason = str(getattr(cause, "reason", ""))
            return f"TLS failed ({reason})" if _TLS_REASON.fullmatch(reason) else "TLS failed"
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, OSError):
            number = cause.errno
            if number is None:  # asyncio tried several addresses: the numbers are in the text only
                found = _ERRNO.search(str(cause))
                number = None if found is None else int(found[1])
            if number in errno.errorcode:
                return os.strerror(number or 0).lower()
    return None


def connection_text(error: BaseException) -> str:
    """Return the reason for a failed connection to Redis."""
    if _MAX_CLIENTS in str(error):
        return "it has its maximum number of clients: raise its `maxclients`"
    return network_text(error) or ("no answer in time" if "TimeoutError" in _kinds(error) else "closed by the server")


def _redis_text(error: BaseException) -> str:
    code = _redis_code(error)
    if is_full(error) or code is not None:
        return FULL if code is None else _REDIS_CODES[code]
    kinds, text = _kinds(error), str(error)
    if _NO_DATABASE in text:
        return "the database does not exist: correct the number at the end of redis.url"
    if "ResponseError" in kinds:
        return _command_error(text)
    if kinds & {"ConnectionError", "ClusterError", "TimeoutError"}:
        return f"no connection ({connection_text(error)})"
    return type(error).__name__


def _command_error(text: str) -> str:
    if _NOT_ALLOWED_IN_SCRIPT.search(text):
        return "this user may not run a command of a script: change its ACL to that of `hatcast acls worker`"
    line = _SCRIPT_LINE.search(text)
    if line is None:
        return "it rejected a command (ERR)"
    return f"a script failed at its line {line[1]}: this is a bug in hatcast, or its keys were changed"


def _redis_code(error: BaseException) -> str | None:
    """Return an error's code in `_REDIS_CODES`, from its attribute, its class or its text; None if it has none."""
    code = str(getattr(error, "status_code", None))
    if code in _REDIS_CODES:
        return code
    kinds = _kinds(error)
    for kind, known in _REDIS_KINDS.items():
        if kind in kinds:
            return known
    found = _CODE.search(str(error)) if "ResponseError" in kinds else None
    return None if found is None else found[1]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "matplotlib": "research",
        "nacl": "signed",
        "pandas": "pandas",
        "polars": "research",
        "pyarrow": "parquet",
        "scipy": "research",
        "tomlkit": "research",
        "xlsxwriter": "excel",
    }
)
"""Package -> the extra in pyproject.toml that installs it."""


def missing_extra(error: BaseException, what: str = "this") -> str | None:
    """Return one line that names the extra to install; None if the error is not a missing optional package.

    what   needs it
    """
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return _missing(package, what) if package in EXTRAS else None


def require(package: str, what: str = "this") -> None:
    """Import an optional package. Raises HatcastError, which names the extra to install, if it is not installed.

    what   needs it, for the message
    """
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise HatcastError(_missing(package, what)) from None


def _missing(package: str, what: str) -> str:
    return f"{what} needs {package}, which is not installed: run  pip install 'hatcast[{EXTRAS[package]}]'"
