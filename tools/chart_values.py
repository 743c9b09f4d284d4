"""`python -m tools.chart_values [--check]`: write the chart's table of values in docs/kubernetes.md, or check it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
VALUES: Final = ROOT / "ops" / "helm" / "hatcast" / "values.yaml"
PAGE: Final = ROOT / "docs" / "kubernetes.md"
BEGIN: Final = "<!-- values, written by python -m tools.chart_values -->"
END: Final = "<!-- end -->"


def rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and meaning of each value: the comment right above its key is its meaning."""
    path: list[tuple[int, str]] = []  # indentation and key of the tables around the line
    meaning: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            meaning.append(bare.removeprefix("#").strip())
            continue
        depth = len(line) - len(line.lstrip())
        if bare and not bare.startswith("-"):
            key, _, default = bare.partition(":")
            path = [(at, name) for at, name in path if at < depth] + [(depth, key)]
            if meaning:
                yield ".".join(name for _, name in path), default.strip(), " ".join(meaning)
        meaning = []


def table(text: str) -> str:
    """Return the table. A value whose default is a table of its own shows that as JSON."""
    found = ["| value | default | meaning |", "|---|---|---|"]
    values = yaml.safe_load(text)
    for name, default, meaning in rows(text):
        shown = default or json.dumps(_at(values, name))
        found.append(f"| `{name}` | `{shown}` | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(found)


def _at(values: object, name: str) -> object:
    for key in name.split("."):
        values = values[key] if isinstance(values, dict) else None
    return values


def page(text: str, values: str) -> str:
    """Return the page with the table of these values."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/kubernetes.md has no place for the table: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{table(values)}\n\n{END}{after}"


def main() -> None:
    """Write the page; with `--check` exit 1 if it differs."""
    current = PAGE.read_text()
    wanted = page(current, VALUES.read_text())
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted)
    elif current != wanted:
        sys.exit("docs/kubernetes.md and ops/helm/hatcast/values.yaml differ: run python -m tools.chart_values")


if __name__ == "__main__":
    main()
