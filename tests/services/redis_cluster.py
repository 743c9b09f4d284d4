"""A real Redis Cluster: masters as local processes, each with an equal share of the slots."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis
from redis.crc import key_slot

from tests.services.absent import ServiceAbsent
from tests.services.lifecycle import ServerProcess, free_ports, wait_until
from tests.services.redis_server import DURABLE, START_SECONDS, RedisServer, redis_binary

SLOTS: Final = 16_384
LEAST_VERSION: Final = 7  # before, the port of the cluster's bus cannot be chosen
NODE_TIMEOUT_MS: Final = 2_000


class Nodes:
    """The life of all nodes at once: a `Lifecycle`."""

    def __init__(self, nodes: Sequence[RedisServer]) -> None:
        self._nodes = nodes

    @property
    def running(self) -> bool:
        return all(node.ours.running for node in self._nodes)

    def start(self) -> None:
        for node in self._nodes:
            if node.data_dir is not None:
                node.data_dir.mkdir(exist_ok=True)
            node.ours.start()

    def stop(self) -> None:
        for node in self._nodes:
            node.ours.stop()

    def kill(self) -> None:
        for node in self._nodes:
            node.ours.kill()

    def pause(self) -> None:
        for node in self._nodes:
            node.ours.pause()

    def resume(self) -> None:
        for node in self._nodes:
            node.ours.resume()

    def close(self) -> None:
        for node in self._nodes:
            node.ours.close()

    def log_tail(self) -> str:
        return "\n".join(node.ours.log_tail() for node in self._nodes)


@dataclass(eq=False)
class RedisClusterServer(RedisServer):
    """A cluster that answers; its `url` is that of the first node, its `data_dir` has a folder for each.

    What is done to it is done to all nodes; `servers` are the nodes.

    moves    of slots, that have begun and not ended
    moved    slot -> its node, of those that have moved
    """

    nodes: list[RedisServer] = field(default_factory=list)
    moves: list["SlotMove"] = field(default_factory=list)
    moved: dict[int, RedisServer] = field(default_factory=dict)

    @property
    def servers(self) -> Sequence[RedisServer]:
        return self.nodes

    def flush(self) -> None:
        """FLUSHALL on every node."""
        for node in self.nodes:
            node.flush()

    def client(self) -> Any:
        """A new connection to all of it. Any: where a test wants one server's client, the same commands are there."""
        return redis.RedisCluster.from_url(self.url, socket_timeout=START_SECONDS)

    def delete(self, pattern: str) -> None:
        """Delete the keys that match, each where it is served: an older copy may have some of a moved slot."""
        with closing(self.client()) as client:
            for key in client.scan_iter(match=pattern, count=10_000):
                client.unlink(key)

    def node_of(self, key: str) -> RedisServer:
        """The master that serves a key."""
        slot = key_slot(key.encode())
        return self.moved.get(slot, self.nodes[slot * len(self.nodes) // SLOTS])

    def heal(self) -> None:
        """Let all nodes run, and end the moves of slots."""
        super().heal()
        self.wait_until_ready()
        for move in list(self.moves):
            move.end()

    def wait_until_ready(self, timeout: float = START_SECONDS) -> None:
        """Return once every node says that all slots are served."""
        for node in self.nodes:
            wait_until(lambda node=node: self._serves(node), node.lifecycle, timeout, "Redis Cluster")  # type: ignore[misc]

    def _serves(self, node: RedisServer) -> bool:
        try:
            with closing(node.client()) as client:
                state: Any = client.cluster("info")
        except redis.RedisError:
            return False
        return bool(state["cluster_state"] == "ok" and int(state["cluster_known_nodes"]) == len(self.nodes))


class SlotMove:
    """A move of a key's slot to another node, one key at a time, as `redis-cli --cluster reshard` does it."""

    def __init__(self, cluster: RedisClusterServer, key: str) -> None:
        """Begin it. What the other node has of the slot from an earlier time is deleted."""
        self.slot = key_slot(key.encode())
        self._cluster = cluster
        self._source = cluster.node_of(key)
        self._target = next(node for node in cluster.nodes if node is not self._source)
        _run(self._target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", _id(self._source))
        for old in _keys(self._target, self.slot):
            _run(self._target, "DEL", old, asking=True)
        _run(self._source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", _id(self._target))
        cluster.moves.append(self)

    def unmoved(self) -> list[str]:
        """Return the keys that have not moved yet."""
        return _keys(self._source, self.slot)

    def move(self, key: str) -> None:
        """Move one key. Both nodes have it if one ended amid an earlier try: the source's counts, which it served."""
        port = self._target.url.rpartition(":")[2].partition("/")[0]
        _run(self._source, "MIGRATE", "127.0.0.1", port, key, 0, 5000, "REPLACE")

    def end(self) -> None:
        """Move what is left, and give the slot to the other node. Does nothing if it has ended."""
        if self not in self._cluster.moves:
            return
        for key in self.unmoved():
            self.move(key)
        others = [node for node in self._cluster.nodes if node not in (self._source, self._target)]
        for node in (self._target, self._source, *others):
            _run(node, "CLUSTER", "SETSLOT", self.slot, "NODE", _id(self._target))
        self._cluster.moves.remove(self)
        self._cluster.moved[self.slot] = self._target


def _run(node: RedisServer, *command: str | int, asking: bool = False) -> Any:
    made: Any = node.client()
    with closing(made), closing(made.client()) as raw:  # one connection, for ASKING
        if asking:
            raw.execute_command("ASKING")
        return raw.execute_command(*command)


def _id(node: RedisServer) -> str:
    return str(_run(node, "CLUSTER", "MYID").decode())


def _keys(node: RedisServer, slot: int) -> list[str]:
    return [key.decode() for key in _run(node, "CLUSTER", "GETKEYSINSLOT", slot, 100_000)]


@contextmanager
def local_cluster(masters: int = 3) -> Iterator[RedisClusterServer]:
    """A cluster of `masters` nodes. Raises ServiceAbsent without a redis-server that can be one."""
    binary = redis_binary()
    if _version(binary) < LEAST_VERSION:
        raise ServiceAbsent(f"no Redis Cluster: its server is older than {LEAST_VERSION}")
    folder = Path(tempfile.mkdtemp(prefix="hatcast-cluster-"))
    data = folder / "data"
    data.mkdir()
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        with free_ports(2 * masters) as ports:
            pairs = list(zip(ports[:masters], ports[masters:], strict=True))
        nodes = [_node(binary, folder, port, bus) for port, bus in pairs]
        life = Nodes(nodes)
        ends.callback(life.close)
        life.start()
        for node in nodes:
            node.wait_until_ready()
        _join(nodes, pairs)
        cluster = RedisClusterServer(nodes[0].url, f"local cluster of {binary}", data, life, nodes)
        cluster.wait_until_ready()
        yield cluster


def _node(binary: str, folder: Path, port: int, bus: int) -> RedisServer:
    data = folder / "data" / str(port)
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), *DURABLE]
    # Beside the data, which a test may set back: who its neighbours are, a node has to remember.
    command += ["--cluster-enabled", "yes", "--cluster-config-file", str(folder / f"{port}.conf")]
    command += ["--cluster-port", str(bus), "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
    process = ServerProcess(command, folder / f"{port}.log")
    return RedisServer(f"redis://127.0.0.1:{port}/0", f"node of {binary}", data, process)


def _join(nodes: list[RedisServer], pairs: list[tuple[int, int]]) -> None:
    for number, node in enumerate(nodes):
        first, end = (-(-SLOTS * each // len(nodes)) for each in (number, number + 1))
        with closing(node.client()) as client:
            raw: Any = client
            raw.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            raw.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for port, bus in pairs[:number]:
                raw.execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)


def _version(binary: str) -> int:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+)", said)
    return int(found[1]) if found else 0
