"""An outage: a server is away for a while, the log goes on, and the worker has to go on by itself afterwards.

Kafka goes away from one pipeline and Redis from another, at the same time: half of it half-open, so that nothing
answers, and half of it refused. CI waits for a minute, `scripts/faults --outage 15` for a quarter of an hour.
"""

import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hatcast.agents.kafka.topics import ensure_topics
from tests.faults.check import violations
from tests.faults.feed import Feed
from tests.faults.generate import END_MS, generate
from tests.faults.observe import fold_again, is_settled, look, promise_of
from tests.faults.proxy import Proxy, proxy_of_kafka, proxy_of_redis
from tests.faults.run import KINDS
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.health import LISTEN, asked, is_ready
from tests.integration.tables import merged
from tests.services import KafkaServer, RedisServer

SERVERS: Final = ("Kafka", "Redis")
BEFORE: Final = 0.2  # of the log is sent before the outage, as much after it, and the rest meanwhile
BACK_S: Final = 180.0  # after which a worker that has not gone on never will


@dataclass
class Away:
    """A pipeline whose worker loses a server, and what was seen of it.

    resident     of the worker, in bytes: before the outage, then once a second
    unready      by how many of the looks during the outage it was not ready
    lines        that it logged during the outage
    dialled      how often it dialled the server meanwhile
    violations   found by the checker in the end
    """

    server: str
    pipeline: Pipeline
    wire: Proxy
    worker: WorkerProcess
    feed: Feed
    resident: list[int] = field(default_factory=list)
    unready: int = 0
    lines: int = 0
    dialled: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def grown(self) -> int:
        """By how many bytes the worker was larger than before, at most."""
        return max(self.resident) - self.resident[0]

    def logged_lines(self) -> int:
        return len(self.worker.logged().splitlines())

    def wait_until_at_work(self) -> None:
        """Return once the worker has released something, and is ready."""
        self.feed.allow(BEFORE)
        self.pipeline.wait(lambda: '"released"' in self.worker.logged(), "first release", self.worker)
        self.pipeline.wait(lambda: is_ready(self.worker), "ready worker", self.worker)
        self.resident.append(resident(self.worker))
        self.lines, self.dialled = -self.logged_lines(), -self.wire.dialled

    def look(self) -> None:
        """Once a second of the outage."""
        assert self.worker.code is None, f"without {self.server} the worker ended\n{self.worker.log_tail()}"
        self.resident.append(resident(self.worker))
        self.unready += asked(self.worker, "/readyz")[0] == 503

    def come_back(self) -> None:
        """The server is there again."""
        self.lines += self.logged_lines()
        self.dialled += self.wire.dialled
        self.wire.heal()

    def wait_until_made_good(self) -> None:
        """The worker that was there all the time has to do the rest."""
        self.feed.finish()
        settings = self.pipeline.settings
        self.pipeline.wait(lambda: is_settled(settings), "state as of the whole log", self.worker, seconds=BACK_S)
        self.pipeline.wait(lambda: is_ready(self.worker), "ready worker", self.worker)
        found = violations(look(self.pipeline), fold_again(self.pipeline, END_MS), promise_of(settings, exact=True))
        self.violations += map(str, found)


def resident(process: WorkerProcess) -> int:
    """A process's resident memory in bytes."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def ride_out(kafka: KafkaServer, redis: RedisServer, folder: Path, seconds: float, readings: int) -> list[Away]:
    """Both outages, to their verdicts. The servers themselves stay up: others may use them meanwhile."""
    with ExitStack() as stack:
        both = [stack.enter_context(_behind(kafka, redis, folder, server, readings)) for server in SERVERS]
        for away in both:
            away.wait_until_at_work()
        _be_away(both, seconds)
        for away in both:
            away.come_back()
        with ThreadPoolExecutor(len(both)) as at_once:
            list(at_once.map(Away.wait_until_made_good, both))
        return both


def _be_away(both: Sequence[Away], seconds: float) -> None:
    began = time.monotonic()
    refused = False
    for away in both:
        away.wire.stall()
    while (passed := time.monotonic() - began) < seconds:
        if not refused and passed > seconds / 2:
            refused = True
            for away in both:
                away.wire.refuse()
        for away in both:
            away.feed.allow(BEFORE + (1 - 2 * BEFORE) * passed / seconds)
            away.look()
        time.sleep(1.0)


@contextmanager
def _behind(kafka: KafkaServer, redis: RedisServer, folder: Path, server: str, readings: int) -> Iterator[Away]:
    """A pipeline of its own, whose worker reaches one server through a proxy."""
    changes = merged(dict(KINDS["released"].changes), LISTEN)
    with open_pipeline(kafka, redis, folder / server, f"no-{server.lower()}", changes) as pipeline:
        ensure_topics(pipeline.settings)
        with proxy_of_kafka(kafka) if server == "Kafka" else proxy_of_redis(redis) as (wire, address):
            key = {"Kafka": "bootstrap_servers", "Redis": "url"}[server]
            worker = pipeline.worker(config=pipeline.changed({server.lower(): {key: address}}))
            feed = Feed(kafka, pipeline.settings.topics.telemetry, generate(len(server), readings))
            yield Away(server, pipeline, wire, worker, feed)
            worker.close()
