"""What libraries log: not ten times a second. Errors: without their texts. A test's own process: to its own stream."""

import io
import logging

import pytest
import structlog

from hatcast.agents.monitoring.logs import RepeatFilter, configure_logs, redact_errors
from hatcast.stream.errors import HatcastError
from tests.services.logs import logs_as_before


@pytest.fixture
def seldom() -> RepeatFilter:
    return RepeatFilter()


def said(seldom: RepeatFilter, at_s: float, text: str, *values: object, name: str = "aiokafka") -> str | None:
    """What is written; None: nothing."""
    record = logging.LogRecord(name, logging.ERROR, __file__, 1, text, values, None)
    record.created = at_s
    return record.getMessage() if seldom.filter(record) else None


def test_what_is_said_again_and_again_is_written_once_a_minute_with_how_often(seldom: RepeatFilter) -> None:
    written = [said(seldom, 1000 + tenth / 10, "no way to %s", tenth) for tenth in range(1_300)]
    assert {place: text for place, text in enumerate(written) if text is not None} == {
        0: "no way to 0",
        600: "no way to 600 (repeated 599 times since it was last written)",
        1200: "no way to 1200 (repeated 599 times since it was last written)",
    }


def test_what_is_said_for_the_first_time_is_always_written(seldom: RepeatFilter) -> None:
    assert said(seldom, 1000, "no way to %s", 1) == "no way to 1"
    assert said(seldom, 1000, "no answer from %s", 1) == "no answer from 1"
    assert said(seldom, 1000, "no way to %s", 1, name="faust") == "no way to 1"


def test_a_library_whose_texts_never_repeat_fills_no_memory(seldom: RepeatFilter) -> None:
    assert all(said(seldom, 1000, f"no way to {number}") for number in range(5_000))
    assert len(seldom._written) <= 1_000


def test_a_command_in_a_tests_process_leaves_no_closed_stream_to_the_next_test(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched, logs_as_before(), io.StringIO() as of_the_command:
        patched.setattr("sys.stderr", of_the_command)
        configure_logs()
        structlog.get_logger().warning("the command's")
        assert "the command's" in of_the_command.getvalue()
    structlog.get_logger().warning("the next test's")
    logging.getLogger("aiokafka").warning("a library's")
    said = "".join(capsys.readouterr())
    assert "the next test's" in said
    assert "Logging error" not in said


def test_an_error_in_a_log_line_has_its_type_and_our_own_their_text_too() -> None:
    written = redact_errors(
        None,
        "warning",
        {"event": "no", "error": ValueError("PLATE7 at 31.5"), "ours": HatcastError("name another file")},
    )
    assert "PLATE7" not in str(written)
    assert "ValueError" in written["error"]
    assert written["ours"] == "name another file"
