"""A pipeline of a test's own, on the run's Kafka and Redis: topics, policy, configuration, and workers as processes.

Workers and commands are real processes. What a test waits for is read as `hatcast status` reads it, in the test's own
process, because starting the command takes seconds.
"""

import asyncio
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hatcast.agents.cli.status import read_status
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.worker.membership import member_folder
from hatcast.stream.errors import HatcastError
from tests.integration.forked import Forked, Wrap, plain
from tests.integration.tables import DEFAULTS, merged, toml
from tests.services import KafkaServer, RedisServer
from tests.services.data import ROOT
from tests.services.lifecycle import ServerProcess, Spawned

SECONDS: Final = 120.0
_POLL_S: Final = 0.1
_SCRIPT: Final = Path(sys.executable).with_name("hatcast")
# The console script where the project is installed, else what it calls.
HATCAST: Final = [str(_SCRIPT)] if _SCRIPT.is_file() else [sys.executable, "-m", "hatcast"]


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class WorkerProcess(ServerProcess):
    """A worker, or another command, whose log is in a file; it ends with the test run."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(command, log, {"PYTHONPATH": str(ROOT), **(env or {})})
        self.log = log

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs. -9 after kill -9."""
        return None if self._process is None else self._process.poll()

    def ask_to_end(self) -> None:
        """SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def terminate(self, timeout: float = 35.0) -> int:
        """SIGTERM; the exit code, or TimeoutExpired."""
        self.ask_to_end()
        return self.wait(timeout)

    def wait(self, timeout: float = SECONDS) -> int:
        """The exit code once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(timeout)

    def logged(self) -> str:
        return self.log.read_text(errors="replace")


class ForkedWorker(WorkerProcess):
    """`hatcast worker`, which starts faster, and what a test wraps in it."""

    def __init__(self, options: Sequence[str], log: Path, wrap: Wrap) -> None:
        super().__init__(["hatcast", "worker", *options], log)
        self._options = options
        self._wrap = wrap

    def _spawn(self) -> Spawned:
        return Forked(["worker", *self._options], self.log, self.log, self._wrap)


