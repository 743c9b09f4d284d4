"""Why an operation failed, from kinds and listed codes: never a word of the error's own text."""

import socket
import ssl
from collections.abc import Callable

import aiokafka.errors
import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from hatcast.agents.errors.causes import FULL, Cause, cause_of
from hatcast.stream.ledger.rejections import Unrecovered

SECRET = "GJ05BX1234 38.5 {t:0}:chunk"

Says = Callable[[BaseException], Cause]


def reply(text: str) -> Exception:
    """What redis-py raises for an answer of Redis."""
    error = BaseParser.parse_error(text)  # type: ignore[no-untyped-call]  # redis-py leaves it open
    assert isinstance(error, Exception)
    return error


def below(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


REDIS = {
    "OOM command not allowed when used memory > 'maxmemory'.": FULL,
    f"ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command not allowed {SECRET}": FULL,
    f"MISCONF Errors writing to the AOF file: No space left on device {SECRET}": "cannot write to its disk (MISCONF)",
    f"ERR Error running script (call to f_1): @user_script:9: -MISCONF Redis is configured {SECRET}": "(MISCONF)",
    f"READONLY You can't write against a read only replica. script: {SECRET}, on @user_script:4.": "read-only replica",
    "NOREPLICAS Not enough good replicas to write.": "too few replicas",
    "NOAUTH Authentication required.": "requires a login (NOAUTH)",
    "WRONGPASS invalid username-password pair": "rejects the login (WRONGPASS)",
    f"NOPERM this user has no permissions to access the key {SECRET}": "ACL does not allow",
    "LOADING Redis is loading the dataset in memory": "loading its data",
    "BUSY Redis is busy running a script.": "blocks it (BUSY)",
    "CLUSTERDOWN The cluster is down": "misses a node (CLUSTERDOWN)",
    "MOVED 7 127.0.0.1:7": "its cluster moves keys (MOVED)",
    "ASK 7 127.0.0.1:7": "its cluster moves keys (ASK)",
    f"TRYAGAIN Multiple keys request during rehashing of slot {SECRET}": "its cluster moves keys (TRYAGAIN)",
    f"WRONGTYPE Operation against a key {SECRET}": "another type (WRONGTYPE)",
    f"ERR {SECRET} script: 4fe, on @user_script:31.": "a script failed at its line 31",
    f"The user executing the script can't run this command {SECRET} script: 0a9, on @user_script:1.": "change its ACL",
    f"ERR value is not an integer {SECRET}": "it rejected a command (ERR)",
    "ERR max number of clients reached": "raise its `maxclients`",
}
KAFKA = {
    aiokafka.errors.KafkaConnectionError(SECRET): "no broker can be reached",
    aiokafka.errors.RequestTimedOutError(SECRET): "no answer in time",
    aiokafka.errors.KafkaStorageError(SECRET): "a broker's disk fails",
    aiokafka.errors.NotEnoughReplicasError(SECRET): "too few replicas are in sync",
    aiokafka.errors.MessageSizeTooLargeError(SECRET): "max.message.bytes",
    aiokafka.errors.UnsupportedCodecError(SECRET): "a compression that is not supported here",
    aiokafka.errors.InvalidTxnState(SECRET): "InvalidTxnState",
}
CONNECTIONS = {
    below(RedisConnectionError(SECRET), ConnectionRefusedError(111, SECRET)): "no connection (connection refused)",
    below(RedisConnectionError(SECRET), socket.gaierror(-2, SECRET)): "no connection (unknown host)",
    below(RedisConnectionError(SECRET), OSError("Multiple exceptions: [Errno 111] Connect call failed")): "refused",
    below(RedisConnectionError(SECRET), ssl.SSLError(1, SECRET)): "no connection (TLS failed)",
    RedisConnectionError(SECRET): "no connection (closed by the server)",
    RedisTimeoutError(SECRET): "no answer in time",
}


def wrong(cause_of: Says) -> list[tuple[Cause, str, str]]:
    """The errors that do not have their service and their cause, or that have a word of their text."""
    said = [(cause_of(reply(text)), "Redis", wanted) for text, wanted in REDIS.items()]
    said += [(cause_of(error), "Kafka", wanted) for error, wanted in KAFKA.items()]
    said += [(cause_of(error), "Redis", wanted) for error, wanted in CONNECTIONS.items()]
    said += [(cause_of(Unrecovered(SECRET)), "hatcast", "Redis may have lost releases")]
    said += [(cause_of(ValueError(SECRET)), "hatcast", "ValueError")]
    return [
        (cause, service, wanted)
        for cause, service, wanted in said
        if cause.service != service or wanted not in cause.text or any(word in cause.text for word in SECRET.split())
    ]


def test_a_cause_names_the_service_and_what_is_wrong_with_it_and_nothing_of_the_text() -> None:
    assert wrong(cause_of) == []


def mutants() -> dict[str, Says]:
    return {
        "the text": lambda error: Cause(cause_of(error).service, str(error)),
        "the text of what is not listed": lambda error: Cause(
            cause_of(error).service, cause_of(error).text.replace("it rejected a command (ERR)", str(error))
        ),
        "the class alone": lambda error: Cause(cause_of(error).service, type(error).__name__),
        "no service": lambda error: Cause("hatcast", cause_of(error).text),
    }


@pytest.mark.parametrize("mutant", mutants())
def test_a_cause_that_is_less_or_more_than_that_is_seen(mutant: str) -> None:
    assert wrong(mutants()[mutant]) != []
