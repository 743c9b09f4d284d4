"""Costs of a ledger of 10^5 entries: one more commit, reading it, starting a worker on it, and recovering it."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from statistics import median
from subprocess import PIPE
from typing import Any, Final, NamedTuple

import click
import structlog
from redis.asyncio import Redis

from bench.figures import Figure, middle, say, show
from bench.process import ROOT, cpu_s
from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.cli.budget import read_budget
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.stream.ledger.day import DayLedger, Total
from tests.faults.entries import BATCH, RELEASED_AT_MS, Entries, Spent, rebuilt, recover, recovering
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN, is_ready
from tests.services import KafkaServer, RedisServer, open_kafka, open_redis

MOST_S: Final = 1.0
MOST_GROWTH: Final = 1.5  # of a commit's CPU, from 10^2 to all entries
MOST_OVER_READING: Final = 8.0
RESTART_S: Final = 2.0
_SMALL: Final = 100
_READY_S: Final = 120.0
BATCHES: Final = ((1, 1), (1, 20), (1, 125), (1, 500), (4, 125), (8, 125))  # processes on one date, releases at once
_COMMITS: Final = 5_000
HOUR: Final = ((1, 1), (8, 1), (8, 2))  # processes, dates
_HOUR_BATCH: Final = 125
_HOUR_ROUNDS: Final = 2
_LOOK_S: Final = 0.01


class _Committed(NamedTuple):
    """Seconds of one release: on the clock, CPU of the processes that commit, CPU of Redis."""

    wall: float
    cpu: float
    redis_cpu: float


class _Run(NamedTuple):
    """Commits of several processes at once.

    redis_bytes       for a release
    last_over_first   CPU of the last tenth of a process's commits over that of the first: the median
    peak_mb           of the largest process
    """

    of_release: _Committed
    redis_bytes: float
    last_over_first: float
    peak_mb: float


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--entries", default=100_000, show_default=True, type=click.IntRange(2_000))
@click.option("--hour", default=100_000, show_default=True, help="HATs that become final at once.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--against", type=click.Path(exists=True, path_type=Path), help="Another checkout: commits of both, in turns."
)
def command(as_json: bool, entries: int, hour: int, rounds: int, against: Path | None) -> int:  # noqa: FBT001 - click's way
    """Measure a ledger of many entries, and whether the last commit costs as much as the first."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}, Redis: {redis.source}")
        bench = Bench(kafka, redis, Path(folder), entries, rounds)
        if against is None:
            figures = [
                *bench.in_memory(),
                *bench.in_a_file(),
                *bench.in_redis(),
                *bench.in_batches(),
                *bench.in_an_hour(hour),
                *bench.lost(),
            ]
        else:
            figures = [*bench.in_batches(against)]
    return show(f"ledger: {entries:,} entries, {rounds} rounds", figures, as_json=as_json)


