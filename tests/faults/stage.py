"""Where a storm takes place: a pipeline with its servers, the wires to them, workers, and copies of Redis.

Everything that can be broken is broken through here, so that everything can be healed here.
"""

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from kafka.errors import KafkaError
from redis.exceptions import RedisError

from tests.faults.actors import NEW_KEY, NOT_THERE, Intruder, Wire, Worker, WrongSetting, is_refused
from tests.faults.faulty_worker import storming
from tests.faults.proxy import proxy_of_kafka, proxy_of_redis
from tests.integration.harness import Pipeline
from tests.services import KafkaServer, RedisServer
from tests.services.redis_cluster import RedisClusterServer
from tests.services.redis_server import copy_of, follow, local_redis, restore

_COPIES: Final = 4
_WIRES: Final = 2
_POLL_S: Final = 0.1
_REFUSED_S: Final = 60.0  # how long a start may take until it is refused


@dataclass
class Stage:
    """The means of a storm.

    tally     what was done, by its name
    on_stop   called when a worker has stopped itself at a step
    intruders workers that contradict the others: each has to refuse to start
    changed   settings of topics that are wrong now or were, without their repetitions; `wrong` are so now
    accepted  requests of limits: query about a day, its date, km/h
    broken    promises that a fault has seen broken on the way
    options   of each worker
    more      lets the share of the log be sent now that comes with the next fault
    rest      waits until all is sent that was to be sent by now; returns its greatest timestamp, ms UTC
    dumped    telemetry as it was before it was compacted, and `compacted_ms` its greatest timestamp; None if it was not
    """

    pipeline: Pipeline
    wires: list[Wire]
    random: random.Random
    on_stop: Callable[["Stage", Worker], None]
    copies: list[Path] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    intruders: list[Intruder] = field(default_factory=list)
    changed: set[WrongSetting] = field(default_factory=set)
    wrong: list[WrongSetting] = field(default_factory=list)
    accepted: list[tuple[str, str, float]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    options: tuple[str, ...] = ()
    more: Callable[[], None] = lambda: None
    rest: Callable[[], int] = lambda: 0
    dumped: Path | None = None
    compacted_ms: int = 0
    _later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _dumped: dict[bytes, bytes] = field(default_factory=dict)
    _other: RedisServer | None = None
    _held: ExitStack = field(default_factory=ExitStack)

    @property
    def kafka(self) -> KafkaServer:
        return self.pipeline.kafka

    @property
    def redis(self) -> RedisServer:
        return self.pipeline.redis_server

    # Time.

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something in a while, from within `wait`; never, if the stage is healed before."""
        self._later.append((time.monotonic() + seconds, what))

    def wait(self, seconds: float) -> None:
        """Let time pass: what is due is done, and workers that have met their faults are noticed."""
        deadline = time.monotonic() + seconds
        while True:
            self.tend()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_S, left))

    def tend(self) -> None:
        """Once."""
        due = [what for at, what in self._later if at <= time.monotonic()]
        self._later = [(at, what) for at, what in self._later if at > time.monotonic()]
        for what in due:
            what()
        for worker in [worker for worker in self.workers if worker.looked()]:
            self.tally[f"at step: {worker.step} {worker.action}"] += 1
            if worker.action == "kill":
                worker.ended = True
                self.tally["worker killed"] += 1
            elif worker.action == "stop":
                worker.paused = True
                self.on_stop(self, worker)

    # Workers.

    def alive(self) -> list[Worker]:
        """Those that run, and are not frozen."""
        return [worker for worker in self.workers if worker.running and not worker.paused]

    def start_worker(self, step: str = "", action: str = "", times: int = 0) -> Worker:
        """Start one, now and then behind a wire; with a step, one to which the action happens there."""
        ways = [self.pipeline.config, *(wire.config for wire in self.wires)]
        process = self.pipeline.worker(
            *self.options, wrap=partial(storming, step, action, times), config=self.random.choice(ways)
        )
        worker = Worker(process, step, action)
        self.workers.append(worker)
        return worker

    def kill(self, worker: Worker) -> None:
        """kill -9."""
        worker.ended, worker.paused = True, False
        worker.process.kill()
        self.tally["worker killed"] += 1

    def freeze(self, worker: Worker, seconds: float) -> bool:
        """SIGSTOP, and SIGCONT after so long: a zombie, if that is longer than its session. False if it had ended."""
        worker.process.pause()
        worker.paused = worker.running
        if worker.paused:
            self.later(seconds, lambda: self.thaw(worker))
        return worker.paused

    def thaw(self, worker: Worker) -> None:
        """SIGCONT."""
        if worker.running:
            worker.process.resume()
            self.tally["zombie"] += 1
        worker.paused = False

    def go_on(self, worker: Worker) -> None:
        """SIGCONT at once, to one that has stopped itself."""
        worker.process.resume()
        worker.paused = False

    def unexpected_ends(self) -> Iterator[str]:
        """Workers that ended by themselves as none should."""
        for worker in self.workers:
            code = worker.process.code
            if worker.ended or code in (None, 0):
                continue
            log = worker.process.logged()
            not_there = any(line.startswith(NOT_THERE) for line in log.splitlines()) and "worker started" not in log
            if code == 1 and "worker failed" not in log and (NEW_KEY in log or not_there):
                self.tally["worker refused to go on"] += 1
                continue
            if is_refused(code, log, *map(str, self.changed)):
                self.tally["worker refused a topic's setting"] += 1
                continue
            yield f"ended: a worker ({worker.step} {worker.action}) by itself with {code}: {log[-3000:]}"
        for intruder in self.intruders:
            with suppress(subprocess.TimeoutExpired):
                intruder.process.wait(_REFUSED_S)
            if not intruder.is_refused(self.changed):
                told = f"({intruder.process.code}, not for '{intruder.says}'): {intruder.process.log_tail()}"
                yield f"refused: a worker that contradicts the others {told}"

    # Topics.

    def alter(self, setting: WrongSetting) -> None:
        """Make a setting of a topic wrong."""
        self.kafka.resume()
        self.changed.add(setting)
        self.wrong.append(setting)
        self.kafka.alter_topic(setting.topic, {setting.setting: setting.wrong})

    def set_back(self, setting: WrongSetting) -> None:
        """Make it right again; later, if Kafka is away."""
        if setting in self.wrong:
            try:
                self.kafka.alter_topic(setting.topic, {setting.setting: setting.right})
                self.wrong.remove(setting)
            except KafkaError:
                self.later(1.0, partial(self.set_back, setting))

    # Redis.

    def copy_redis(self) -> None:
        """Keep what its files hold at this moment, as a snapshot of the disk would. Some copies are kept."""
        if self.redis.data_dir is None or not self.redis.ours.running or self._is_moving():
            return
        copy = self.pipeline.folder / f"redis-{time.monotonic_ns()}"
        self.redis.pause()  # or a file would be rewritten in the middle
        try:
            shutil.copytree(self.redis.data_dir, copy)
        finally:
            self.redis.resume()
        self.copies.append(copy)
        if len(self.copies) > _COPIES:
            shutil.rmtree(self.copies.pop(self.random.randrange(_COPIES)))

    def roll_back_redis(self) -> None:
        """Start it again from an older copy of its files; from none, if there is no copy."""
        folder = self.redis.data_dir
        assert folder is not None
        self.end_moves()
        self.redis.kill()
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.copies:
            shutil.copytree(self.random.choice(self.copies), folder, dirs_exist_ok=True)
        self.redis.start()

    def end_moves(self) -> None:
        """End the moves of slots: what one node loses would be a part of what the other has."""
        if self._is_moving():
            self.redis.heal()

    def _is_moving(self) -> bool:
        return isinstance(self.redis, RedisClusterServer) and bool(self.redis.moves)

    def dump_redis(self) -> None:
        """Note what every key holds at this moment, for `restore_redis`; the last note counts."""
        if len(self.redis.servers) > 1:
            return
        with suppress(RedisError):
            self._dumped = copy_of(self.redis)

    def restore_redis(self) -> bool:
        """Bring all keys back to what was noted, in one step, while the server lives on; False if nothing was."""
        if not self._dumped:
            return False
        restore(self.redis, self._dumped)
        return True

    def copy_to_other(self) -> None:
        """Let another server hold what Redis holds at this moment: a replica that is cut off from now on."""
        if self._other is None:
            self._other = self._held.enter_context(local_redis())
        follow(self._other, self.redis)

    def follow_other(self) -> bool:
        """Make Redis a replica of the other server, and a primary again; False if there is none."""
        if self._other is None:
            return False
        follow(self.redis, self._other)
        return True

    # The end.

    def wait_for_ends(self) -> None:
        """Until all that was begun for some seconds is over."""
        while self._later:
            self.wait(_POLL_S)

    def heal(self) -> None:
        """All servers up, all wires plain, nobody frozen, nothing to come."""
        self._later.clear()
        self.kafka.heal()
        self.redis.heal()
        for setting in list(self.wrong):
            self.set_back(setting)
        for wire in self.wires:
            wire.kafka.heal()
            wire.redis.heal()
        for worker in self.workers:
            if worker.running:
                worker.process.resume()
            worker.paused = False

    def dismiss(self, seconds: float = 60.0) -> Iterator[str]:
        """End all workers in order (SIGTERM); tells of those that did not."""
        asked = [worker for worker in self.workers if worker.running]
        for worker in asked:
            worker.process.ask_to_end()
        deadline = time.monotonic() + seconds
        while any(worker.running for worker in asked) and time.monotonic() < deadline:
            self.wait(_POLL_S)
        for worker in asked:
            if not worker.ended and worker.process.code != 0:
                yield f"ended: a worker that was told to stop, with {worker.process.code}: {worker.process.log_tail()}"
            worker.ended = True


@contextmanager
def open_stage(pipeline: Pipeline, chance: random.Random, on_stop: Callable[[Stage, Worker], None]) -> Iterator[Stage]:
    """A stage on a pipeline whose servers are ours to break; they are healed in the end."""
    with ExitStack() as stack:
        wires = []
        for number in range(_WIRES):
            kafka, bootstrap_servers = stack.enter_context(proxy_of_kafka(pipeline.kafka))
            redis, url = stack.enter_context(proxy_of_redis(pipeline.redis_server))
            changes = {"kafka": {"bootstrap_servers": bootstrap_servers}, "redis": {"url": url}}
            wires.append(Wire(kafka, redis, pipeline.changed(changes, f"wire-{number}.toml")))
        stage = Stage(pipeline, wires, chance, on_stop)
        try:
            yield stage
        finally:
            stage.heal()
            stage._held.close()
            for process in [*(each.process for each in stage.workers), *(each.process for each in stage.intruders)]:
                process.close()
