"""Failure log of a loop: what it logs when an operation fails, and when the failure clears.
What libraries log: not ten times a second. Errors: without their texts. A test's own process: to its own stream.
"""

import io
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from structlog.testing import capture_logs

from hatcast.agents.monitoring.declarations import FAILURES
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.logs import RepeatFilter, configure_logs, redact_errors
from hatcast.agents.redis.stored_values import Damaged, Overflow
from hatcast.stream.errors import HatcastError
from tests.services.data import ROOT
from tests.services.logs import logs_as_before


def fails(failures: FailureLog, operation: str, error: Exception, partition: int | None = None) -> None:
    """Run an attempt in which an operation fails."""
    with pytest.raises(type(error)), failures.attempt(operation, partition):
        raise error
    failures.failed(error)


def works(failures: FailureLog, operation: str, partition: int | None = None) -> None:
    with failures.attempt(operation, partition):
        pass


def logged(story: Callable[[FailureLog], None], failures: FailureLog | None = None) -> list[dict[str, Any]]:
    with capture_logs() as lines:
        story(failures or FailureLog("release"))
    return [
        {key: value for key, value in line.items() if key not in ("after_s", "log_level")}
        for line in map(dict[str, Any], lines)
    ]


def test_a_failure_is_logged_once_with_operation_service_and_cause() -> None:
    def story(failures: FailureLog) -> None:
        for _ in range(3):
            fails(failures, "commit releases", ResponseError("READONLY 38.5"))
        fails(failures, "publish releases", RedisConnectionError("GJ05"))

    fields = {"event": "operation failed, retrying", "loop": "release", "service": "Redis"}
    readonly = "it is a read-only replica (READONLY): set redis.url to the master"
    gone = "no connection (closed by the server)"
    assert logged(story) == [
        fields | {"operation": "commit releases", "cause": readonly, "error": "ResponseError"},
        fields | {"operation": "publish releases", "cause": gone, "error": "ConnectionError"},
    ]


def test_a_failure_that_lasts_is_logged_again_every_minute_with_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("hatcast.agents.monitoring.failures.monotonic_s", lambda: now_s)

    def story(failures: FailureLog) -> None:
        nonlocal now_s
        for _ in range(50):  # 0 to 245 s
            fails(failures, "recover the ledger", RedisConnectionError("GJ05"))
            now_s += 5.0

    lines = logged(story)
    assert len({line["cause"] for line in lines}) == 1
    durations = [(line.get("since_s"), line.get("tries")) for line in lines]
    assert durations == [(None, None), (60.0, 13), (120.0, 25), (180.0, 37), (240.0, 49)]


def test_the_innermost_name_of_an_operation_counts_and_an_error_that_is_raised_again_gets_its_new_one() -> None:
    error = RedisConnectionError("again")

    def story(failures: FailureLog) -> None:
        with pytest.raises(RedisError), failures.attempt("answer queries"):
            fails(failures, "load contributions", error)
            raise ResponseError("READONLY") from None
        fails(failures, "mark releases as published", error)
        failures.failed(RedisConnectionError("MASTERDOWN"))

    assert logged(story)[0]["operation"] == "load contributions"
    failures = FailureLog("release")
    failures.failed(error)  # its name was taken off
    assert failures.failed_partitions("load contributions") == set()


def ends(failures: FailureLog) -> list[dict[str, Any]]:
    """Partitions 1 to 3 fail; 1 is written again here, 2 and 3 are not, and neither is what another loop's step is."""

    def story(failures: FailureLog) -> None:
        for partition in (3, 1, 2):
            fails(failures, "write a checkpoint", RedisConnectionError(), partition)
        fails(failures, "read the stored offsets", RedisConnectionError())
        works(failures, "write a checkpoint", 1)
        works(failures, "read the stored offsets")
        assert failures.failed_partitions("write a checkpoint") == {2, 3}
        failures.clear()
        failures.clear()

    return logged(story, failures)[1:]


TRUE_ENDS = [
    {"event": "retry succeeded", "loop": "ingest", "operation": "write a checkpoint", "tries": 4, "partitions": [1]},
    {"event": "retry succeeded", "loop": "ingest", "operation": "read the stored offsets", "tries": 4},
    {"event": "retry not needed", "loop": "ingest", "operation": "write a checkpoint", "tries": 4}
    | {"partitions": [2, 3]},
]


def test_an_operation_that_succeeded_here_is_logged_as_that_and_any_other_as_not_needed() -> None:
    assert ends(FailureLog("ingest")) == TRUE_ENDS


def test_a_failure_log_that_claims_success_for_all_that_failed_is_seen() -> None:
    class Boasting(FailureLog):
        def clear(self) -> None:
            self._operations = dict.fromkeys(self._operations, True)
            super().clear()

    assert ends(Boasting("ingest")) != TRUE_ENDS


def test_every_loop_with_a_failure_log_is_a_declared_label_of_the_counter() -> None:
    sources = (path.read_text() for path in (ROOT / "agents").rglob("*.py"))
    loops = {loop for source in sources for loop in re.findall(r"\b(?:FailureLog|repeat)\(\s*\"(\w+)\"", source)}
    assert loops == set(FAILURES.labels[0].values)


def test_a_round_that_could_not_retry_does_not_clear_a_failure() -> None:
    def story(failures: FailureLog) -> None:
        fails(failures, "commit releases", RedisConnectionError())
        failures.skip_next_clear()
        failures.clear()
        assert failures.wait_s > 0
        works(failures, "commit releases")
        failures.clear()
        assert failures.wait_s == 0

    assert [line["event"] for line in logged(story)] == ["operation failed, retrying", "retry succeeded"]


@pytest.mark.parametrize("error", [Damaged("{t}:ledger:2022-01-02"), Overflow("{t}:total")])
def test_a_script_that_wrote_nothing_is_logged_once_with_its_key_and_what_to_do(error: Damaged | Overflow) -> None:
    def story(failures: FailureLog) -> None:
        failures.failed(error)
        failures.failed(error)

    assert [(line["service"], line["cause"]) for line in logged(story)] == [("Redis", str(error))]
    assert "nothing was written" in str(error)


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
