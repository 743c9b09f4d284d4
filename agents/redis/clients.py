"""Redis clients, for a single server or for a Redis Cluster.

All keys of one script share a hash tag, so they are on one node of a cluster: see agents/redis/keys.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterPipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException

SyncRedis: TypeAlias = redis.Redis | redis.RedisCluster
AnyRedis: TypeAlias = redis.asyncio.Redis | redis.asyncio.RedisCluster


class Cluster(redis.RedisCluster):
    """A cluster client that raises only RedisError, as a client of one server does; redis-py's own does not."""

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RedisError."""
        with _as_redis_errors():
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call] # redis-py leaves it open


class AsyncCluster(redis.asyncio.RedisCluster):
    """An asyncio cluster client that raises only RedisError."""

    async def initialize(self, *args: Any, **kwargs: Any) -> "AsyncCluster":
        """Discover the nodes. Each command and pipeline repeats this until a node answers. Raises RedisError."""
        with _as_redis_errors():
            await super().initialize(*args, **kwargs)
        return self

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RedisError."""
        with _as_redis_errors():
            return await super().execute_command(*args, **kwargs)

    def pipeline(self, transaction: Any = None, shard_hint: Any = None) -> ClusterPipeline:
        """Return a pipeline for any nodes, without a transaction: redis-py would start a thread for each command."""
        if transaction or shard_hint:
            raise ValueError("transactions are not supported: use a script")
        return _AsyncPipeline(self, transaction)  # type: ignore[abstract] # as redis-py's own, which is concrete enough


class _AsyncPipeline(ClusterPipeline):
    async def execute(self, *args: Any, **kwargs: Any) -> list[Any]:
        with _as_redis_errors():
            return await super().execute(*args, **kwargs)


@contextmanager
def _as_redis_errors() -> Iterator[None]:
    """Convert the other errors that redis-py 8 raises, when nodes of a cluster come and go, to RedisError."""
    try:
        yield
    except RedisClusterException as error:  # no node can be reached
        raise RedisConnectionError(str(error)) from error
    except AttributeError as error:
        # When one task finds the cluster down, redis-py closes all connections, even one that another task is about to
        # write to: "'NoneType' object has no attribute 'writelines'".
        raise RedisConnectionError("the connection was closed while in use") from error


def is_cluster(information: Any) -> bool:
    """Return whether a server is a cluster node, from the `cluster` section of INFO."""
    return bool(information.get("cluster_enabled"))


def primaries(client: SyncRedis) -> dict[str, redis.Redis]:
    """Return `host:port` -> client of each primary node; for a single server, the key is ""."""
    if isinstance(client, redis.Redis):
        return {"": client}
    nodes: Any = client.get_primaries()  # type: ignore[no-untyped-call] # redis-py leaves it open
    return {node.name: node.redis_connection for node in nodes}
