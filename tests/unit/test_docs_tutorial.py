"""docs/tutorial.md: every command before the live part runs, and prints what the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.topic_rules import output_topics, telemetry_topic
from tests.commands import problem_of, said_in

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
BATCH, _, LIVE = TEXT.partition("\n## 8. Live\n")
_BLOCK = re.compile(r"`?(?P<file>[\w.]*)`?[^`]*\n\n```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
# What the noise or the clock decides. A run at a huge epsilon has no noise to speak of: nothing of it is masked.
_NOISY = (
    (re.compile(r"\d+\.\d km/h +\d+\.\d to \d+\.\d"), "MEAN km/h LOW to HIGH"),
    (re.compile(r"(HIGH +)\d+\.\d km/h"), r"\1ROAD km/h"),
    (re.compile(r'("(?:mean|raw)": )\d+\.\d+'), r"\1NUMBER"),
    (re.compile(r'("interval95": \[)[^\]]*\]'), r"\1NUMBERS]"),
    (re.compile(r'("released_at": ")[^"]*"'), r'\1TIME"'),
)
_FIRST_MEAN = {"released": re.compile(r"released +(\d+\.\d) km/h"), "json": re.compile(r'"mean": (\d+\.\d+)')}


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """The fenced blocks of a page: the file name before it, if any, its language, its text."""
    for found in _BLOCK.finditer(text):
        yield found["file"], found["kind"], found["body"]


def normal(text: str, *, noisy: bool) -> list[str]:
    """The lines of an output, without the widths of its tables, and without what noise decides."""
    for pattern, replacement in _NOISY if noisy else ():
        text = pattern.sub(replacement, text)
    return [" ".join(re.sub("─+", "─", line).split()) for line in text.splitlines() if line.strip()]


def run(script: str, folder: Path) -> str:
    """What a block of shell prints, on a terminal of 100 columns."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "HATCAST_REDIS_URL": "redis://127.0.0.1:1/0",  # nothing answers there
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_batch_step_prints_what_the_page_shows(tmp_path: Path) -> None:
    printed, script, compared, means = "", "", 0, {}
    for file, kind, body in blocks(BATCH):
        if kind == "sh":
            printed, script = run(body, tmp_path), body
            if "tutorial.ledger" in body:  # the first release: as a line of the table, and as a record
                kind_of = "json" if "--json" in body else "released"
                means[kind_of] = f"{float(_FIRST_MEAN[kind_of].findall(printed)[0]):.1f}"
        elif kind == "text":
            noisy = "exact.toml" not in script
            assert normal(printed, noisy=noisy) == normal(body, noisy=noisy), script
            compared += 1
        else:
            assert file, f"the page does not say where to save its {kind}"
            (tmp_path / file).write_text(body)
    assert compared == 7
    assert means["released"] == means["json"]


@pytest.mark.parametrize(
    "shown", ["27.9 km/h   24.7 to 31.1", '"raw": 27.9,', '"interval95": [\n  24.653,\n  31.147\n ],']
)
def test_only_what_noise_decides_is_masked(shown: str) -> None:
    other = re.sub(r"\d+\.\d", "3.5", shown)
    assert normal(shown, noisy=True) == normal(other, noisy=True)
    assert normal(shown, noisy=False) != normal(other, noisy=False)
    assert normal("released 3", noisy=True) != normal("released 2", noisy=True)


def test_every_command_of_the_live_part_exists() -> None:
    commands = [words for _, kind, body in blocks(LIVE) if kind == "sh" for words in said_in(body)]
    assert [words[1] for words in commands] == ["demo", "init", "doctor", "worker", "feed", "tail"]
    assert [problem for words in commands if (problem := problem_of(words)) is not None] == []


def test_the_live_part_shows_log_lines_and_checks_that_the_code_has() -> None:
    code = "".join(path.read_text() for path in (ROOT / "agents").rglob("*.py"))
    shown = "".join(body for _, kind, body in blocks(LIVE) if kind == "text")
    events = re.findall(r'"event": "([^"]+)"', LIVE)
    assert len(events) == 6
    assert [event for event in events if f'"{event}"' not in code] == []
    found = set(
        re.findall(r"(missing: .+|append-only file|noeviction|none yet under|none stored yet)$", shown, re.MULTILINE)
    )
    assert len(found) == 4
    assert [text for text in found if text not in code] == []
    settings = load_settings(ROOT / "hatcast.toml")
    topics = [topic.name for topic in (telemetry_topic(settings), *output_topics(settings, 8))]
    assert re.findall(r"^ topic (\S+) +warning  missing", shown, re.MULTILINE) == topics
