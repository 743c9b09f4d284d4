"""Unexpected errors: print the type and the place, never the text.

The text of an error that is not ours may contain a record: a value that could not be parsed, a command that Redis
rejected, a missing key. So nothing prints it: not Python itself (`install_hooks`), not the libraries' loggers
(`ErrorTextFilter`), not our own logs (agents/monitoring/logs.py), not a command's last line (`last_line`). With
HATCAST_DEBUG_ERRORS=1 all of them do.
"""

import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from hatcast.agents.errors.causes import HATCAST, cause_of, network_text
from hatcast.stream.errors import HatcastError

DEBUG_VARIABLE: Final = "HATCAST_DEBUG_ERRORS"
WARNING: Final = f"{DEBUG_VARIABLE} is set: the text of unexpected errors is printed, and it may contain a record"

_ROOT: Final = Path(__file__).parents[3]  # the folder of package hatcast
_OURS: Final = f"{_ROOT / 'hatcast'}{os.sep}"
_CAUSES: Final = 10  # of an error, printed at most
_NAME: Final = re.compile(r"[\w.:/@\[\]-]{0,120}")
_FRAMES: Final = 16  # between a handler and the call that logs, at most
# First lines of asyncio's reports. The other lines print tasks, with the text of their errors.
_ASYNCIO: Final = (
    "Task exception was never retrieved",
    "Future exception was never retrieved",
    "Task was destroyed but it is pending!",
    "Exception in callback",
    "Unhandled exception in event loop",
)


def shows_texts() -> bool:
    """Return whether HATCAST_DEBUG_ERRORS=1 allows the text of unexpected errors."""
    return os.environ.get(DEBUG_VARIABLE) == "1"


def kind_of(error: BaseException) -> str:
    """Return the error's type; for a group also the types of its errors."""
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name}({', '.join(map(kind_of, error.exceptions))})"
    return name


def place_of(error: BaseException) -> str:
    """Return `file:line` of the innermost frame in hatcast; if there is none, of the innermost frame."""
    frames = _frames(error)
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    return _place((ours or frames)[-1]) if frames else "an unknown place"


def brief(error: BaseException) -> str:
    """Return `TYPE at FILE:LINE`, followed by the text if HATCAST_DEBUG_ERRORS=1."""
    text = f"{kind_of(error)} at {place_of(error)}"
    if shows_texts():
        return f"{text}: {' '.join(str(error).split())}"
    system = network_text(error)
    return text if system is None else f"{text} ({system})"


def trace_of(error: BaseException) -> list[str]:
    """Return the error and its causes, outermost frame first, as places; with texts if HATCAST_DEBUG_ERRORS=1."""
    if shows_texts():
        return "".join(traceback.format_exception(error)).splitlines()
    lines: list[str] = []
    for each in _chain(error):
        lines += [f"{_place(frame)} in {frame.name}" for frame in _frames(each)]
        lines.append(kind_of(each))
    return lines


def last_line(error: BaseException) -> str:
    """Return the line that a command prints before it ends with an unexpected error."""
    hint = "" if shows_texts() else f" ({DEBUG_VARIABLE}=1 adds its text, which may contain a record)"
    return f"unexpected {brief(error)}: this is a bug in hatcast, please report this line{hint}"


def install_hooks() -> None:
    """Install hooks that keep errors' texts out of Python's own output and out of unconfigured loggers."""

    def in_thread(hooked: threading.ExceptHookArgs) -> None:
        if not issubclass(hooked.exc_type, SystemExit):
            _print("a thread ended:", hooked.exc_type, hooked.exc_value)

    sys.excepthook = lambda kind, error, _: _print("unexpected", kind, error)
    threading.excepthook = in_thread
    sys.unraisablehook = lambda hooked: _print("ignored:", hooked.exc_type, hooked.exc_value)
    logging.raiseExceptions = False  # a line that cannot be formatted would be printed with its arguments
    last_resort = logging.lastResort
    if last_resort is not None and not any(isinstance(each, ErrorTextFilter) for each in last_resort.filters):
        last_resort.addFilter(ErrorTextFilter())


