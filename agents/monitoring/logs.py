"""Structured logs on standard error: one JSON object a line, or coloured lines on a terminal.

No line holds a vehicle, a reading, a pseudonym, a count of users or a mean: logs are for operators, and travel far. So
no line holds the text of an error that is not ours, whoever logs it: `redact_errors` and `ErrorTextFilter` see all lines.
"""

import logging
import sys
from typing import Any, Final

import structlog

from hatcast.agents.errors.unexpected import WARNING, ErrorTextFilter, brief, kind_of, place_of, shows_texts, trace_of
from hatcast.stream.errors import HatcastError

_AGAIN_S: Final = 60.0
_TEXTS: Final = 1_000  # kept at most: a library may write what changes into the text itself


class RepeatFilter(logging.Filter):
    """Of what a library says again and again, once a minute, with how often it was said meanwhile.

    aiokafka says several things ten times a second for as long as a broker is away.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], float] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it. Texts count as the same before what changes is put into them."""
        text = (record.name, str(record.msg))
        if record.created - self._said.get(text, -_AGAIN_S) < _AGAIN_S:
            self._left_out[text] = self._left_out.get(text, 0) + 1
            return False
        if len(self._said) >= _TEXTS:
            self._said.clear()
            self._left_out.clear()
        self._said[text] = record.created
        left_out = self._left_out.pop(text, 0)
        if left_out:
            record.msg = f"{record.msg} (and {left_out} times since this was last written)"
        return True


def redact_errors(_logger: Any, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Replace errors in an event by their types and places: a processor of structlog."""
    error = _error_of(event.pop("exc_info", None))
    event.pop("stack_info", None)
    for key, value in event.items():
        if isinstance(value, BaseException):
            event[key] = str(value) if isinstance(value, HatcastError) else brief(value)
    if error is not None:
        event["error"], event["at"], event["trace"] = kind_of(error), place_of(error), trace_of(error)
    return event


def _error_of(given: object) -> BaseException | None:
    if isinstance(given, BaseException):
        return given
    if isinstance(given, tuple):
        return given[1] if isinstance(given[1], BaseException) else None
    return sys.exception() if given else None


def configure_logs(level: str = "info") -> None:
    """Set up structlog, and send what libraries log (warnings and worse) the same way."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact_errors,
    ]
    terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    )
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(least),
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
    # kafka-python looks at topics only, and what it has to say is in the refusals: one line, not one for each try.
    logging.getLogger("kafka").propagate = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    if shows_texts():
        structlog.get_logger().warning(WARNING)
