"""The processes of a whole system over one marked recording, and all that they write."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hatcast.agents.kafka.topics import ensure_topics
from tests.integration.forked import Forked, Wrap, plain
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.hidden import progress_key, stamp_by
from tests.integration.readings import NOON_MS
from tests.leaks import outputs
from tests.leaks.cities import City
from tests.leaks.search import Output
from tests.services import KafkaServer, RedisServer
from tests.services.lifecycle import Spawned


class Started(WorkerProcess):
    """`hatcast ARGUMENTS`, forked; standard output and the log are one file."""

    def __init__(self, arguments: list[str], log: Path, wrap: Wrap = plain) -> None:
        super().__init__(["hatcast"], log)
        self._arguments = arguments
        self._wrap = wrap

    def _spawn(self) -> Spawned:
        return Forked(self._arguments, self.log, self.log, self._wrap)


@dataclass
class Run:
    """A city's pipeline while it runs, and the outputs that are gone when it has ended."""

    city: City
    pipeline: Pipeline
    seen: list[Output] = field(default_factory=list)

    def start(self, *arguments: object, name: str, wrap: Wrap = plain) -> Started:
        """Start a command; its log is the file `name`.log."""
        given = [*map(str, arguments), "--log-level", "debug", "--config", str(self.pipeline.config)]
        process = Started(given, self.pipeline.folder / f"{name}.log", wrap)
        process.start()
        self.pipeline.processes.append(process)
        return process

    def worker(self, name: str, wrap: Wrap = plain) -> Started:
        """Start a worker, and wait until it has partitions."""
        return self.start("worker", name=name, wrap=wrap)

    def look(self, *processes: WorkerProcess) -> None:
        """Keep what processes show to operators, and in a list of processes."""
        self.seen += [*outputs.of_processes(self.pipeline.processes)]
        for each in processes:
            self.seen += outputs.of_operators(each)

    def outputs(self) -> list[Output]:
        """All that was written."""
        return [*self.seen, *outputs.of_topics(self.pipeline), *outputs.of_files(self.pipeline.folder)]


@contextmanager
def opened(kafka: KafkaServer, redis_server: RedisServer, folder: Path, city: City) -> Iterator[Run]:
    """The pipeline of a city, with its topics."""
    city.write_files(folder)
    with open_pipeline(kafka, redis_server, folder, city.name, city.table) as pipeline:
        ensure_topics(pipeline.settings)
        if city.hidden:  # as if a worker had been started at noon
            with closing(redis_server.client()) as redis:
                redis.hset(progress_key(pipeline), "first", str(NOON_MS))
            stamp_by(kafka, pipeline, "CreateTime")
        yield Run(city, pipeline)
