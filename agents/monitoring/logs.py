"""Structured logs on standard error: one JSON object a line, or coloured lines on a terminal.

No line contains a vehicle, a reading, a pseudonym, a count of users or a mean: logs are for operators and are copied
to many places. Therefore no line contains the text of a foreign error either, not even one that a library logs:
`redact_errors` and `ErrorTextFilter` process all lines.
"""

import logging
import sys
from typing import Any, Final

import structlog

from hatcast.agents.errors.unexpected import WARNING, ErrorTextFilter, brief, kind_of, place_of, shows_texts, trace_of
from hatcast.stream.errors import HatcastError

_REPEAT_S: Final = 60.0
_TEXTS_MAX: Final = 1_000  # remembered texts: a library may format changing values into the text itself


class RepeatFilter(logging.Filter):
    """Pass a repeated log text once a minute, with the number of suppressed repetitions.

    aiokafka logs some texts ten times a second while a broker is unreachable.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, str], float] = {}
        self._suppressed: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record. Texts are compared before their values are formatted in."""
        text = (record.name, str(record.msg))
        if record.created - self._written.get(text, -_REPEAT_S) < _REPEAT_S:
            self._suppressed[text] = self._suppressed.get(text, 0) + 1
            return False
        if len(self._written) >= _TEXTS_MAX:
            self._written.clear()
            self._suppressed.clear()
        self._written[text] = record.created
        suppressed = self._suppressed.pop(text, 0)
        if suppressed:
            record.msg = f"{record.msg} (repeated {suppressed} times since it was last written)"
        return True


def redact_errors(_logger: Any, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Replace errors in an event by their types and places; a structlog processor."""
    error = _error_of(event.pop("exc_info", None))
    event.pop("stack_info", None)
    for key, value in event.items():
        if isinstance(value, BaseException):
            event[key] = str(value) if isinstance(value, HatcastError) else brief(value)
    if error is not None:
        event["error"], event["at"], event["trace"] = kind_of(error), place_of(error), trace_of(error)
    return event


def _error_of(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1] if isinstance(exc_info[1], BaseException) else None
    return sys.exception() if exc_info else None


def configure_logs(level: str = "info") -> None:
    """Configure structlog, and format the warnings and errors of libraries in the same way."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact_errors,
    ]
    terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    )
    minimum = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(minimum),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(ErrorTextFilter())
    handler.addFilter(RepeatFilter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    if shows_texts():
        structlog.get_logger().warning(WARNING)
