"""Print the notes of the version that is tagged, and make README.md the long description of its package.

    python -m tools.publish

Its relative links become links to the tag: on a checkout that is thrown away, as in `.github/workflows/release.yml`.
Refuses a version without a date, and a repository that has not written its own addresses in place of `hatcast.invalid`
and `docs.hatcast.invalid`, a domain that nobody can have: citations and catalogues read them from the tag.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FILES: Final = ("pyproject.toml", "CITATION.cff", "publiccode.yml")  # with addresses
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")


def with_absolute_links(markdown: str, source: str, tag: str) -> str:
    """Return a page of the repository's root with links to its files at a tag: images raw, all else as pages."""

    def absolute(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        kind = "raw" if image else "blob"
        return f"{image}[{text}]({source}/{kind}/{tag}/{target})"

    return _LINK.sub(absolute, markdown)


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a version in CHANGELOG.md. Raises SystemExit if it is missing or has no date."""
    found = re.search(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if found is None:
        sys.exit(f"CHANGELOG.md: no section '## {version} (YYYY-MM-DD)': write the date of the release there")
    return found[2].strip() + "\n"


def source_of(texts: Mapping[str, str]) -> str:
    """Return the address of the repository, from its files with addresses. Raises SystemExit if one has none yet."""
    for name, text in texts.items():
        if "hatcast.invalid" in re.sub(r"#.*", "", text):
            sys.exit(f"{name}: write the repository's and the documentation's address in place of hatcast.invalid")
    source: str = tomllib.loads(texts["pyproject.toml"])["project"]["urls"]["Source"]
    return source.rstrip("/")


def main() -> None:
    """Change README.md, and print the notes."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in FILES}
    source, version = source_of(texts), tomllib.loads(texts["pyproject.toml"])["project"]["version"]
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    readme = ROOT / "README.md"
    readme.write_text(with_absolute_links(readme.read_text(encoding="utf-8"), source, f"v{version}"), encoding="utf-8")
    sys.stdout.write(with_absolute_links(notes, source, f"v{version}"))


if __name__ == "__main__":
    main()
