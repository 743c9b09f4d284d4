"""The faults, one function each: what happens to workers, to Redis, to Kafka and to the wires between them.

Most take no time: what has to end again does so later, from within `Stage.wait`. A deck holds every fault as often as
it is worth; a run deals from shuffled decks, so a long one meets them all. Beside that, most workers are started with
a fault of their own at a named step.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from redis.exceptions import RedisError

from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.stream.ledger import rows
from tests.faults.actors import Worker
from tests.faults.faulty_worker import NOT_OF_TRACKER, OF_ANSWERS, OF_TRACKER, STEPS
from tests.faults.generate import PARTITIONS
from tests.faults.intruders import other_configuration, other_format, other_time_zone_data
from tests.faults.proxy import Proxy
from tests.faults.requests import request
from tests.faults.stage import Stage
from tests.faults.topic_settings import grow_outputs, topic_setting
from tests.services.redis_cluster import RedisClusterServer, SlotMove

WORKERS: Final = 4  # at most, beside frozen ones
SESSION_S: Final = 6.0  # of the policies that storms run
AWAY_S: Final = SESSION_S + 2.0  # for so long a zombie stands still, at least

_PATIENCE_S: Final = 20

Fault = Callable[[Stage], None]


def join(stage: Stage) -> Worker:
    """Start a worker; two of three meet something at a step, most often between a commit and its send."""
    if stage.random.random() < 0.33:
        return stage.start_worker()
    often = [*_committed(stage), *_committed(stage), *_of_tracker(stage)]
    step = stage.random.choice([*often, *(each for each in STEPS if _is_met(stage, each))])
    action = stage.random.choice(["kill", "kill", "stop", "stop", "fail"])
    return stage.start_worker(step, action, stage.random.choice([0, 0, 1, 3]))


def _committed(stage: Stage) -> list[str]:
    """The steps between a commit and its send."""
    return [step for step in ("committed", "answers committed") if _is_met(stage, step)]


def _of_tracker(stage: Stage) -> list[str]:
    """The steps of a tracker: few of them are met in a run."""
    return [step for step in sorted(OF_TRACKER) if _is_met(stage, step)]


def _is_met(stage: Stage, step: str) -> bool:
    """Whether the policy's workers ever come to a step."""
    policy = stage.pipeline.settings.policy
    if step in OF_ANSWERS:
        return bool(policy.queries)
    return step not in (NOT_OF_TRACKER if policy.method.settles_days else OF_TRACKER)


def fill(stage: Stage, least: int = 1) -> None:
    """Start workers until at least so many run, as a supervisor does."""
    while len(stage.alive()) < least:
        join(stage)


def one_of(stage: Stage) -> Worker:
    """A worker that has partitions; if none gets any in a while, one that runs."""
    for _ in range(_PATIENCE_S):
        fill(stage)
        at_work = [worker for worker in stage.alive() if worker.at_work]
        if at_work:
            return stage.random.choice(at_work)
        stage.wait(1.0)
    fill(stage)
    return stage.random.choice(stage.alive())


def stopped(stage: Stage, worker: Worker) -> None:
    """A worker has stopped itself at a step: it stays so past its session. Half the time Redis loses something."""
    stage.copy_redis()  # with a record that nobody has sent yet, if the step was `committed`
    fill(stage)
    away = AWAY_S + stage.random.uniform(0.0, 6.0)
    loss = stage.random.choice([None, None, redis_flush, redis_rollback])
    if loss is not None:
        stage.later(stage.random.choice([0.0, 0.5, away - 1.0]), lambda: loss(stage))
    if stage.random.random() < 0.25:
        stage.later(1.0, lambda: stage.kill(worker))
    else:
        stage.later(away, lambda: stage.thaw(worker))


def kill(stage: Stage) -> None:
    """kill -9; half the time another worker comes at once."""
    stage.kill(one_of(stage))
    if stage.random.random() < 0.5:
        join(stage)


def kill_all(stage: Stage) -> None:
    """kill -9 to everybody."""
    for worker in stage.alive():
        stage.kill(worker)
    join(stage)


def zombie(stage: Stage) -> None:
    """A worker stands still past its session, the others take over, and it goes on."""
    while not stage.freeze(one_of(stage), AWAY_S + stage.random.uniform(0.0, 4.0)):
        pass  # it had just ended by itself
    fill(stage, 2)


def stop_between_commit_and_send(stage: Stage) -> None:
    """A worker is stopped exactly there; its next owner sends what it has committed, and then it goes on.

    More of the log is sent once it works: else the others may leave it nothing to commit.
    """
    worker = stage.start_worker("committed", "stop")
    for _ in range(_PATIENCE_S):
        if worker.reached or not worker.running:
            return
        if worker.at_work:
            stage.more()
        stage.wait(1.0)


def scale(stage: Stage) -> None:
    """One more, or one less that leaves in order."""
    if len(stage.alive()) < WORKERS and stage.random.random() < 0.7:
        join(stage)
        stage.tally["worker joined"] += 1
    else:
        worker = one_of(stage)
        worker.ended = True
        worker.process.stop()
        stage.tally["worker left"] += 1


