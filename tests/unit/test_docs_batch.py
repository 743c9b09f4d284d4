"""docs/batch.md: every command runs, and prints what the page shows, but for the noise and the date."""

import re
from pathlib import Path

from tests.unit.test_docs_tutorial import blocks, normal, run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "batch.md").read_text()
_TODAY = re.compile(r"^today, [\d-]+", re.MULTILINE)


def shown(text: str) -> list[str]:
    return normal(_TODAY.sub("today", text), noisy=True)


def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    printed, script, compared = "", "", 0
    for file, kind, body in blocks(PAGE):
        if kind == "sh":
            printed, script = run(body, tmp_path), body
        elif kind == "text":
            assert shown(printed) == shown(body), script
            compared += 1
        else:
            (tmp_path / file).write_text(body)
    assert compared == 7
