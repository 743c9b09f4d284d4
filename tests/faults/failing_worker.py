"""A worker whose every named step fails, before it is done and after, as Redis fails and as Kafka fails.

    pipeline.worker(wrap=fail_at_every_step)

The product has no switch for that: the steps are wrapped from outside.
"""

import sys
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any, Final

from aiokafka.errors import KafkaConnectionError
from redis.exceptions import ConnectionError as RedisConnectionError

import hatcast.agents.monitoring.failures
import hatcast.agents.release.loop
from tests.integration.crashing_worker import ANSWERING, STEPS_OF_HATS, WITHIN, watch

ERRORS: Final[dict[str, type[Exception]]] = {"Redis": RedisConnectionError, "Kafka": KafkaConnectionError}
STEPS: Final = STEPS_OF_HATS | ANSWERING
FAILURES: Final = list(product(("before", "after"), ERRORS))
_ROUND_S: Final = 0.05  # there are some fifty rounds to fail


def told(step: str, moment: str, server: str) -> str:
    """The line of the log that tells of a failure."""
    return f"failed: {step}, {moment}, {server}\n"


def fail_at_every_step() -> None:
    """Let the first calls of each step fail, once in each way."""
    hatcast.agents.release.loop.ROUND_S = _ROUND_S  # type: ignore[misc]  # it is final for the product
    hatcast.agents.monitoring.failures._BACK_OFF_S = (_ROUND_S,)  # type: ignore[misc,assignment]  # as above
    for step in STEPS:
        _fail_at(step)


def _fail_at(step: str) -> None:
    of = STEPS[step]
    wrapped: Callable[..., Awaitable[Any]] = getattr(of.owner, of.name)
    left = list(FAILURES)
    is_met = watch(step, WITHIN)

    async def failing(*arguments: Any) -> Any:
        if not left or not of.is_of(arguments) or not is_met():
            return await wrapped(*arguments)
        moment, server = failure = left[0]
        if moment == "after":
            answer = await wrapped(*arguments)  # a step inside of it may fail first
            if failure not in left:  # it has become that of another release partition, whose step ran at the same time
                return answer
        left.remove(failure)
        sys.stderr.write(told(step, moment, server))
        sys.stderr.flush()
        raise ERRORS[server](f"{moment} {step}")

    setattr(of.owner, of.name, failing)
