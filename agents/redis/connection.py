"""The way to Redis: from `[redis]` to clients that answered once, with bounded waits.

Bytes in, bytes out. A Redis that does not answer is tried again with back-off; then the refusal names it, without
the password that its URL may hold.
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

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import ClearError, cause_of, connection_text, is_full
from hatcast.agents.redis.clients import AnyRedis, AsyncCluster, Cluster, SyncRedis, is_cluster
from hatcast.stream.errors import HatcastError, SettingError

Answer = TypeVar("Answer")

CONNECT_SECONDS: Final = 12.0  # how long a Redis that does not answer is tried again
DIAL_SECONDS: Final = 3.0  # one try
ANSWER_SECONDS: Final = 15.0  # the longest script or fsync that is waited for
HEALTH_SECONDS: Final = 30  # an idle connection is asked first, so that a dead one costs no command
BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 2.0

_PASSING: Final = (BusyLoadingError, ClusterError)  # it loads its data, or its cluster misses a node
_NOT_ALLOWED: Final = re.compile(r"'([a-z|]{1,40})' command")
_TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")  # keys of [redis], named as redis-py does
_FIRST_ANSWER: Final[dict[str, Any]] = {"socket_timeout": DIAL_SECONDS}  # a PING is answered at once, or not at all


def connect_redis(settings: Settings, patience_s: float = CONNECT_SECONDS) -> SyncRedis:
    """A client of a Redis that answered. The caller closes it. Raises HatcastError that names the Redis."""
    url, options = settings.redis.url, redis_options(settings)
    with closing(redis.Redis.from_url(url, retry=Retry(_again(), 0), **options | _FIRST_ANSWER)) as first:
        for pause in _pauses(patience_s):
            try:
                if is_cluster(first.info("cluster")):
                    return Cluster.from_url(url, retry=Retry(_again(), 1), **options)
                break
            except (RedisError, RedisClusterException, OSError) as error:
                if pause is None or not _worth_another_try(error):
                    raise HatcastError(_refusal(settings, error, patience_s)) from None
                time.sleep(pause)
    return redis.Redis.from_url(url, retry=Retry(_again(), 1), **options)


async def connect_redis_async(settings: Settings, patience_s: float = CONNECT_SECONDS) -> AnyRedis:
    """The same for asyncio. The caller closes it (`aclose`). Raises HatcastError that names the Redis."""
    url, options = settings.redis.url, redis_options(settings)
    async with redis.asyncio.Redis.from_url(url, retry=AsyncRetry(_again(), 0), **options | _FIRST_ANSWER) as first:

        async def connect() -> AnyRedis:
            if is_cluster(await first.info("cluster")):
                return await AsyncCluster.from_url(url, retry=AsyncRetry(_again(), 1), **options).initialize()
            return redis.asyncio.Redis.from_url(url, retry=AsyncRetry(_again(), 1), **options)

        return await patiently(settings, connect, patience_s)


def watch_reconnects(client: AnyRedis, happened: Callable[[], None]) -> None:
    """Call `happened` whenever a connection of a client is opened again: behind it may be a Redis that went back."""
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    async def connected(connection: Any) -> None:
        # Without a look at its health, as redis-py itself does it: that look would connect again, and again.
        await connection.on_connect_check_health(check_health=False)
        if connection in seen:
            happened()
        seen.add(connection)

    options: list[dict[str, Any]]
    if isinstance(client, redis.asyncio.RedisCluster):
        options = [client.connection_kwargs, client.nodes_manager.connection_kwargs]
        nodes = client.get_nodes()
        options += [node.connection_kwargs for node in nodes]
    else:
        options = [client.connection_pool.connection_kwargs]
    for each in options:
        each["redis_connect_func"] = connected


async def patiently(
    settings: Settings, ask: Callable[[], Awaitable[Answer]], patience_s: float = CONNECT_SECONDS
) -> Answer:
    """What `ask` returns, asked again with back-off while Redis does not answer. Raises HatcastError that names it."""
    pauses = _pauses(patience_s)
    while True:
        try:
            return await ask()
        except (RedisError, RedisClusterException, OSError) as error:
            pause = next(pauses)
            if pause is None or not _worth_another_try(error):
                raise HatcastError(_refusal(settings, error, patience_s)) from None
        await asyncio.sleep(pause)


def redis_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments for `Redis.from_url`, but for `retry`. What the URL says itself goes before.

    Raises SettingError, which never shows the URL: it may hold a password.
    """
    table = settings.redis
    _check_url(table.url)
    options: dict[str, Any] = {
        "username": table.username,
        "password": settings.redis_password,
        "decode_responses": False,
        "socket_connect_timeout": DIAL_SECONDS,
        "socket_timeout": ANSWER_SECONDS,
        "health_check_interval": HEALTH_SECONDS,
        "client_name": "hatcast",
    }
    for key in _TLS_FILES:
        file = getattr(table, key)
        if file is None:
            continue
        if urlsplit(table.url).scheme != "rediss":
            raise SettingError(f"redis.{key}", "is not used without TLS", "let redis.url begin with rediss://")
        if not Path(file).is_file():
            raise SettingError(f"redis.{key}", f"{file} is no file", "correct the path")
        options[key] = file
    return options


