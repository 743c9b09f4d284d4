"""Write the addresses of the repository that publishes into the files of a release, and print the release's notes.

    python -m tools.publish https://host/owner/hatcast https://owner.host/hatcast

The files have `hatcast.invalid` and `docs.hatcast.invalid` in their place, a domain that nobody can have. README.md is
the long description of the package, so its relative links become links to the tag. Changes files: on a checkout that
is thrown away, as in `.github/workflows/release.yml`.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FILES: Final = ("pyproject.toml", "CITATION.cff", "publiccode.yml")
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")


def with_addresses(text: str, source: str, site: str) -> str:
    """Return a file's text with the addresses of repository and documentation."""
    return text.replace("https://docs.hatcast.invalid", site).replace("https://hatcast.invalid", source)


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


def main(source: str, site: str) -> None:
    """Change the files, and print the notes."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    for name in FILES:
        path = ROOT / name
        path.write_text(with_addresses(path.read_text(encoding="utf-8"), source, site), encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(with_absolute_links(readme.read_text(encoding="utf-8"), source, f"v{version}"), encoding="utf-8")
    sys.stdout.write(with_absolute_links(notes, source, f"v{version}"))


if __name__ == "__main__":
    main(*(address.rstrip("/") for address in sys.argv[1:3]))
