"""A worker that is killed with -9 at the end of a named step of its first release.

    pipeline.worker(wrap=partial(die_after, "committed"))

The product has no switch for that: the steps are wrapped from outside.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from agents.query_release import QueryReleaser
from agents.release import Releaser

METHODS: Final[dict[str, tuple[type, str]]] = {
    "loaded": (Releaser, "load"),
    "drawn": (Releaser, "draw"),
    "committed": (Releaser, "commit"),
    "sent": (AIOKafkaProducer, "commit_transaction"),  # before it: all is sent, nothing is committed
    "acked": (Releaser, "send"),
    "marked": (Releaser, "mark"),
    "deleted": (Releaser, "delete"),
}

# Of answers to queries over days. What is sent of them goes through the same producers.
ANSWERING: Final[dict[str, tuple[type, str]]] = {
    "answers loaded": (QueryReleaser, "load"),
    "answers drawn": (QueryReleaser, "draw"),
    "answers committed": (QueryReleaser, "commit"),
    "answers acked": (QueryReleaser, "send"),
    "answers marked": (QueryReleaser, "mark"),
    "kept deleted": (QueryReleaser, "delete"),
}


def die_after_answers(step: str) -> None:
    """Wrap the step of an answer to a query over days."""
    _wrap(QueryReleaser, METHODS[step][1], step)


def die_after(step: str) -> None:
    """Wrap the step."""
    owner, name = METHODS[step]
    _wrap(owner, name, step)


def _wrap(owner: type, name: str, step: str) -> None:
    wrapped: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def dying(*arguments: Any) -> Any:
        if step != "sent":
            await wrapped(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dying)
