"""scripts/docs: the documentation as a site, also in an environment that was made without it."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_documentation_is_built_by_the_command_that_the_readme_names(tmp_path: Path) -> None:
    assert "`scripts/docs`" in (ROOT / "README.md").read_text()
    folder = tmp_path / "site"
    done = subprocess.run(
        ["scripts/docs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "VIRTUAL_ENV": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Private means from a file" in (folder / "batch" / "index.html").read_text()
    moved = folder / "decisions" / "0022-tests-run-side-by-side" / "index.html"
    target = re.search(r'href="(.+)#"', moved.read_text())
    assert target is not None
    assert (moved.parent / target[1] / "index.html").exists()
