"""Redis connections: from the `[redis]` settings to clients that have answered once, with bounded waits.

Values are bytes. A connection attempt is retried with exponential backoff; then the error names the Redis, without the
password that its URL may contain.
"""

import asyncio
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import hiredis
import redis
import redis.asyncio
from redis import exceptions as errors
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import ClearError, Waiting, cause_of, connection_text, is_full
from hatcast.agents.redis.clients import AnyRedis, AsyncCluster, Cluster, SyncRedis, is_cluster
from hatcast.stream.errors import HatcastError, SettingError


def packed_by_hiredis(connection: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a class of connections that packs its commands with hiredis; it sends the same bytes."""
    return type(f"Packed{connection.__name__}", (_PackedByHiredis, connection), {})


class _PackedByHiredis(AbstractConnection):
    def pack_command(self, *args: Any) -> list[bytes]:
        name = args[0]
        try:
            words = (name.encode() if isinstance(name, str) else name).split()  # as redis-py: b"SCRIPT LOAD" is two
            return [hiredis.pack_command((*words, *args[1:]))]
        except (AttributeError, TypeError):  # memoryviews; and what redis-py refuses, in its own words
            return super().pack_command(*args)


Result = TypeVar("Result")

CONNECT_SECONDS: Final = 12.0  # retries of a Redis that does not answer, in total
CONNECT_TIMEOUT_S: Final = 3.0  # one attempt
RESPONSE_TIMEOUT_S: Final = 15.0  # for the longest script or fsync
HEALTH_CHECK_S: Final = 30  # a connection idle that long gets a PING first, so that a dead one fails no command
BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 2.0

_TRANSIENT: Final = (errors.BusyLoadingError, errors.ClusterError)  # it loads its data, or its cluster lacks a node
_DENIED_COMMAND: Final = re.compile(r"'([a-z|]{1,40})' command")
_DATABASE: Final = re.compile(r"[0-9]{1,9}")
_TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")  # keys of [redis], named as redis-py does
_PING_OPTIONS: Final[dict[str, Any]] = {"socket_timeout": CONNECT_TIMEOUT_S}  # the first INFO is answered at once


def connect_redis(settings: Settings, patience_s: float = CONNECT_SECONDS) -> SyncRedis:
    """Return a client of a Redis that has answered. The caller closes it. Raises HatcastError that names the Redis."""
    url, options = settings.redis.url, redis_options(settings)
    with closing(redis.Redis.from_url(url, retry=Retry(_backoff(), 0), **options | _PING_OPTIONS)) as first:
        for pause in _backoff_pauses(settings, patience_s):
            try:
                if is_cluster(first.info("cluster")):
                    return Cluster.from_url(url, retry=Retry(_backoff(), 1), **options)
                break
            except (errors.RedisError, errors.RedisClusterException, OSError) as error:
                if pause is None or not _is_retryable(error):
                    raise HatcastError(_error_text(settings, error, patience_s)) from None
                time.sleep(pause)
    return redis.Redis.from_url(url, retry=Retry(_backoff(), 1), **options)


async def connect_redis_async(settings: Settings, patience_s: float = CONNECT_SECONDS) -> AnyRedis:
    """Return an asyncio client, as `connect_redis`. The caller closes it with `aclose`."""
    url, options = settings.redis.url, redis_options(settings)
    async with redis.asyncio.Redis.from_url(url, retry=AsyncRetry(_backoff(), 0), **options | _PING_OPTIONS) as first:

        async def connect() -> AnyRedis:
            if is_cluster(await first.info("cluster")):
                return await AsyncCluster.from_url(url, retry=AsyncRetry(_backoff(), 1), **options).initialize()
            client = redis.asyncio.Redis.from_url(url, retry=AsyncRetry(_backoff(), 1), **options)
            pool = client.connection_pool
            pool.connection_class = packed_by_hiredis(pool.connection_class)
            return client

        return await with_retries(settings, connect, patience_s)


def watch_reconnects(client: AnyRedis, happened: Callable[[], None]) -> None:
    """Call `happened` whenever a client's connection is reopened: Redis may have restarted from an older state."""
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    async def connected(connection: Any) -> None:
        # No health check here, as in redis-py itself: it would reconnect, and so recurse.
        await connection.on_connect_check_health(check_health=False)
        if connection in seen:
            happened()
        seen.add(connection)

    if isinstance(client, redis.asyncio.RedisCluster):
        holders: list[Any] = [client, client.nodes_manager, *client.get_nodes()]
    else:
        holders = [client.connection_pool]
    for each in holders:
        each.connection_kwargs["redis_connect_func"] = connected


async def with_retries(
    settings: Settings, call: Callable[[], Awaitable[Result]], patience_s: float = CONNECT_SECONDS
) -> Result:
    """Return the result of `call`, retried with backoff while Redis does not answer. Raises HatcastError."""
    pauses = _backoff_pauses(settings, patience_s)
    while True:
        try:
            return await call()
        except (errors.RedisError, errors.RedisClusterException, OSError) as error:
            pause = next(pauses)
            if pause is None or not _is_retryable(error):
                raise HatcastError(_error_text(settings, error, patience_s)) from None
        await asyncio.sleep(pause)


def redis_options(settings: Settings) -> dict[str, Any]:
    """Return the keyword arguments for `Redis.from_url`, except `retry`. Options in the URL take precedence.

    Raises SettingError, which never shows the URL: it may contain a password.
    """
    table = settings.redis
    _check_url(table.url)
    options: dict[str, Any] = {
        "username": table.username,
        "password": settings.redis_password,
        "decode_responses": False,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": RESPONSE_TIMEOUT_S,
        "health_check_interval": HEALTH_CHECK_S,
        "client_name": "hatcast",
    }
    for key in _TLS_FILES:
        file = getattr(table, key)
        if file is None:
            continue
        if urlsplit(table.url).scheme != "rediss":
            raise SettingError(f"redis.{key}", "is not used without TLS", "let redis.url begin with rediss://")
        if not Path(file).is_file():
            raise SettingError(f"redis.{key}", f"{file} is not a file", "correct the path")
        options[key] = file
    return options


def database_of(settings: Settings) -> int:
    """Return the number of the database that `redis.url` names. Raises SettingError as `redis_options`."""
    _check_url(settings.redis.url)
    return parse_url(settings.redis.url).get("db", 0)


def redis_name(settings: Settings) -> str:
    """Return the name of the Redis for messages, without user and password."""
    url = urlsplit(settings.redis.url)
    if url.scheme == "unix":
        return f"Redis at {url.path}"
    return f"Redis at {url.hostname or 'localhost'}:{url.port or 6379}"


def redis_error(settings: Settings, error: Exception) -> HatcastError:
    """Return the error to show when a connected Redis fails."""
    return HatcastError(_error_text(settings, error))


def _check_url(text: str) -> None:
    """Raise SettingError if redis-py would raise, or would silently use database 0."""
    fix = 'write "redis://host:port/0", or rediss:// for TLS'
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise SettingError("redis.url", "has no valid port", fix) from None
    if url.scheme not in ("redis", "rediss", "unix"):
        raise SettingError("redis.url", "is not a Redis URL", fix)
    if port == 0 or (url.scheme != "unix" and url.path.strip("/") and not _DATABASE.fullmatch(url.path.strip("/"))):
        raise SettingError("redis.url", "has no valid port or database number", fix)


def _backoff() -> ExponentialBackoff:
    """Return the backoff before a command's one retry. Scripts compare expected values, so a repeat changes nothing."""
    return ExponentialBackoff(cap=0.5, base=0.05)


def _backoff_pauses(settings: Settings, patience_s: float) -> Iterator[float | None]:
    """Yield the seconds to wait after each failed attempt, doubling; None after the last.

    A terminal gets a line after the first failed attempts: `Waiting`.
    """
    start = monotonic_s()
    deadline, waiting = start + patience_s, Waiting(redis_name(settings), patience_s, start)
    pause = BACKOFF_S
    while (now := monotonic_s()) + pause < deadline:
        waiting.tried(now)
        yield pause
        pause = min(2 * pause, BACKOFF_MAX_S)
    yield None


def _is_retryable(error: Exception) -> bool:
    """Return False if a retry cannot help: the login or the command was rejected."""
    if isinstance(error, (errors.AuthenticationError, errors.AuthorizationError)):
        return False
    return isinstance(error, _TRANSIENT) or not isinstance(error, errors.ResponseError)


def _error_text(settings: Settings, error: Exception, patience_s: float | None = None) -> str:
    where = redis_name(settings)
    if isinstance(error, (errors.AuthenticationError, errors.AuthorizationError)):
        return f"{where} rejects the login: correct redis.username and HATCAST_REDIS_PASSWORD or redis.password_file"
    if is_full(error):
        return f"{where} is full: raise its `maxmemory`, and start again"
    if isinstance(error, errors.NoPermissionError):
        # The command by Redis' own name, and no other part of the error's text.
        found = _DENIED_COMMAND.search(str(error))
        command = "" if found is None else f" (command {found[1]})"
        return f"{where} denies this user permission{command}: change its ACL"
    if isinstance(error, ClearError):
        return f"{where}: {error}"
    if isinstance(error, errors.ResponseError) and not isinstance(error, _TRANSIENT):
        why = cause_of(error).text
        return f"{where} returned an error ({why}): correct redis.url or that server's settings"
    tried = "" if patience_s is None else f"; tried for {patience_s:g} s"
    why = cause_of(error).text if isinstance(error, _TRANSIENT) else connection_text(error)
    return f"{where} cannot be reached ({why}{tried}): start it, or correct redis.url or HATCAST_REDIS_URL"
