"""A worker that is killed with -9 at the end of a named step of its first release.

    pipeline.worker(wrap=partial(die_after, "committed"))

The product has no switch for that: the steps are wrapped from outside.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.hats import HatPath
from hatcast.agents.release.queries import QueryReleaser
from hatcast.agents.release.tracker import TrackerReleaser

METHODS: Final[dict[str, tuple[type, str]]] = {
    "loaded": (HatPath, "load"),
    "drawn": (HatPath, "draw"),
    "committed": (HatPath, "commit"),
    "sent": (AIOKafkaProducer, "commit_transaction"),  # before it: all is sent, nothing is committed
    "acked": (HatPath, "send"),
    "marked": (HatPath, "mark"),
    "deleted": (HatPath, "delete"),
}

# Of answers to queries over days. What is sent of them goes through the same producers. A delete of theirs does nothing
# as long as another query reads the same days.
ANSWERING: Final[dict[str, tuple[type, str]]] = {
    "answers loaded": (QueryReleaser, "load"),
    "answers drawn": (QueryReleaser, "draw"),
    "answers committed": (QueryReleaser, "commit"),
    "answers acked": (QueryReleaser, "send"),
    "answers marked": (QueryReleaser, "mark"),
    "kept deleted": (RetainedStore, "delete"),
}


# Of a tracker policy. Commit, send and mark are steps of both its slots and its settlements.
TRACKING: Final[dict[str, tuple[type, str]]] = {
    "slot loaded": (TrackerReleaser, "load_hats"),
    "slot drawn": (TrackerReleaser, "draw_queries"),
    "settlement drawn": (TrackerReleaser, "draw_settlement"),
    "state stored": (TrackerReleaser, "store_state"),
    "date deleted": (TrackerReleaser, "delete_date"),
}


# Steps that count only while another one is under way: a start writes the registry in a transaction too.
WITHIN: Final[dict[str, tuple[type, str]]] = {"sent": (HatPath, "send")}


def die_after_answers(step: str) -> None:
    """Wrap the step of an answer to a query over days."""
    _wrap(QueryReleaser, METHODS[step][1], step)


def die_after(step: str) -> None:
    """Wrap the step."""
    owner, name = (METHODS | TRACKING)[step]
    _wrap(owner, name, step)


def _wrap(owner: type, name: str, step: str) -> None:
    wrapped: Callable[..., Awaitable[Any]] = getattr(owner, name)
    is_met = watch(step, WITHIN)

    async def dying(*arguments: Any) -> Any:
        answer = await wrapped(*arguments) if step != "sent" or not is_met() else None
        if is_met():
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, dying)


def watch(step: str, within: Mapping[str, tuple[type, str]]) -> Callable[[], bool]:
    """Wrap what a step has to be within, to tell whether that is under way; always, where it may be anywhere."""
    if step not in within:
        return lambda: True
    owner, name = within[step]
    wrapped: Callable[..., Awaitable[Any]] = getattr(owner, name)
    running = False

    async def watched(*arguments: Any) -> Any:
        nonlocal running
        running = True
        try:
            return await wrapped(*arguments)
        finally:
            running = False

    setattr(owner, name, watched)
    return lambda: running
