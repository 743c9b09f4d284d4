"""One line on a terminal while a command waits for a service that does not answer."""

import sys
from typing import Final

NOTICE_S: Final = 1.5
"""A service that starts, or a connection that is lost for a moment, is no news before that."""


class Waiting:
    """The wait for a service. Elsewhere than on a terminal, logs and the error that ends the wait are all there is.

    name        of the service, with its address and without a password
    patience_s  how long the wait lasts at most
    start_s     its first moment, on the clock of `tried`
    """

    def __init__(self, name: str, patience_s: float, start_s: float) -> None:
        self._line = f"hatcast: waiting for {name} (up to {patience_s:g} s)"
        self._from_s: float | None = start_s + NOTICE_S if patience_s > 2 * NOTICE_S else None

    def tried(self, now_s: float) -> None:
        """Say once that the wait goes on. Call it after each attempt that failed, before the next one."""
        if self._from_s is None or now_s < self._from_s:
            return
        self._from_s = None
        if sys.stderr.isatty():
            sys.stderr.write(f"{self._line}\n")
            sys.stderr.flush()
