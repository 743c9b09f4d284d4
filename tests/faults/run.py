"""One run: a generated log, a storm over it, quiet, and the checker."""

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import structlog

from hatcast.agents.kafka.topics import ensure_topics
from tests.faults.chaos import SESSION_S, Fault, deal, fill, redis_flush, stopped
from tests.faults.check import violations
from tests.faults.compaction import ACCEPT_GAP, CLEANABLE, compact, dates_that_lack_records, has_met_what_is_left
from tests.faults.derived import DerivedFeed
from tests.faults.facts import Violation
from tests.faults.feed import Feed
from tests.faults.generate import DATES, DAYS, end_of, generate
from tests.faults.observe import estimated, estimated_again, fold_again, is_settled, look, promise_of
from tests.faults.report import Report
from tests.faults.requests import request
from tests.faults.stage import Stage, open_stage
from tests.faults.topic_settings import named_still
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN
from tests.services import KafkaServer, RedisServer

LOSSES: Final = ("Redis rolled back", "Redis flushed", "Redis restored in place", "Redis followed an older copy")
QUIET_S: Final = 180.0  # after which a run that has not settled never will
_ESTIMATED_S: Final = 60.0
_MET_S: Final = 60
_BETWEEN_S: Final = (0.0, 4.0)  # from one fault to the next: many meet a system that is not well again yet


@dataclass(frozen=True)
class Kind:
    """What a run is about.

    exact     epsilon is so large that released values can be compared
    changes   to the configuration
    days      of the log
    options   of its workers
    faults    in each run, one after the other, after a third of the others
    derives   telemetry is a replay of positions, with derived speeds
    """

    name: str
    exact: bool
    changes: Mapping[str, Any]
    days: int = DAYS
    options: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    derives: bool = False


def flush_what_was_compacted(stage: Stage) -> None:
    """FLUSHALL, and no other fault until a worker folds what is left: none need do so with a copy from before."""
    redis_flush(stage)
    for _ in range(_MET_S):
        if has_met_what_is_left(worker.process.logged() for worker in stage.workers):
            return
        fill(stage)
        stage.wait(1.0)
    structlog.get_logger().warning(
        "no worker folded what compaction left, so this run did not try it: run it again, on a slower machine with a"
        " larger _MET_S",
        waited_s=_MET_S,
    )


def _kind(
    name: str,
    privacy: Mapping[str, Any],
    queries: Sequence[Mapping[str, Any]] = (),
    *,
    lateness: str = "5m",
    exact: bool = True,
    **policy: Any,
) -> Kind:
    worker = {"session_timeout": f"{SESSION_S:g}s", "checkpoint_interval": "100ms", **LISTEN["worker"]}
    policy |= {"slot_length": "30m", "lateness": lateness, "privacy": {"max_hats_per_day": 24, **privacy}}
    return Kind(name, exact, {"worker": worker, "policy": policy | ({"query": [*queries]} if queries else {})})


def _tracked() -> Kind:
    """Of three days two are settled. With few cells of many buses, a small price makes queries of all kinds."""
    privacy = {"epsilon": None, "daily_limit": 5.0, "min_users": 3}
    kind = _kind(
        "tracked", privacy, exact=False, estimator={"name": "tracker"}, tracker={"price": 0.05, "objective": "cells"}
    )
    return replace(kind, days=3)


def _queries(epsilon: float, over_both: float, **of_limit: Any) -> list[Mapping[str, Any]]:
    """What is asked of each day, and of both together; in this order they are given their places."""
    return [
        {"name": "over", "kind": "over_speed_limit", "days": 1, "epsilon": epsilon, "speed_limit": 50.0, **of_limit},
        {"name": "both", "kind": "mean_speed", "days": 2, "from": DATES[0], "epsilon": over_both, "min_n": _MIN_N},
        {"name": "daily", "kind": "mean_speed", "days": 1, "epsilon": epsilon, "min_n": _MIN_N},
    ]