class Bench:
    """The parts of the benchmark. Each has its own pipeline, so its own policy and topics."""

    def __init__(self, kafka: KafkaServer, redis: RedisServer, folder: Path, entries: int, rounds: int) -> None:
        self._kafka = kafka
        self._redis = redis
        self._folder = folder
        self._entries = entries
        self._rounds = rounds

    def in_memory(self) -> Iterator[Figure]:
        """Measure the arithmetic alone, with every entry on one day."""
        say("in memory")
        with self._pipeline("memory") as pipeline:
            policy = pipeline.settings.policy
            seconds = []
            for _ in range(self._rounds):
                day, total, begun = DayLedger(), Total(), time.process_time()
                for place in range(self._entries):
                    day.charge_if_room(policy, str(place), policy.epsilon_nano, total)
                seconds.append(time.process_time() - begun)
        yield middle("charges_in_memory_cpu_s", seconds, "s of CPU", most=MOST_S)

    def in_a_file(self) -> Iterator[Figure]:
        """Measure the ledger of `hatcast batch`, with every entry on one day."""
        say("in a file")
        with self._pipeline("file") as pipeline:
            policy, entries = pipeline.settings.policy, Entries(pipeline, self._entries, self._entries)
            path, (day,) = self._folder / "bench.ledger", entries.dates
            releases, costs = list(entries.of(day)), []
            with open_ledger(path, policy) as ledger:
                for at in range(0, len(releases), BATCH):
                    begun = time.process_time()
                    ledger.commit(releases[at : at + BATCH], RELEASED_AT_MS)
                    costs.append((time.process_time() - begun) / BATCH)
            tenth = max(1, len(costs) // 10)
            yield Figure("file_commit_us", 1e6 * median(costs), "us of CPU")
            growth = median(costs[-tenth:]) / median(costs[1 : 1 + tenth])
            yield Figure("file_commit_last_over_first", growth, "times", most=MOST_GROWTH)
            begun = time.process_time()
            with open_ledger(path, policy) as ledger:
                ledger.summary(day)
            yield Figure("file_open_cpu_s", time.process_time() - begun, "s of CPU", most=MOST_S)

    def in_redis(self) -> Iterator[Figure]:
        """Measure the workers' ledger, with every entry on one day, through the commit script."""
        say("in Redis")
        with self._pipeline("empty") as empty, self._pipeline("full") as full:
            self._until_ready(empty)  # creates the topics and recovers the ledger
            self._until_ready(full)
            yield from asyncio.run(self._commits(full))
            yield from self._reading(full)
            yield from self._starts(empty, full)

    def in_batches(self, against: Path | None = None) -> Iterator[Figure]:
        """Measure commits of one date, in batches, by one process or several; also as ratios to another checkout."""
        for owners, batch in BATCHES:
            say(f"batches of {batch}, {owners} processes")
            spent: list[_Committed] = []
            ratios: list[_Committed] = []
            for _ in range(self._rounds):
                spent.append(self._committed(ROOT, owners, batch))
                if against is not None:
                    other = self._committed(against, owners, batch)
                    ratios.append(
                        _Committed(*(ours / max(theirs, 1e-9) for ours, theirs in zip(spent[-1], other, strict=True)))
                    )
            name = f"batches_of_{batch}" + (f"_{owners}_processes" if owners > 1 else "")
            for each in _Committed._fields:
                yield middle(f"{name}_{each}", [1e6 * getattr(one, each) for one in spent], "us a release")
                if ratios:
                    yield middle(f"{name}_{each}_ratio", [getattr(one, each) for one in ratios], "times")

    def in_an_hour(self, hats: int) -> Iterator[Figure]:
        """Measure commits of an hour's HATs by one process and by several, on one date and on two."""
        for owners, dates in HOUR:
            say(f"an hour of {hats:,} HATs, {owners} processes, {dates} dates")
            runs = [self._run(ROOT, owners, _HOUR_BATCH, hats // owners, dates) for _ in range(_HOUR_ROUNDS)]
            name = f"hour_{owners}_processes_{dates}_dates"
            for each in _Committed._fields:
                yield middle(f"{name}_{each}", [1e6 * getattr(run.of_release, each) for run in runs], "us a release")
            yield middle(f"{name}_redis_bytes", [run.redis_bytes for run in runs], "bytes a release")
            yield middle(f"{name}_last_over_first_tenth", [run.last_over_first for run in runs], "times, CPU")
            yield middle(f"{name}_peak_mb", [run.peak_mb for run in runs], "MB of a process")

    def _committed(self, checkout: Path, owners: int, batch: int) -> _Committed:
        return self._run(checkout, owners, batch, _COMMITS // owners).of_release

    def _run(self, checkout: Path, owners: int, batch: int, releases: int, dates: int | None = None) -> _Run:
        """Let each of the processes commit so many releases. `dates` is for this checkout alone."""
        domain = f"bench-{uuid.uuid4().hex[:8]}"
        command = [sys.executable, str(checkout / "bench" / "committing.py"), self._redis.url, domain]
        environment, processes = {**os.environ, "PYTHONPATH": str(checkout)}, list["subprocess.Popen[str]"]()
        for owner in range(owners):
            numbers = map(str, (owner, owners, releases, batch, *([] if dates is None else [dates])))
            process = subprocess.Popen(
                [*command, *numbers], cwd=checkout, env=environment, stdin=PIPE, stdout=PIPE, text=True
            )
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            processes.append(process)
        before = self._redis.client().info()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [json.loads(process.communicate()[0]) for process in processes]
        after = self._redis.client().info()
        self._redis.delete(f"{{{domain}}}*")
        redis_s = sum(float(after[each]) - float(before[each]) for each in ("used_cpu_user", "used_cpu_sys"))
        used = max(each["wall_s"] for each in found), sum(each["cpu_s"] for each in found), redis_s
        return _Run(
            of_release=_Committed(*(seconds / (releases * owners) for seconds in used)),
            redis_bytes=(int(after["used_memory"]) - int(before["used_memory"])) / (releases * owners),
            last_over_first=median(each.get("last_over_first", 1.0) for each in found),
            peak_mb=max(each.get("peak_mb", 0.0) for each in found),
        )

    async def _commits(self, pipeline: Pipeline) -> list[Figure]:
        settings, entries = pipeline.settings, Entries(pipeline, self._entries, self._entries)
        async with Redis.from_url(settings.redis.url) as redis, recovering(pipeline, redis) as recovery:
            guard = await recover(recovery, settings.kafka.partitions)
            ledger = LedgerStore(redis, settings.topics.telemetry, settings.policy)
            memory = int((await redis.info("memory"))["used_memory"])
            wall_s = await entries.commit(ledger, guard)
            used = int((await redis.info("memory"))["used_memory"]) - memory
            # The same commits, on a day with all entries and on days with a hundred, in turns.
            more = Entries(pipeline, self._entries + self._rounds * BATCH, self._entries + self._rounds * BATCH)
            last = more.proposals(more.dates[0])[self._entries :]
            small = Entries(pipeline, self._entries + self._rounds * (_SMALL + BATCH), _SMALL + BATCH)
            costs: dict[str, list[float]] = {"small": [], "large": []}
            for turn in range(self._rounds):
                fresh = small.proposals(small.dates[1 + turn])
                await ledger.commit(fresh[:_SMALL], guard)
                for kind, batch in (("small", fresh[_SMALL:]), ("large", last[turn * BATCH : (turn + 1) * BATCH])):
                    before = await _cpu_s(redis)
                    await ledger.commit(batch, guard)
                    costs[kind].append((await _cpu_s(redis) - before) / len(batch))
        ratios = [large / few for large, few in zip(costs["large"], costs["small"], strict=True)]
        return [
            Figure("commits_per_s", self._entries / wall_s, "1/s"),
            middle("redis_commit_us", [1e6 * cost for cost in costs["large"]], "us of Redis' CPU"),
            Figure("redis_commit_all_over_100", median(ratios), "times", min(ratios), max(ratios), most=MOST_GROWTH),
            Figure("redis_bytes_per_entry", used / self._entries, "bytes"),
        ]

    def _reading(self, pipeline: Pipeline) -> Iterator[Figure]:
        seconds, days = [], list[dict[str, Any]]()
        for _ in range(self._rounds + 1):  # the first one composes, the others find that done
            begun = time.monotonic()
            days, _ = asyncio.run(read_budget(pipeline.settings))
            seconds.append(time.monotonic() - begun)
        assert sum(day["releases"] for day in days) >= self._entries
        yield middle("budget_s", seconds[1:], "s", most=MOST_S)
        begun = time.monotonic()
        assert pipeline.start("budget", "show", "--json").wait() == 0
        yield Figure("budget_command_s", time.monotonic() - begun, "s, the process too")

    def _starts(self, empty: Pipeline, full: Pipeline) -> Iterator[Figure]:
        few, many = [], []
        for _ in range(self._rounds):
            few.append(self._until_ready(empty))
            many.append(self._until_ready(full))
        yield middle("ready_s", [spent.wall_s for spent in many], "s, from the start of the process")
        yield middle("ready_without_entries_s", [spent.wall_s for spent in few], "s")
        more = [with_all.cpu_s - without.cpu_s for with_all, without in zip(many, few, strict=True)]
        yield middle("ready_more_cpu_s", more, "s of CPU", most=MOST_S)

    def _until_ready(self, pipeline: Pipeline) -> Spent:
        """Start a worker and wait until it is ready: its ledger is recovered then."""
        begun = time.monotonic()
        with closing(pipeline.start("worker")) as worker:
            while not is_ready(worker):
                if worker.code is not None or time.monotonic() - begun > _READY_S:
                    raise RuntimeError(f"the worker is not ready: {worker.logged()[-2000:]}")
                time.sleep(_LOOK_S)
            spent = Spent(time.monotonic() - begun, cpu_s(worker.pid))
            worker.terminate()
        return spent

    def lost(self) -> Iterator[Figure]:
        """Measure recovery of published entries on ten days, after Redis was emptied and after a restart."""
        say("lost and rebuilt")
        with self._pipeline("lost") as pipeline:
            found = rebuilt(pipeline, self._entries, -(-self._entries // 10))
        for name, spent, limit in (("loss", found.lost, None), ("restart", found.known, RESTART_S)):
            yield Figure(f"recovered_after_{name}_s", spent.wall_s, "s", most=limit)
            yield Figure(f"recovered_after_{name}_cpu_s", spent.cpu_s, "s of CPU", most=limit)
            yield Figure(f"{name}_over_reading", spent.wall_s / found.read.wall_s, "times", most=MOST_OVER_READING)
        yield Figure("plain_reading_s", found.read.wall_s, "s")

    def _pipeline(self, title: str) -> AbstractContextManager[Pipeline]:
        limits = {"daily_limit": 1_000_000.0, "max_hats_per_day": 89}
        changes = {**LISTEN, "policy": {"privacy": limits}}
        return open_pipeline(self._kafka, self._redis, self._folder / title, title, changes)


async def _cpu_s(redis: Redis) -> float:
    used = await redis.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
