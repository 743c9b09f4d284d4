"""A device that is killed with -9 at the end of a named step, when it has been there so many times.

    Forked(["device", ...], out, err, partial(die_after, "committed", 2))

The product has no switch for that: the steps are wrapped from outside.
"""

import os
import signal
from collections.abc import Callable
from typing import Any, Final

from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.store import DeviceStore

METHODS: Final[dict[str, tuple[type, str]]] = {
    "drawn": (DeviceStore, "commit"),  # before it
    "committed": (DeviceStore, "commit"),
    "sent": (Outbox, "send"),  # the broker has them, and the state file does not know it
}


def die_after(step: str, times: int) -> None:
    """Wrap the step."""
    owner, name = METHODS[step]
    wrapped: Callable[..., Any] = getattr(owner, name)
    left = times

    def dying(self: Any, *arguments: Any) -> Any:
        nonlocal left
        left -= not arguments or bool(list(arguments[0]))  # of sends, only those that send something
        if left:
            return wrapped(self, *arguments)
        if step != "drawn":
            wrapped(self, *arguments)
        if step == "sent":
            self._producer.flush(30.0)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(owner, name, dying)
