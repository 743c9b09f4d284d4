"""Failure log of a loop: what it logs when an operation fails, and when the failure clears."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from structlog.testing import capture_logs

from hatcast.agents.monitoring.declarations import FAILURES
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.redis.stored_values import Damaged, Overflow
from tests.services.data import ROOT


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
    loops = {loop for source in sources for loop in re.findall(r"FailureLog\(\"(\w+)\"\)", source)}
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