def redis_name(settings: Settings) -> str:
    """The Redis, as messages name it: without user and password."""
    url = urlsplit(settings.redis.url)
    if url.scheme == "unix":
        return f"Redis at {url.path}"
    return f"Redis at {url.hostname or 'localhost'}:{url.port or 6379}"


def redis_refusal(settings: Settings, error: Exception) -> HatcastError:
    """What a person should read when a connected Redis fails."""
    return HatcastError(_refusal(settings, error))


def _check_url(text: str) -> None:
    """Raises SettingError where redis-py would raise, or would quietly take database 0."""
    mend = 'write "redis://host:port/0", or rediss:// for TLS'
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise SettingError("redis.url", "has no valid port", mend) from None
    if url.scheme not in ("redis", "rediss", "unix"):
        raise SettingError("redis.url", "is no Redis URL", mend)
    if port == 0 or (url.scheme != "unix" and url.path.strip("/") and not url.path.strip("/").isdigit()):
        raise SettingError("redis.url", "has no valid port or database number", mend)


def _again() -> ExponentialBackoff:
    """Every command is tried once more. Scripts compare what they expect, so one that ran twice changes nothing."""
    return ExponentialBackoff(cap=0.5, base=0.05)


def _pauses(patience_s: float) -> Iterator[float | None]:
    """Seconds to wait after each try that failed, doubling; None after the last."""
    deadline = monotonic_s() + patience_s
    pause = BACKOFF_S
    while monotonic_s() + pause < deadline:
        yield pause
        pause = min(2 * pause, BACKOFF_MAX_S)
    yield None


def _worth_another_try(error: Exception) -> bool:
    """False where the answer will not change by waiting: a login or a command that is refused."""
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return False
    return isinstance(error, _PASSING) or not isinstance(error, ResponseError)


def _refusal(settings: Settings, error: Exception, patience_s: float | None = None) -> str:
    where = redis_name(settings)
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return f"{where} refuses the login: correct redis.username and HATCAST_REDIS_PASSWORD or redis.password_file"
    if is_full(error):
        return f"{where} is full: raise its `maxmemory`, and start again"
    if isinstance(error, NoPermissionError):
        return f"{where} does not allow this user to do that{_command(error)}: change its ACL"
    if isinstance(error, ClearError):
        return f"{where}: {error}"
    if isinstance(error, ResponseError) and not isinstance(error, _PASSING):
        why = cause_of(error).text
        return f"{where} did not do what was asked ({why}): correct redis.url or that server's settings"
    tried = "" if patience_s is None else f"; tried for {patience_s:g} s"
    why = cause_of(error).text if isinstance(error, _PASSING) else connection_text(error)
    return f"{where} cannot be reached ({why}{tried}): start it, or correct redis.url or HATCAST_REDIS_URL"


def _command(error: NoPermissionError) -> str:
    """The command that is not allowed: Redis' own name for it, and nothing else of the error's text."""
    found = _NOT_ALLOWED.search(str(error))
    return "" if found is None else f" (command {found[1]})"
