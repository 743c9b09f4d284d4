"""Time that a rebalance of 8 workers costs, while vehicles report at real pace."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.city import KEYS, OFFSET, Sent, reports
from bench.figures import Figure, middle, say
from bench.ingest.harness import Expected
from bench.ingest.reference import Reference
from bench.produce import RecordedProducer
from bench.scale.workers import PARTITIONS, Group, group
from tests.services import KafkaServer, RedisServer

WORKERS: Final = 8
MOST_S: Final = 5.0
STAY_S: Final = 0.5  # a partition that no rebalance moves
QUIET_S: Final = 8.0
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Loss:
    """Longest time in which a partition's stored offset did not move, less the longest without a rebalance.

    kill      one worker gets SIGKILL; start: one is started; stop: one gets SIGTERM
    restart   one worker gets SIGKILL, and another is started at once, as a supervisor does
    machine   one worker without another on its machine gets SIGKILL
    stay      the longest of all these, of partitions that no rebalance moved
    quiet     the longest time without a rebalance, included in none of these
    log_bytes bytes per record in Kafka, at this pace
    """

    quiet: float
    kill: float
    start: float
    stop: float
    restart: float
    machine: float
    stay: float
    log_bytes: float
    exact: bool


class Feed(threading.Thread):
    """Thread that sends the city's reports at their time, 300 a second, and folds them with the reference."""

    def __init__(self, kafka: KafkaServer, topic: str) -> None:
        super().__init__(daemon=True)
        self.reference = Reference()
        self.records = 0
        self._sender = RecordedProducer(kafka.bootstrap_servers)
        self._topic = topic
        self._stopped = threading.Event()

    def run(self) -> None:
        """Send until `stop`."""
        start = datetime.now(OFFSET).replace(microsecond=0)
        for report in reports():
            at = start + timedelta(seconds=report.second)
            if self._stopped.wait(max(0.0, (at - datetime.now(OFFSET)).total_seconds())):
                return
            value = report.at(start)
            self._sender.send(self._topic, Sent(KEYS[report.vehicle], round(at.timestamp() * 1000), value))
            self.reference.add(value)
            self.records += 1

    def stop(self) -> None:
        """Stop, and wait until the broker has all that was sent."""
        self._stopped.set()
        self.join()
        self._sender.flush()


class Moves(threading.Thread):
    """Thread that records when each partition's stored offset moved."""

    def __init__(self, workers: Group) -> None:
        super().__init__(daemon=True)
        self._offsets = workers.offsets
        self._moved: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look until `stop`."""
        last = self._offsets()
        while not self._stopped.wait(_LOOK_S):
            found, now = self._offsets(), time.monotonic()
            for moved, before, offset in zip(self._moved, last, found, strict=True):
                if offset != before:
                    moved.append(now)
            last = found

    def longest(self, begun: float, ended: float, partitions: Iterable[int]) -> float:
        """Return the longest time (s) between two moves of one of these partitions that overlaps the given time."""
        longest = 0.0
        for partition in partitions:
            times = [*self._moved[partition], ended]
            spans = [b - a for a, b in pairwise(times) if b > begun and a < ended]
            longest = max(longest, *spans) if spans else ended - begun
        return longest

    def wait_for_all(self, since: float) -> None:
        """Wait until every partition has moved twice since then."""
        deadline = since + 120
        while any(len([at for at in moved[-3:] if at > since]) < 2 for moved in self._moved):
            if time.monotonic() > deadline:
                raise TimeoutError("a partition does not move")
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()
        self.join()


def measure(kafka: KafkaServer, store: RedisServer, folder: Path, number: int, session_s: float) -> Loss:
    """Kill, start and stop a worker, one after the other."""
    with group(kafka, store, folder, f"bench-rebalance-{number}", hours="0, 24", session=f"{session_s:g}s") as workers:
        feed, moves = Feed(kafka, workers.settings.topics.telemetry), Moves(workers)
        workers.add(WORKERS)
        feed.start()
        workers.wait_until_stable()
        moves.start()
        moves.wait_for_all(time.monotonic())
        quiet, stayed = 0.0, list[float]()

        def lost(event: Callable[[], None]) -> float:
            """The longest time without a move from an event to some seconds after the group has settled."""
            before, begun = workers.wait_until_stable(), time.monotonic()
            event()
            after = workers.wait_until_stable()
            moves.wait_for_all(time.monotonic())
            time.sleep(QUIET_S)
            ended = time.monotonic()
            stay = [partition for partition, owner in before.items() if after[partition] == owner]
            stayed.append(moves.longest(begun, ended, stay) - quiet)
            return max(0.0, moves.longest(begun, ended, range(PARTITIONS)) - quiet)

        quiet = lost(lambda: None)
        stayed.clear()

        kill = lost(lambda: workers.remove(signal.SIGKILL))
        start = lost(workers.add)
        stop = lost(lambda: workers.remove(signal.SIGTERM))
        restart = lost(lambda: _restart(workers))
        (machine := folder / f"machine-{number}").mkdir()
        workers.add(machine=machine)
        workers.wait_until_stable()
        moves.wait_for_all(time.monotonic())
        machine_kill = lost(lambda: workers.remove(signal.SIGKILL))
        moves.stop()
        feed.stop()
        workers.wait_until_stored(workers.ends())
        expected = Expected.of("", feed.records, feed.reference)
        size = workers.log_bytes() / feed.records
        loss = Loss(quiet, kill, start, stop, restart, machine_kill, max(stayed), size, workers.is_exact(expected))
    say(
        f"rebalance: lost {loss.kill:.1f} s by a kill, {loss.start:.1f} s by a start, {loss.stop:.1f} s by a stop,"
        f" {loss.restart:.1f} s by a kill and a start, {loss.machine:.1f} s by the kill of a machine's only worker,"
        f" {loss.stay:.1f} s where nothing moved (quiet {loss.quiet:.1f} s)  {'exact' if loss.exact else 'WRONG'}"
    )
    return loss


def _restart(workers: Group) -> None:
    workers.remove(signal.SIGKILL)
    workers.add()


def figures(losses: Sequence[Loss], session_s: float) -> Iterator[Figure]:
    """Yield the losses, with their limits. The kill of a machine's only worker is noticed at the end of its session."""
    unit = "s in which a partition did not move"
    yield middle("lost_by_start_s", [loss.start for loss in losses], unit, most=MOST_S)
    yield middle("lost_by_stop_s", [loss.stop for loss in losses], unit, most=MOST_S)
    yield middle("lost_by_kill_s", [loss.kill for loss in losses], unit, most=MOST_S)
    yield middle("lost_by_restart_s", [loss.restart for loss in losses], unit, most=MOST_S)
    yield middle("lost_by_kill_of_only_worker_s", [loss.machine for loss in losses], unit, most=session_s + MOST_S)
    yield middle("lost_by_what_stays_s", [loss.stay for loss in losses], unit, most=STAY_S)
    after = [loss.machine - session_s for loss in losses]
    yield middle("lost_by_kill_after_session_s", after, "s, less the session timeout", most=MOST_S)
    yield middle("quiet_s", [loss.quiet for loss in losses], "s, longest without a rebalance")
    sizes = [loss.log_bytes for loss in losses]
    yield middle("kafka_bytes_per_live_record", sizes, "bytes, lz4, 300 records/s in 32 partitions")
    exact = all(loss.exact for loss in losses)
    yield Figure("rebalance_exact", float(exact), "1: the reference's result", least=1.0)
