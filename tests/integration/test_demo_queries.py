"""A demo of a policy with queries over days: it shows their answers, and ends."""

from pathlib import Path

from tests.integration.demonstrating import (
    EDGE,
    OF_ANSWER,
    edge_config,
    finished,
    releases,
)
from tests.invoked import printed

QUERIES = [
    {"name": "fast", "kind": "over_speed_limit", "speed_limit": 50.0, "days": 1, "epsilon": 0.1},
    {
        "name": "usual",
        "kind": "mean_speed",
        "min_n": 5,
        "days": 2,
        "from": "2024-10-26",
        "epsilon": 0.1,
        "missing_days": "leave_out",
    },
    {"name": "month", "kind": "mean_speed", "min_n": 5, "days": 30, "from": "2024-10-26", "epsilon": 0.1},
]


def test_a_recording_with_queries_over_days_ends_and_shows_every_answer_that_batch_gives(
    tmp_path: Path, temporary: Path
) -> None:
    config = edge_config(tmp_path, {"query": QUERIES})
    given = ("--format", "jsonl", "--config", config)
    code, out, err = finished(temporary, "--feed", EDGE, *given, "--speedup", 0, "--json")
    assert (code, err) == (0, b"")
    found = [record for record in releases(out) if "query" in record]
    for record in found:
        OF_ANSWER.validate(record)
    of_batch = releases(printed("batch", EDGE, *given, "--ledger", tmp_path / "ledger", "--json").encode())
    expected = {record["release_id"]: record["user_days"] for record in of_batch if "query" in record}
    assert {record["query"] for record in found} == {"fast", "usual"}
    assert len(found) == len(expected)
    assert {record["release_id"]: record["user_days"] for record in found} == expected


def test_answers_are_in_the_text_and_a_period_that_is_not_over_is_named(tmp_path: Path, temporary: Path) -> None:
    config = edge_config(tmp_path, {"query": QUERIES})
    code, out, err = finished(temporary, "--feed", EDGE, "--format", "jsonl", "--config", config, "--speedup", 0)
    assert (code, err) == (0, b"")
    lines = out.decode("ascii").splitlines()
    assert any("  usual  " in line and "  released" in line and " 2024-10-26 to 2024-10-27 " in line for line in lines)
    assert any(line.startswith("queries fast: ") and line.endswith("month: 0 answers") for line in lines)
    waits = "query month has no answer: its period of 30 days from 2024-10-26 to 2024-11-24 is not over"
    assert any(line.startswith(waits) for line in lines)
