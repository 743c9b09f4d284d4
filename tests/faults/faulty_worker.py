"""A worker to which something happens once, at the end of a named step.

    pipeline.worker(wrap=partial(meet, "committed", "stop", 0))

The product has no switch for that: the steps are wrapped from outside.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from redis.exceptions import ConnectionError as RedisConnectionError

from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.recovery import RecoveryStore, SealStore
from hatcast.agents.release.estimates import EstimatePublisher
from hatcast.agents.release.path import ReleasePath
from hatcast.agents.worker import readiness
from tests.integration.crashing_worker import ANSWERING, STEPS_OF_HATS, TRACKING, WITHIN, Step, watch

# Of the release, of answers to queries, of a tracker, then of estimates, of ledger recovery and of seals, then of the
# ingest.
STEPS: Final[dict[str, Step]] = {
    **STEPS_OF_HATS,
    **ANSWERING,
    "answers sent": Step(AIOKafkaProducer, "commit_transaction"),  # as `sent`, within the send of answers
    **TRACKING,
    "estimates sending": Step(EstimatePublisher, "_send"),
    "estimates sent": Step(EstimatePublisher, "_send"),
    "snapshot stored": Step(SnapshotStore, "write"),
    "looked": Step(RecoveryStore, "read_state"),
    "begun": Step(RecoveryStore, "begin"),
    "fenced": Step(RecoveryStore, "store_ends"),
    "adopted": Step(RecoveryStore, "adopt"),
    "finished": Step(RecoveryStore, "finish"),
    "sealed": Step(SealStore, "seal"),
    "shrunk": Step(SealStore, "shrink"),
    "opened": Step(PartitionStore, "open"),
    "checkpointing": Step(PartitionStore, "checkpoint"),
    "checkpointed": Step(PartitionStore, "checkpoint"),
}
# At their beginning: all is sent, nothing is committed; the changes are taken from memory, nothing is written.
BEFORE: Final = frozenset({"sent", "answers sent", "estimates sending", "checkpointing"})
OF_TRACKER: Final = frozenset(TRACKING)  # only a tracker comes there,
NOT_OF_TRACKER: Final = frozenset({"drawn", "deleted"})  # which has other names for these
OF_ANSWERS: Final = frozenset({*ANSWERING, "answers sent"})  # only a policy with queries comes there
_COMPARED_S: Final = 3.0
REACHED: Final = "fault reached"  # in the log, for who waits for it


def storming(step: str, action: str, times: int) -> None:
    """Wrap a storm's worker: topics are compared every few seconds, not minutes; and `meet`, if there is a step."""
    readiness.COMPARE_S = _COMPARED_S  # type: ignore[misc]  # it is final for the product
    readiness.LOOK_S = _COMPARED_S  # type: ignore[misc]  # as above
    if step:
        meet(step, action, times)


def meet(step: str, action: str, times: int) -> None:
    """Wrap a step: after it went well so many times, the action comes, once.

    action   `kill` (SIGKILL), `stop` (SIGSTOP, until somebody lets it go on), or `fail` (the step was done, its answer
             is lost: a ConnectionError)
    """
    of = STEPS[step]
    wrapped: Callable[..., Awaitable[Any]] = getattr(of.owner, of.name)
    left = times
    is_within = watch(step, {**WITHIN, "answers sent": Step(ReleasePath, "send", "query")})

    async def faulty(*arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        answer = None if step in BEFORE else await wrapped(*arguments, **keywords)
        left -= of.is_of(arguments) and is_within()
        if left == -1:
            left -= 1
            sys.stderr.write(f"{REACHED}: {step} {action}\n")
            sys.stderr.flush()
            if action == "fail":
                raise RedisConnectionError(f"the answer of {step} is lost")
            os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
        return await wrapped(*arguments, **keywords) if step in BEFORE else answer

    setattr(of.owner, of.name, faulty)
