"""`python -m tests.broken_output`: run commands on standard outputs that cannot be written.

Reads pairs of arguments and kind of output as JSON from standard input. Each command runs in a process forked from this
one; the answer is a JSON list of {arguments, kind, code, err}.
"""

import contextlib
import gc
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Final

from hatcast.agents.cli import main

_SECONDS: Final = 60  # after which a command that hangs is killed


def _full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def _closed() -> None:
    """`hatcast ... >&-`: as Python finds it at its start."""
    os.close(1)
    sys.stdout = sys.__stdout__ = None  # type: ignore[misc] # for its type it is never absent


def _left() -> None:
    """`hatcast ... | true`."""
    reads, writes = os.pipe()
    os.close(reads)
    os.dup2(writes, 1)
    os.close(writes)


KINDS: Final[dict[str, Callable[[], None]]] = {"full": _full, "closed": _closed, "left": _left}


def _run(arguments: list[str], kind: str) -> dict[str, Any]:
    with tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            signal.alarm(_SECONDS)
            os.dup2(err.fileno(), 2)
            KINDS[kind]()
            sys.argv = ["hatcast", *arguments]
            main()
            sys.exit()
        _, status = os.waitpid(child, 0)
        err.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return {"arguments": arguments, "kind": kind, "code": code, "err": err.read().decode()}


if __name__ == "__main__":
    given = json.load(sys.stdin)
    for each in {
        tuple(arguments): arguments for arguments, _ in given
    }.values():  # load the commands once, not in every child
        sys.argv = ["hatcast", *each]
        silent = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent), contextlib.suppress(SystemExit):
            main()
    gc.freeze()  # else each child takes its time to free what it shares with us
    gc.disable()
    answers = [_run(*each) for each in given]
    json.dump(answers, sys.stdout)
