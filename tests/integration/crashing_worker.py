"""A worker that is killed with -9 at the end of a named step of its first release.

    pipeline.worker(wrap=partial(die_after, "committed"))

The product has no switch for that: the steps are wrapped from outside.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer

from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.path import ReleasePath
from hatcast.agents.release.tracker import TrackedHats


class Step(NamedTuple):
    """A named step, a method. kind: of release, if the method is that of every path."""

    owner: type
    name: str
    kind: str = ""

    def is_of(self, arguments: Sequence[Any]) -> bool:
        """Whether a call with these arguments is that of the kind."""
        return not self.kind or arguments[0].kind.name == self.kind


def _of_path(kind: str, steps: Mapping[str, str]) -> dict[str, Step]:
    return {step: Step(ReleasePath, name, kind) for step, name in steps.items()}


_UNTIL_SENT: Final = {"loaded": "load", "drawn": "draw", "committed": "commit"}
_AFTER: Final = {"acked": "send", "marked": "mark"}
STEPS_OF_HATS: Final[dict[str, Step]] = {  # in the order in which a release meets them
    **_of_path("hat", _UNTIL_SENT),
    "sent": Step(AIOKafkaProducer, "commit_transaction"),  # before it: all is sent, nothing is committed
    **_of_path("hat", _AFTER | {"deleted": "delete"}),
}

# Of answers to queries over days. What is sent of them goes through the same producers. A delete of theirs does nothing
# as long as another query reads the same days.
ANSWERING: Final[dict[str, Step]] = {
    **{f"answers {step}": of for step, of in _of_path("query", _UNTIL_SENT | _AFTER).items()},
    "kept deleted": Step(RetainedStore, "delete"),
}


# Of a tracker policy. Commit, send and mark are steps of both its slots and its settlements.
TRACKING: Final[dict[str, Step]] = {
    "slot drawn": Step(TrackedHats, "draw_slot"),
    "settlement drawn": Step(TrackedHats, "draw_settlement"),
    "state stored": Step(TrackedHats, "store_state"),
    "date deleted": Step(TrackedHats, "delete_date"),
}


# Steps that count only while another one is under way: a start writes the registry in a transaction too.
WITHIN: Final[dict[str, Step]] = {"sent": Step(ReleasePath, "send", "hat")}


def die_after_answers(step: str) -> None:
    """Wrap the step of an answer to a query over days."""
    _wrap(Step(ReleasePath, STEPS_OF_HATS[step].name, "query"), step)


def die_after(step: str) -> None:
    """Wrap the step."""
    _wrap((STEPS_OF_HATS | TRACKING)[step], step)


def _wrap(of: Step, step: str) -> None:
    wrapped: Callable[..., Awaitable[Any]] = getattr(of.owner, of.name)
    is_met = watch(step, WITHIN)

    async def dying(*arguments: Any) -> Any:
        answer = await wrapped(*arguments) if step != "sent" or not is_met() else None
        if of.is_of(arguments) and is_met():
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(of.owner, of.name, dying)


def watch(step: str, within: Mapping[str, Step]) -> Callable[[], bool]:
    """Wrap what a step has to be within, to tell whether that is under way; always, where it may be anywhere."""
    if step not in within:
        return lambda: True
    of = within[step]
    wrapped: Callable[..., Awaitable[Any]] = getattr(of.owner, of.name)
    running = False

    async def watched(*arguments: Any) -> Any:
        nonlocal running
        if not of.is_of(arguments):
            return await wrapped(*arguments)
        running = True
        try:
            return await wrapped(*arguments)
        finally:
            running = False

    setattr(of.owner, of.name, watched)
    return lambda: running