@dataclass
class Pipeline:
    """One policy with its topics. Its configuration is the file `config`."""

    name: str
    folder: Path
    kafka: KafkaServer
    redis_server: RedisServer
    table: dict[str, Any]
    config: Path = field(init=False)
    settings: Settings = field(init=False)
    processes: list[WorkerProcess] = field(default_factory=list)
    _begun: list[Forked] = field(default_factory=list)
    _files: int = 0

    def __post_init__(self) -> None:
        self.config = self.write(self.table)
        self.settings = load_settings(self.config, {})

    def write(self, table: Mapping[str, Any], file: str = "hatcast.toml") -> Path:
        """A configuration file."""
        path = self.folder / file
        path.write_text(toml(table))
        return path

    def changed(self, changes: Mapping[str, Any], file: str = "changed.toml") -> Path:
        """A configuration file like ours but for some keys."""
        return self.write(merged(self.table, changes), file)

    # Processes.

    def hatcast(self, *arguments: object, config: Path | None = None, timeout: float = SECONDS) -> Finished:
        """Run a command to its end."""
        return self.begin(*arguments, config=config)(timeout)

    def run(self, *arguments: object, config: Path | None = None, timeout: float = SECONDS) -> Finished:
        """Run a command that has to succeed."""
        done = self.hatcast(*arguments, config=config, timeout=timeout)
        assert done.code == 0, done.err
        return done

    def begin(self, *arguments: object, config: Path | None = None) -> Callable[[float], Finished]:
        """Start a command, beside others; call what is returned to wait for its end, for so many seconds."""
        out, err = self._file("out"), self._file("err")
        process = Forked([*map(str, arguments), "--config", str(config or self.config)], out, err)
        self._begun.append(process)

        def finished(timeout: float) -> Finished:
            return Finished(process.wait(timeout), out.read_text(), err.read_text())

        return finished

    def start(
        self,
        *arguments: object,
        command: Sequence[str] = HATCAST,
        env: Mapping[str, str] | None = None,
        config: Path | None = None,
    ) -> WorkerProcess:
        """Start a command that goes on in the background; `env`: beside what is set here."""
        whole = [*command, *map(str, arguments), "--config", str(config or self.config)]
        return self._started(WorkerProcess(whole, self._file("log"), env))

    def worker(self, *options: str, wrap: Wrap = plain, config: Path | None = None) -> WorkerProcess:
        """Start `hatcast worker`; `wrap` runs in its process before the command."""
        options = (*options, "--config", str(config or self.config))
        return self._started(ForkedWorker(options, self._file("log"), wrap))

    def _file(self, kind: str) -> Path:
        self._files += 1
        return self.folder / f"{self._files}.{kind}"

    def _started(self, process: WorkerProcess) -> WorkerProcess:
        process.start()
        self.processes.append(process)
        return process

    def wait_for_partitions(self, worker: WorkerProcess) -> None:
        """Return once a worker has partitions and reads them."""
        self.wait(lambda: "partition started" in worker.logged(), "worker with partitions", worker)

    def replay(self, files: Path | Sequence[Path], form: str, *options: object) -> dict[str, Any]:
        """`hatcast feed replay` to its end; its summary."""
        paths = [files] if isinstance(files, Path) else files
        done = self.run("feed", "replay", *paths, "--format", form, "--json", *(options or ("--speedup", 0)))
        summary: dict[str, Any] = done.json
        return summary

    def close(self) -> None:
        """End what still runs and delete what is in Kafka and Redis."""
        for process in self.processes:
            process.close()
        for begun in self._begun:
            if begun.poll() is None:
                begun.send_signal(signal.SIGKILL)
        self._delete_member_files()
        self.kafka.delete_topics(name for name in self.kafka.topics() if name.startswith(self.name))
        self.forget()

    def forget(self) -> None:
        """What FLUSHALL does, to all that is ours in Redis."""
        self.redis_server.delete(f"{{{self.name}*")

    def _delete_member_files(self) -> None:
        """Delete what killed workers have left in the temporary directory."""
        for path in member_folder().iterdir():
            with suppress(OSError):
                if f"hatcast-{self.name}" in path.read_text():
                    path.unlink()

    # What is stored.

    def status(self) -> dict[str, Any]:
        """`hatcast status --json`, read in this process."""
        return asyncio.run(read_status(self.settings))

    def folded(self) -> int:
        """How many records are folded and stored, ticks apart; 0 before the first start."""
        try:
            return sum(self.outcomes().values())
        except HatcastError:
            return 0

    def is_caught_up(self) -> bool:
        """All records of the topic are in the stored state."""
        try:
            return _is_caught_up(self.status())
        except HatcastError:
            return False

    def is_settled(self) -> bool:
        """All is folded, nothing that is final is still open, and Kafka has acknowledged every release."""
        try:
            status = self.status()
        except HatcastError:
            return False
        if not _is_caught_up(status):
            return False
        return not status["open_hats"] and not status["unpublished"] and not status.get("unanswered")

    def wait(self, ready: Callable[[], bool], what: str, *alive: WorkerProcess, seconds: float = SECONDS) -> None:
        """Wait for a condition, while these processes run."""
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            if ready():
                return
            took = time.monotonic() - began
            for process in alive:
                if process.code is not None:
                    raise AssertionError(f"no {what}: a process ended with {process.code}\n{process.log_tail()}")
            if time.monotonic() > deadline:
                logs = "\n".join(process.log_tail() for process in self.processes)
                raise AssertionError(f"no {what} in {seconds:g} s\n{logs}")
            time.sleep(max(_POLL_S, 3 * took))  # to look asks Kafka and Redis much: what is waited for is to have more

    def outcomes(self) -> dict[str, int]:
        """The stored outcomes without ticks, as golden files have them."""
        found: dict[str, int] = self.status()["outcomes"]
        return {outcome: records for outcome, records in found.items() if outcome != "tick"}

    def published(self, *, committed: bool = True) -> dict[str, list[bytes]]:
        """release_id -> every value on `hats.means`, in the order of the log."""
        values: dict[str, list[bytes]] = {}
        for record in self.kafka.read(self.settings.topics.means, committed=committed):
            values.setdefault((record.key or b"").decode(), []).append(record.value or b"")
        return values

    def answers(self, *, committed: bool = True) -> dict[str, list[bytes]]:
        """The same of `hats.queries`."""
        values: dict[str, list[bytes]] = {}
        for record in self.kafka.read(self.settings.topics.queries, committed=committed):
            values.setdefault((record.key or b"").decode(), []).append(record.value or b"")
        return values

    def budget_records(self) -> dict[str, dict[str, Any]]:
        """Key -> the record with the greatest `seq` on `hats.budget`: what its readers keep."""
        newest: dict[str, dict[str, Any]] = {}
        for received in self.kafka.read(self.settings.topics.budget):
            key, record = (received.key or b"").decode(), json.loads(received.value or b"")
            if key not in newest or record["seq"] >= newest[key]["seq"]:
                newest[key] = record
        return newest

    def oracle(self) -> dict[str, Any]:
        """`hatcast dump telemetry` folded by `hatcast batch --format kafka`: what the stored state has to be."""
        dump = self.folder / "telemetry.jsonl"
        self.run("dump", "telemetry", "--output", dump)
        folded = self.run("batch", dump, "--format", "kafka", "--contributions", "--json")
        found: dict[str, Any] = folded.json
        return found

    def contributions(self) -> dict[str, Any]:
        """`hatcast contributions --json`."""
        done = self.run("contributions", "--json")
        assert done.err == "reads raw data, not private\n"
        found: dict[str, Any] = done.json
        return found

    # The consumer group.

    def members(self, group: str | None = None) -> list[str]:
        """The ids of the members of a group (None: that of telemetry), dead ones too until their session ends."""
        from kafka import KafkaAdminClient

        name = group or self._groups[0]
        with closing(KafkaAdminClient(bootstrap_servers=self.kafka.bootstrap_servers)) as admin:
            found = admin.describe_groups([name])[name]
        return [member["member_id"] for member in found["members"]]

    def bury(self, *stopped: WorkerProcess) -> None:
        """Let the group know that its members are dead, so that the next worker need not wait for their session.

        Or as good as dead: `stopped` by SIGSTOP.
        """
        from kafka import KafkaAdminClient
        from kafka.admin import MemberToRemove

        assert all(process.code is not None for process in self.processes if process not in stopped)
        for group in self._groups:
            dead = [MemberToRemove(member_id=member) for member in self.members(group)]
            if dead:
                with closing(KafkaAdminClient(bootstrap_servers=self.kafka.bootstrap_servers)) as admin:
                    admin.remove_group_members(group, dead)

    @property
    def _groups(self) -> list[str]:
        name = f"hatcast-{self.settings.policy.name}"
        return [name, f"{name}/reports"] if self.settings.policy.takes_reports else [name]


def _is_caught_up(status: Mapping[str, Any]) -> bool:
    partitions = [*status["partitions"], *status.get("reports", {"partitions": []})["partitions"]]
    return all((each["offset"] or 0) == each["end"] for each in partitions)


@contextmanager
def open_pipeline(
    kafka: KafkaServer, redis_server: RedisServer, folder: Path, title: str, changes: Mapping[str, Any] | None = None
) -> Iterator[Pipeline]:
    """A pipeline with a name that no other has. `title` is for people; `changes` to the configuration's tables."""
    name = f"t-{title}-{os.getpid():x}-{uuid.uuid4().hex[:6]}"
    outputs = ("means", "queries", "budget", "estimates", "running", "dead_letters", "clusters")
    topics = {role: f"{name}.{role}" for role in (*outputs, "reports", "cluster_answers")}
    table = merged(
        DEFAULTS,
        {
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
            "redis": {"url": redis_server.url},
            "topics": {"telemetry": name, **topics},
            "policy": {"name": name},
        },
    )
    folder.mkdir(parents=True, exist_ok=True)
    pipeline = Pipeline(name, folder, kafka, redis_server, merged(table, changes or {}))
    try:
        yield pipeline
    finally:
        pipeline.close()
