"""What the demo shows of queries over days."""

import io

import pytest
from rich.console import Console

from hatcast.agents.demo import texts
from hatcast.agents.demo.rendering import Lines, Screen
from tests.unit.demo_states import WITH_QUERIES, answered, drawn, state


def test_answers_are_lines_and_a_repeated_one_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    shown, view = state(**WITH_QUERIES), Lines()
    assert shown.add_answer(answered())
    assert not shown.add_answer(answered())
    view.answer(answered(), b"", shown)
    view.answer(answered(None), b"", shown)
    of = "demo 2026-10-22 to 2026-10-23 09:00-10:00 8642d9d6fffffff fast"
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        f"{of} 23.4 vehicles/day 22.4 to 25.9 released",
        f"{of} suppressed (missing_days)",
    ]
    assert "queries fast: 1 answer" in list(texts.summary(shown, 1.0))


def test_the_terminal_counts_answers_while_it_runs_and_shows_them_at_the_end() -> None:
    shown, file = state(**WITH_QUERIES), io.StringIO()
    shown.add_answer(answered())
    assert any(line.split() == ["queries", "fast:", "1", "answer"] for line in drawn(shown, 80, 24))
    view = Screen(Console(width=120, height=40, file=file, force_terminal=True, color_system=None))
    with view:
        view.end(shown, 1.0)
    assert "23.4 ± 2.5 vehicles/day" in file.getvalue()


def test_a_query_without_an_answer_says_which_days_it_waits_for() -> None:
    shown = state(**WITH_QUERIES)
    assert list(texts.unanswered(shown)) == ["query fast has no answer: its first period begins on 2026-10-22"]
    shown.watermark_ms = 1_792_700_000_000  # 22 October 2026
    assert list(texts.unanswered(shown)) == [
        "query fast has no answer: its period of 2 days from 2026-10-22 to 2026-10-23 is not over in these readings"
    ]
    shown.add_answer(answered())
    assert list(texts.unanswered(shown)) == []
