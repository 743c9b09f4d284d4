"""`hatcast batch --ledger` on a dump that does not begin with its topic: the rule of a worker's first start."""

from pathlib import Path

from tests.batching import batch, config, dump_of, releases, telemetry
from tests.folding import HOUR, MINUTE, NOON

__all__ = ["config"]  # the fixture

DAY = 24 * HOUR
OVER = 30 * HOUR


def statuses(path: Path, config: Path, ledger: Path) -> dict[str, set[str]]:
    """Date -> the statuses of its releases."""
    found: dict[str, set[str]] = {}
    for each in releases(batch(path, "--format", "kafka", "--config", config, "--ledger", ledger, "--json")):
        found.setdefault(each["date"], set()).add(each["status"])
    return found


def test_days_that_begin_before_the_first_record_of_a_cut_partition_are_incomplete(
    tmp_path: Path, config: Path
) -> None:
    logs = telemetry(2, NOON, NOON + DAY)
    for log in logs:
        log.append((NOON + DAY + OVER, b""))
    whole = dump_of(tmp_path / "whole", logs)
    assert statuses(whole, config, tmp_path / "1") == {"2022-01-02": {"released"}, "2022-01-03": {"released"}}
    cut = dump_of(tmp_path / "cut", logs, [0, 7])
    assert statuses(cut, config, tmp_path / "2") == {"2022-01-02": {"incomplete"}, "2022-01-03": {"released"}}


def test_a_day_that_begins_within_max_ahead_of_the_first_record_is_incomplete_too(tmp_path: Path, config: Path) -> None:
    midnight = NOON + 12 * HOUR
    for first, status in ((midnight - 2 * MINUTE, "released"), (midnight - 2 * MINUTE + 1, "incomplete")):
        logs = telemetry(1, midnight + HOUR)
        logs[0] = [(first, b""), *logs[0], (midnight + OVER, b"")]
        path, ledger = dump_of(tmp_path / status, logs, [1]), tmp_path / f"{status}.ledger"
        assert statuses(path, config, ledger) == {"2022-01-03": {status}}


def test_a_run_over_the_whole_log_keeps_what_was_called_incomplete_before(tmp_path: Path, config: Path) -> None:
    logs = telemetry(1, NOON)
    logs[0].append((NOON + OVER, b""))
    ledger = tmp_path / "ledger"
    assert statuses(dump_of(tmp_path / "cut", logs, [1]), config, ledger) == {"2022-01-02": {"incomplete"}}
    assert statuses(dump_of(tmp_path / "whole", logs), config, ledger) == {"2022-01-02": {"incomplete"}}
