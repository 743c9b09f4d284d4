"""Redis clients, for a single server or for a Redis Cluster.

All keys of one script share a hash tag, so they are on one node of a cluster: see agents/redis/keys.py. Only while that
node gives their slot to another one, some are on either; then the cluster runs no command on them until all have moved.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterPipeline
from redis.exceptions import ClusterDownError, ClusterError, RedisClusterException, SlotNotCoveredError
from redis.exceptions import ConnectionError as RedisConnectionError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.redis.errors import SlotMoving

SyncRedis: TypeAlias = redis.Redis | redis.RedisCluster
AnyRedis: TypeAlias = redis.asyncio.Redis | redis.asyncio.RedisCluster

_PROBLEM_S: Final = 10.0  # longer than the longest pause between two attempts


class Cluster(redis.RedisCluster):
    """A cluster client that raises only RedisError, as a client of one server does; redis-py's own does not."""

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RedisError."""
        with _as_redis_errors(self, args):
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call] # redis-py leaves it open


class AsyncCluster(redis.asyncio.RedisCluster):
    """An asyncio cluster client that raises only RedisError.

    problem    why the cluster itself did not run a command, and when (monotonic seconds)
    """

    problem: tuple[str, float] | None = None

    async def initialize(self, *args: Any, **kwargs: Any) -> "AsyncCluster":
        """Discover the nodes. Each command and pipeline repeats this until a node answers. Raises RedisError."""
        with _as_redis_errors(self):
            await super().initialize(*args, **kwargs)
        return self

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RedisError."""
        with _as_redis_errors(self, args):
            return await super().execute_command(*args, **kwargs)

    def pipeline(self, transaction: Any = None, shard_hint: Any = None) -> ClusterPipeline:
        """Return a pipeline for any nodes, without a transaction: redis-py would start a thread for each command."""
        if transaction or shard_hint:
            raise ValueError("transactions are not supported: use a script")
        return _AsyncPipeline(self, transaction)  # type: ignore[abstract] # as redis-py's own, which is concrete enough


class _AsyncPipeline(ClusterPipeline):
    async def execute(self, *args: Any, **kwargs: Any) -> list[Any]:
        with _as_redis_errors(self.cluster_client):
            return await super().execute(*args, **kwargs)


@contextmanager
def _as_redis_errors(client: Any, command: Sequence[Any] = ()) -> Iterator[None]:
    """Convert the other errors that redis-py 8 raises, when nodes of a cluster come and go, to RedisError.

    client    notes why the cluster did not run a command. Any: both kinds, without types of redis-py
    """
    try:
        yield
    except (ClusterDownError, SlotNotCoveredError) as error:
        client.problem = ("the cluster has no node for a slot (CLUSTERDOWN)", monotonic_s())
        raise ClusterDownError("CLUSTERDOWN") from error
    except ClusterError as error:
        if isinstance(error, SlotMoving):  # of a command of a pipeline
            slot = error.slot
        else:  # redis-py has tried the nodes of MOVED, ASK and TRYAGAIN, and given up
            slot = client.keyslot(command[3 if command[0] == "EVALSHA" else 1])
        client.problem = (f"the cluster moves slot {slot} (TRYAGAIN)", monotonic_s())
        raise SlotMoving(slot) from None
    except RedisClusterException as error:  # no node can be reached
        raise RedisConnectionError(str(error)) from error
    except AttributeError as error:
        # When one task finds the cluster down, redis-py closes all connections, even one that another task is about to
        # write to: "'NoneType' object has no attribute 'writelines'".
        raise RedisConnectionError("the connection was closed while in use") from error


def cluster_problem(client: AnyRedis) -> str | None:
    """Return why a cluster has not run a command lately, without data; None if it did, or for a single server."""
    text, at_s = getattr(client, "problem", None) or (None, 0.0)
    return text if monotonic_s() - at_s <= _PROBLEM_S else None


def is_cluster(information: Any) -> bool:
    """Return whether a server is a cluster node, from the `cluster` section of INFO."""
    return bool(information.get("cluster_enabled"))


def primaries(client: SyncRedis) -> dict[str, redis.Redis]:
    """Return `host:port` -> client of each primary node; for a single server, the key is ""."""
    if isinstance(client, redis.Redis):
        return {"": client}
    nodes: Any = client.get_primaries()  # type: ignore[no-untyped-call] # redis-py leaves it open
    return {node.name: node.redis_connection for node in nodes}
