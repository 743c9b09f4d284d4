"""scripts/docs: the documentation as a site, also in an environment that was made without it."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.unit.test_citations import page_of
from tools.site_links import PAGES

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


def test_each_old_address_leads_to_a_heading_that_is_there() -> None:
    redirects = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["extra"]["redirects"]
    sources = {name: source for source, name in PAGES.items()}
    assert len(redirects) > 60
    for old, new in redirects.items():
        page, _, heading = new.partition("#")
        found = page_of(ROOT / "docs" / sources.get(page, page))
        assert not heading or heading in found.anchors, f"{old}: {new}"
