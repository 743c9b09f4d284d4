"""Redis clients, for a single server or for a Redis Cluster, and the Lua scripts beside this file, by name."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import redis
import redis.asyncio
from redis import exceptions as errors
from redis.asyncio.cluster import ClusterPipeline
from redis.exceptions import ConnectionError as RedisConnectionError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.redis.stored_values import SCRIPT_ERRORS, Damaged, SlotMoving

# All keys of one script share a hash tag, so they are on one node of a cluster: see agents/redis/keys.py. Only while
# that node gives their slot to another one, some are on either; then the cluster runs no command on them until all have
# moved.
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
    """An asyncio cluster client that raises only RedisError."""

    # why the cluster itself did not run a command, and when (monotonic seconds)
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
    except (errors.ClusterDownError, errors.SlotNotCoveredError) as error:
        client.problem = ("the cluster has no node for a slot (CLUSTERDOWN)", monotonic_s())
        raise errors.ClusterDownError("CLUSTERDOWN") from error
    except errors.ClusterError as error:
        if isinstance(error, SlotMoving):  # of a command of a pipeline
            slot = error.slot
        else:  # redis-py has tried the nodes of MOVED, ASK and TRYAGAIN, and given up
            slot = client.keyslot(command[3 if command[0] == "EVALSHA" else 1])
        client.problem = (f"the cluster moves slot {slot} (TRYAGAIN)", monotonic_s())
        raise SlotMoving(slot) from None
    except errors.RedisClusterException as error:  # no node can be reached
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
    """Return whether a server is a cluster node, from the `cluster` section of INFO.

    It is read and not a setting, because a wrong setting could only do harm.
    """
    return bool(information.get("cluster_enabled"))


def primaries(client: SyncRedis) -> dict[str, redis.Redis]:
    """Return `host:port` -> client of each primary node; for a single server, the key is ""."""
    if isinstance(client, redis.Redis):
        return {"": client}
    nodes: Any = client.get_primaries()  # type: ignore[no-untyped-call] # redis-py leaves it open
    return {node.name: node.redis_connection for node in nodes}


_INDEX: Final = frozenset({"checkpoint", "delete", "delete_retained", "list_retained", "load", "load_retained"})
_PRELUDES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(  # shared part -> scripts that it precedes
    {"staging": _INDEX | {"skip", "sweep"}, "index": _INDEX}
)

Argument = str | bytes | int
Call = tuple[Sequence[str], Sequence[Argument]]  # keys, all with one hash tag, and arguments of one run


class Script:
    """The script `NAME.lua`, sent by its hash; its text is loaded if a server does not have it yet.

    redis-py's own Script queries each script before every pipeline, and does not run in a cluster pipeline. A lost
    reply, or a pipeline whose servers do not all have the script, makes calls run twice: the second run changes
    nothing. Raises Damaged or Overflow, which are ResponseErrors, if a stored value
    stopped the script before it wrote anything.
    """

    def __init__(self, redis: AnyRedis, name: str) -> None:
        self._redis = redis
        before = (part for part, names in _PRELUDES.items() if name in names)
        self._text = "".join(map(_text, (*before, name)))
        self._hash = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run the script once."""
        return (await self.run_each([(keys, args)]))[0]

    async def run_each(self, calls: Sequence[Call]) -> list[Any]:
        """Run the script for each call, in one round trip to each server; in order for keys on one server."""
        try:
            try:
                answers = await self._run(calls)
            except errors.NoScriptError:
                await self._redis.script_load(self._text)  # in a cluster: on every node
                answers = await self._run(calls)
        except errors.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            # A read failed: each script writes after all of its reads, and only to keys that it has read.
            raise Damaged(f"{calls[0][0][0]} or one beside it") from None
        for answer in answers:
            word = answer[0] if isinstance(answer, list) and answer else None
            if isinstance(word, bytes) and (error_type := SCRIPT_ERRORS.get(word)) is not None:
                raise error_type(answer[1].decode(errors="replace"))
        return answers

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        if len(calls) == 1:
            ((keys, args),) = calls
            return [await self._redis.evalsha(self._hash, len(keys), *keys, *args)]
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys, args in calls:  # not `evalsha`, which a cluster pipeline does not have
                pipe.execute_command("EVALSHA", self._hash, len(keys), *keys, *args)
            answers: list[Any] = await pipe.execute()
            return answers


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
