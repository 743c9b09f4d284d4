"""What stands for Redis elsewhere: a client of one server, or of a cluster.

What is done in one step has one hash tag, and so is on one node of a cluster: see store/keys.py.
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
    """A cluster's client whose errors are of one family, as those of one server: redis-py's, of all nodes, is not."""

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RedisError."""
        with _one_family():
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call] # redis-py leaves it open


class AsyncCluster(redis.asyncio.RedisCluster):
    """The same for asyncio."""

    async def initialize(self, *args: Any, **kwargs: Any) -> "AsyncCluster":
        """Find the nodes. Commands and pipelines begin with it, again while none can be reached. Raises RedisError."""
        with _one_family():
            await super().initialize(*args, **kwargs)
        return self

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RedisError."""
        with _one_family():
            return await super().execute_command(*args, **kwargs)

    def pipeline(self, transaction: Any = None, shard_hint: Any = None) -> ClusterPipeline:
        """Commands for any node. No transactions: redis-py starts a thread for each of their commands; use a script."""
        if transaction or shard_hint:
            raise ValueError("what has to be done in one step is a script")
        return _AsyncPipeline(self, transaction)  # type: ignore[abstract] # as redis-py's own, which is concrete enough


class _AsyncPipeline(ClusterPipeline):
    async def execute(self, *args: Any, **kwargs: Any) -> list[Any]:
        with _one_family():
            return await super().execute(*args, **kwargs)


@contextmanager
def _one_family() -> Iterator[None]:
    """Raises RedisError in place of what redis-py 8 raises besides, where nodes of a cluster come and go."""
    try:
        yield
    except RedisClusterException as error:  # no node can be reached
        raise RedisConnectionError(str(error)) from error
    except AttributeError as error:
        # Where one task finds the cluster down, redis-py closes the connections of all, also the one that another task
        # is about to write to: "'NoneType' object has no attribute 'writelines'".
        raise RedisConnectionError("the connection was closed while it was used") from error


def is_cluster(information: Any) -> bool:
    """Whether a server is a node of a cluster, by a section of INFO."""
    return bool(information.get("cluster_enabled"))


def primaries(client: SyncRedis) -> dict[str, redis.Redis]:
    """`host:port` -> a client of each node that takes writes; of one server alone: that, under no name."""
    if isinstance(client, redis.Redis):
        return {"": client}
    nodes: Any = client.get_primaries()  # type: ignore[no-untyped-call] # redis-py leaves it open
    return {node.name: node.redis_connection for node in nodes}