def redis_restart(stage: Stage) -> None:
    """Redis, or a node of its cluster, ends in order, or by kill -9, and comes back with all that it answered."""
    server = stage.random.choice(stage.redis.servers)
    server.stop() if stage.random.random() < 0.5 else server.kill()
    stage.wait(stage.random.uniform(0.0, 2.0))
    server.start()
    stage.tally["Redis restarted"] += 1


def redis_rollback(stage: Stage) -> None:
    """Redis comes back with older files."""
    stage.roll_back_redis()
    stage.tally["Redis rolled back"] += 1


def redis_flush(stage: Stage) -> None:
    """FLUSHALL; of a cluster, on one node."""
    stage.end_moves()
    stage.redis.resume()
    stage.random.choice(stage.redis.servers).flush()
    stage.tally["Redis flushed"] += 1


def redis_restore(stage: Stage) -> None:
    """All keys go back to what they held a while ago, and the server lives on: no connection is lost."""
    stage.redis.resume()
    if len(stage.redis.servers) > 1:  # of a cluster, one node is flushed: its keys are nowhere else
        return redis_flush(stage)
    if stage.restore_redis():
        stage.tally["Redis restored in place"] += 1
    return None


def redis_failback(stage: Stage) -> None:
    """Redis becomes a replica of a server that holds an older copy, then a primary again."""
    stage.redis.resume()
    if len(stage.redis.servers) > 1:
        return redis_restart(stage)
    if stage.follow_other():
        stage.tally["Redis followed an older copy"] += 1
    stage.copy_to_other()
    return None


def move_slot(stage: Stage) -> None:
    """Of a cluster: the slot of a partition or of the ledger moves to another node; for a while, half of its keys."""
    cluster, name = stage.redis, stage.pipeline.settings.policy.name
    if not isinstance(cluster, RedisClusterServer) or cluster.moves:
        return
    cluster.resume()
    cluster.wait_until_ready()
    states = [PartitionKeys(name, partition).state for partition in range(PARTITIONS)]
    first = stage.random.choice([*states, DomainKeys(stage.pipeline.name).row(rows.RECOVERY)])
    move = SlotMove(cluster, first)
    keys = move.unmoved()
    stage.random.shuffle(keys)
    for key in keys[: len(keys) // 2]:
        move.move(key)
    stage.later(stage.random.uniform(0.5, AWAY_S), lambda: _end_move(stage, move))
    stage.tally["slot of Redis moved"] += 1


def _end_move(stage: Stage, move: SlotMove) -> None:
    """End it, once all nodes answer."""
    try:
        move.end()
    except RedisError:
        stage.later(1.0, lambda: _end_move(stage, move))


def redis_pause(stage: Stage) -> None:
    """Redis, or a node of its cluster, answers nobody for a while."""
    server = stage.random.choice(stage.redis.servers)
    server.pause()
    stage.later(stage.random.uniform(0.5, 4.0), server.resume)
    stage.tally["Redis paused"] += 1


def kafka_restart(stage: Stage) -> None:
    """The broker ends in order, or by kill -9, and comes back."""
    stage.kafka.stop() if stage.random.random() < 0.5 else stage.kafka.kill()
    stage.kafka.start()
    stage.tally["Kafka restarted"] += 1


def kafka_pause(stage: Stage) -> None:
    """The broker answers nobody for a while."""
    stage.kafka.pause()
    stage.later(stage.random.uniform(0.5, 4.0), stage.kafka.resume)
    stage.tally["Kafka paused"] += 1


def cut(stage: Stage) -> None:
    """The wire of some workers to one server is cut, slow, or half open for a while."""
    wire = stage.random.choice(stage.wires)
    server = stage.random.choice(["Kafka", "Redis"])
    proxy: Proxy = wire.kafka if server == "Kafka" else wire.redis
    how = stage.random.choice(["cut", "refused", "slow", "half open", "deaf"])
    match how:
        case "cut":
            proxy.cut()
        case "refused":
            proxy.refuse()
        case "slow":
            proxy.delay(stage.random.uniform(0.05, 1.0))
        case "half open":
            proxy.stall()
        case _:
            proxy.stall(only_answers=True)
    stage.later(stage.random.uniform(1.0, AWAY_S), proxy.heal)
    stage.tally[f"wire to {server} {how}"] += 1


DECK: Final[Mapping[Fault, int]] = MappingProxyType(
    {
        kill: 7,
        kill_all: 1,
        zombie: 2,
        stop_between_commit_and_send: 1,
        scale: 4,
        redis_restart: 1,
        redis_rollback: 2,
        redis_flush: 1,
        redis_restore: 2,
        redis_failback: 2,
        other_configuration: 1,
        other_format: 1,
        other_time_zone_data: 1,
        topic_setting: 2,
        grow_outputs: 1,
        request: 2,
        redis_pause: 1,
        move_slot: 2,
        kafka_restart: 2,
        kafka_pause: 1,
        cut: 4,
    }
)


def deal(chance: random.Random) -> Iterator[Fault]:
    """Faults without end, from one shuffled deck after the other."""
    while True:
        deck = [fault for fault, times in DECK.items() for _ in range(times)]
        chance.shuffle(deck)
        yield from deck