_MIN_N: Final = 3
_BARE: Final = {"epsilon": 1e6, "acknowledge_weak_privacy": True, "daily_limit": 1e9}
# The first day costs 9.6 for its queries and 10 for HATs. Of all days 6.4 is left for the second: 2.4 for each of the
# queries about one day, none of the 4.8 for the one about both, and 1 for a HAT.
_TIGHT: Final = {"epsilon": 1.0, "daily_limit": 20.0, "unit": "user", "total_limit": 26.0}
# So coarse that noise is far below a step, and a reading that is lost in a HAT of hundreds some steps.
_DELAY: Final = {"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0, "grid": 1.0}
_VALUES: Final[Mapping[str, Any]] = {"values": ["speed", "delay"], "value": [_DELAY]}
_SUMS: Final[Mapping[str, Any]] = {**_BARE, "epsilon": 3e5, "max_hats_per_day": None, "daily_limit": None}
_CONTINUAL: Final = {"kind": "tree", "horizon_days": 7, "max_slots": 40, "max_cells": 3}
KINDS: Final = {
    kind.name: kind
    for kind in (
        replace(_kind("released", _BARE, _queries(1e6, 1e6, on_request=True)), faults=(request,)),
        _kind("values", _BARE, **_VALUES),
        # Else no worker would go on; a Redis that is emptied then lets one meet what is left.
        replace(_kind("compacted", _BARE), options=(ACCEPT_GAP,), faults=(compact, flush_what_was_compacted)),
        replace(_kind("derived", _BARE), days=1, derives=True),
        _kind("held", _BARE, lateness="48h"),  # nothing closes: the whole state is there to compare
        _kind("tight", _TIGHT, _queries(0.1, 0.2), exact=False),  # the limits bind
        _tracked(),
        _kind("running", _SUMS, estimator=None, continual=_CONTINUAL),
    )
}


@dataclass(frozen=True)
class Plan:
    """What a run is to do.

    faults   how many, dealt by the seed; or these
    """

    kind: Kind
    seed: int
    readings: int
    faults: int | Sequence[Fault]

    def dealt(self, chance: random.Random) -> Iterable[Fault]:
        """The faults, in order."""
        if not isinstance(self.faults, int):
            return self.faults
        dealt, first = list(islice(deal(chance), self.faults)), self.faults // 3
        return [*dealt[:first], *self.kind.faults, *dealt[first:]]


def run(plan: Plan, kafka: KafkaServer, redis: RedisServer, folder: Path) -> Report:
    """One storm, to its verdict. The servers are ours to break."""
    began = time.monotonic()
    report = Report(plan.kind.name, plan.seed)
    chance = random.Random(plan.seed)
    faults, end_ms = list(plan.dealt(chance)), end_of(plan.kind.days)
    with open_pipeline(kafka, redis, folder, f"storm-{plan.kind.name}", plan.kind.changes) as pipeline:
        ensure_topics(pipeline.settings)
        if compact in plan.kind.faults:
            kafka.alter_topic(pipeline.settings.topics.telemetry, CLEANABLE)
        with open_stage(pipeline, chance, stopped) as stage:
            feed = _feed(plan, pipeline, len(faults))
            stage.options = plan.kind.options
            if isinstance(feed, Feed):
                stage.rest = feed.rest
            _storm(stage, feed, faults)
            stage.heal()
            feed.finish()
            unsettled = list(_settle(stage))
            report.violations += unsettled
            report.violations += [*stage.unexpected_ends(), *stage.broken]
            logs = [worker.process.logged() for worker in stage.workers]
            thinned = dates_that_lack_records(pipeline.settings, stage.compacted_ms, logs)
            stage.tally["compacted telemetry folded"] += bool(thinned)
            report.faults = +stage.tally
            lost = any(report.faults[name] for name in LOSSES)
            seen = replace(look(pipeline), estimates=estimated(pipeline), lost=lost, accepted=stage.accepted)
            if isinstance(feed, DerivedFeed):
                seen = replace(seen, derived=feed.hats())
        folded = fold_again(pipeline, end_ms, stage.dumped)
        folded = replace(folded, estimates=estimated_again(pipeline), thinned=thinned)
        if not unsettled:  # else all that is still to be done would be told as wrong
            found: list[Violation] = violations(seen, folded, promise_of(pipeline.settings, exact=plan.kind.exact))
            report.violations += map(str, found)
        report.readings = sum(folded.outcomes.values())
        report.releases = len(seen.published)
        report.answers = len(seen.answered)
    report.seconds = time.monotonic() - began
    return report


def _feed(plan: Plan, pipeline: Pipeline, faults: int) -> Feed | DerivedFeed:
    """What sends the log."""
    if plan.kind.derives:
        return DerivedFeed(pipeline, plan.seed, plan.readings, faults)
    log = generate(plan.seed, plan.readings, plan.kind.days)
    return Feed(pipeline.kafka, pipeline.settings.topics.telemetry, log)


def _storm(stage: Stage, feed: Feed | DerivedFeed, faults: Sequence[Fault]) -> None:
    """The faults, while the log is sent: each has its share of it, and one is left after the last."""
    fill(stage, stage.random.randint(1, 3))
    shares = len(faults) + 1
    for number, fault in enumerate(faults):
        feed.allow((number + 1) / shares)
        stage.more = partial(feed.allow, (number + 2) / shares)
        stage.wait(stage.random.uniform(*_BETWEEN_S))
        if stage.random.random() < 0.5:
            stage.copy_redis()
        if stage.random.random() < 0.3:
            stage.dump_redis()
        fill(stage, stage.random.randint(1, 2))
        fault(stage)
    stage.wait_for_ends()  # else the last zombie would be thawed before it is one


def _settle(stage: Stage) -> Iterator[str]:
    """Wait until nothing is left to do, then end all workers in order; tells what went wrong with that."""
    stage.on_stop = Stage.go_on
    deadline = time.monotonic() + QUIET_S
    while not is_settled(stage.pipeline.settings):
        if not stage.alive():
            stage.start_worker()
        if time.monotonic() > deadline:
            logs = "\n".join(worker.process.log_tail() for worker in stage.alive())
            yield f"settled: not within {QUIET_S:g} s without faults\n{logs}"
            break
        stage.wait(0.5)
    _wait_for_estimates(stage)
    while (still := named_still(stage)) and time.monotonic() < deadline:
        stage.wait(1.0)
    yield from still
    yield from stage.dismiss()


def _wait_for_estimates(stage: Stage) -> None:
    """Until they are those of the releases; if they never are, the checker tells which."""
    deadline, wanted = time.monotonic() + _ESTIMATED_S, estimated_again(stage.pipeline)
    while estimated(stage.pipeline) != wanted and time.monotonic() < deadline:
        stage.wait(0.5)
