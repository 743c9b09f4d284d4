"""Workers of a tracker policy that are killed with -9 at each named step, one after the other; and mutants of them.

Each step has a test of its own in tests/integration/test_tracker_worker.py. Here one log meets all of them, and the
checker compares what is left with what the counts lead to.
"""

import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from typing import Any, Final

import pytest

from hatcast.agents.release.tracker import TrackedHats
from tests.faults.check import violations
from tests.faults.facts import Log, Violation
from tests.faults.faulty_worker import NOT_OF_TRACKER, OF_TRACKER, meet
from tests.faults.feed import Feed
from tests.faults.generate import OPEN_MS, SLOT_MS, end_of, generate
from tests.faults.mutants import other_number_learned, spoiled, state_not_read
from tests.faults.observe import estimated, estimated_again, fold_again, is_settled, look, promise_of
from tests.faults.run import KINDS
from tests.integration.crashing_worker import STEPS_OF_HATS
from tests.integration.harness import Pipeline, WorkerProcess

READINGS: Final = 15_000
DAYS: Final = 3  # the last stays open
SEEDS: Final = 2**32
OF_DAY_END: Final = ["settlement drawn", "state stored", "date deleted"]
OF_SLOTS: Final = [
    "snapshot stored",  # with the first slot of a day
    "estimates sending",
    "estimates sent",
    *sorted(OF_TRACKER - {*OF_DAY_END}),
    *sorted(STEPS_OF_HATS.keys() - NOT_OF_TRACKER),
]
MORE: Final = 0.033  # of the log, for each step of slots: more than a slot of the first day
MUTANTS: Final = {state_not_read.__name__: "unstopped", other_number_learned.__name__: "predicted"}
# Those of the first day, and some of the second: its first queries are published, its settlement is not drawn.
FIRST_SLOTS: Final = OPEN_MS // SLOT_MS + 4
pytestmark = pytest.mark.pipeline(KINDS["tracked"].changes, topics=True)


@pytest.fixture
def feed(pipeline: Pipeline) -> Feed:
    """Of a log that is not sent yet."""
    seed = random.SystemRandom().randrange(SEEDS)
    sys.stdout.write(f"log of seed {seed}\n")
    return Feed(pipeline.kafka, pipeline.settings.topics.telemetry, generate(seed, READINGS, DAYS))


def settled(pipeline: Pipeline, last: WorkerProcess) -> dict[str, bytes]:
    """Wait until a last worker has nothing left to do; return the estimates that the published releases lead to."""
    pipeline.wait(lambda: is_settled(pipeline.settings), "settled state", last)
    wanted = estimated_again(pipeline)
    pipeline.wait(lambda: estimated(pipeline) == wanted, "estimates", last)
    return wanted


def verdict(pipeline: Pipeline, wanted: dict[str, bytes]) -> tuple[list[Violation], Log]:
    """What the checker finds, and what it compares with. wanted: estimates."""
    log = replace(fold_again(pipeline, end_of(DAYS)), estimates=wanted)
    seen = replace(look(pipeline), estimates=estimated(pipeline))
    return violations(seen, log, promise_of(pipeline.settings, exact=False)), log


@pytest.mark.timeout(240)
def test_a_tracker_that_is_killed_at_step_after_step_asks_what_the_counts_lead_to_and_no_bus_pays_more_than_its_limit(
    pipeline: Pipeline, feed: Feed
) -> None:
    # Half of the slots' steps, other ones in each run: all of them take a minute more, and each has a test of its own.
    chosen = set(random.SystemRandom().sample(OF_SLOTS, len(OF_SLOTS) // 2))
    steps = [step for step in OF_SLOTS if step in chosen]
    sys.stdout.write(f"killed at {steps}\n")
    for number, step in enumerate([*steps, *OF_DAY_END], start=1):
        if step == OF_DAY_END[0]:
            feed.finish()
        else:
            feed.allow(MORE * number)
        dying = pipeline.worker(wrap=partial(meet, step, "kill", 0))
        assert dying.wait() == -signal.SIGKILL, f"{step}: {dying.log_tail()}"
        pipeline.bury()
    found, log = verdict(pipeline, settled(pipeline, pipeline.worker()))
    assert found == []
    asked = [course for courses in log.courses.values() for course in courses[:1]]
    assert len(asked) == DAYS
    assert all(asked)
    assert len(log.settled) == DAYS - 1
    assert max(course[-1].spent for course in asked) == pipeline.settings.policy.daily_limit_nano


def draw_when_the_day_is_over() -> None:
    """In a worker: it lists the final slots, and takes so long over the first that its whole day closes meanwhile."""
    draw_slot = TrackedHats.draw_slot
    slow: list[str] = []

    async def draw(self: TrackedHats, due: Sequence[Any], loaded: Sequence[Any]) -> list[Any]:
        slot = due[0].hat.slot
        if not slow:
            slow.append(slot)
            sys.stdout.write("drawing\n")
            sys.stdout.flush()
            next_date = date.fromisoformat(slot.partition("/")[0]) + timedelta(days=1)
            while not await self._hats.is_closed(next_date.isoformat()):
                await asyncio.sleep(0.05)
        return await draw_slot(self, due, loaded)

    TrackedHats.draw_slot = draw  # type: ignore[method-assign]  # the product has no switch for it


@pytest.mark.timeout(240)
def test_a_date_that_closes_while_its_slots_are_released_is_settled_after_the_last_of_them(
    pipeline: Pipeline, feed: Feed
) -> None:
    feed.allow(MORE * 2)
    worker = pipeline.worker(wrap=draw_when_the_day_is_over)
    pipeline.wait(lambda: "drawing" in worker.logged(), "the first slot", worker)
    feed.finish()
    found, log = verdict(pipeline, settled(pipeline, worker))
    assert found == []
    assert len(log.settled) == DAYS - 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("mutant", "rule"), MUTANTS.items())
def test_the_checker_sees_a_mutant_of_the_tracker_after_a_kill_in_the_middle_of_a_day(
    mutant: str, rule: str, pipeline: Pipeline, feed: Feed
) -> None:
    feed.finish()
    first = pipeline.worker(wrap=partial(spoiled, mutant, "slot drawn", "kill", FIRST_SLOTS))
    assert first.wait() == -signal.SIGKILL, first.log_tail()
    pipeline.bury()
    second = pipeline.worker(wrap=partial(spoiled, mutant))
    pipeline.wait(lambda: is_settled(pipeline.settings), "settled state", second)
    assert rule in {violation.rule for violation in verdict(pipeline, estimated_again(pipeline))[0]}