class ErrorTextFilter(logging.Filter):
    """Logging filter that removes errors' texts from records of the standard library's loggers.

    A message passes if it is a literal in the code that logs it: a composed message may contain an error's text. Of its
    arguments, those pass that cannot contain one. HATCAST_DEBUG_ERRORS=1 turns the filter off.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place, and return True."""
        if shows_texts():
            return True
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(record.args, Mapping):
            record.args = {key: _safe(value) for key, value in record.args.items()}
        else:
            record.args = tuple(map(_safe, record.args or ()))
        if not isinstance(record.msg, str) or not _is_literal(record.msg) or not _fits(record):
            record.msg, record.args = _first_line(record), ()
        record.exc_info, record.exc_text, record.stack_info = None, None, None
        if error is not None:
            trace = f" [{'; '.join(trace_of(error))}]"
            record.msg += trace.replace("%", "%%") if record.args else trace
        return True


def _first_line(record: logging.LogRecord) -> str:
    """Return a safe replacement for a message that may contain an error's text."""
    if record.name == "asyncio":
        for text in _ASYNCIO:
            if str(record.msg).startswith(text):
                return text
    return f"a message of {record.name}, line {record.lineno}, was left out"


def _fits(record: logging.LogRecord) -> bool:
    try:
        record.getMessage()
    except (TypeError, ValueError, KeyError):
        return False
    return True


def _safe(value: object) -> object:
    """Return the part of a log record's argument that may be printed."""
    match value:
        case BaseException():
            return _text_of(value)
        case None | bool() | int() | float():
            return value
        case str():  # a name or an address passes; a sentence, quotes and parentheses do not
            return value if _NAME.fullmatch(value) else "str"
        case list() | tuple() | set() | frozenset():
            return [_safe(each) for each in value]
        case type():
            return value.__name__
        case _:
            return type(value).__name__


def _text_of(error: BaseException) -> str:
    if isinstance(error, HatcastError):
        return str(error)
    cause = cause_of(error)
    return brief(error) if cause.service == HATCAST else f"{kind_of(error)}, {cause.text}"


def _is_literal(text: str) -> bool:
    """Return whether a message is a literal in the code that logs it, apart from the prefix of the mode library."""
    bare = text.partition("]: ")[2] if text.startswith("[^") else text
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to the code that logs
    for _ in range(_FRAMES):
        if frame is None:
            return False
        literals = (each for each in frame.f_code.co_consts if isinstance(each, str))
        if frame.f_code.co_filename != __file__ and any(each in (text, bare) for each in literals):
            return True
        frame = frame.f_back
    return False


def _print(what: str, kind: type[BaseException], error: BaseException | None) -> None:
    text = kind.__name__ if error is None else brief(error)
    lines = [f"hatcast: {what} {text}"]
    if error is not None and shows_texts():
        lines += trace_of(error)
    sys.stderr.write("\n".join(lines) + "\n")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of an error, then the error, in traceback order."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found and len(found) < _CAUSES:
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    yield from reversed(found)


def _frames(error: BaseException) -> traceback.StackSummary:
    walked: Any = traceback.walk_tb(error.__traceback__)
    return traceback.StackSummary.extract(walked, lookup_lines=False)


def _place(frame: traceback.FrameSummary) -> str:
    """Return `file:line`, without the folder in which Python or hatcast is installed."""
    path = frame.filename
    if path.startswith(_OURS):
        return f"{Path(path).relative_to(_ROOT)}:{frame.lineno}"
    path = path.replace(os.sep, "/")
    for folder in ("/site-packages/", "/lib/"):
        _, found, below = path.rpartition(folder)
        if found:
            return f"{below}:{frame.lineno}"
    return f"{Path(path).name}:{frame.lineno}"
