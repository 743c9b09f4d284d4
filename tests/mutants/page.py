"""Write tests/mutants/README.md from the catalogue: python -m tests.mutants.page [--check]."""

import sys
from collections.abc import Iterator
from typing import Final

from tests.mutants.catalogue import ROOT, Mutant, load_catalogue

PAGE: Final = ROOT / "tests" / "mutants" / "README.md"
_HEAD: Final = """\
# Mutants

*For contributors.*

A *mutant* is hatcast with one place of its code changed so that a promise is broken. Each has a name, and tests that
must fail on it: a test that passes on broken code shows nothing. `scripts/mutants` applies each to a copy of the
repository and runs its tests; it first runs them on the code as it is. The changes are in
[this folder](catalogue.py); `scripts/mutants NAME` runs one mutant or one part, such as `noise`.

There are {number}, and every one has to be caught. Other mutants are made within tests, beside the law that must see
them, such as those of the [storms](../../docs/reliability.md#tests-of-the-promise).
"""


def render_page() -> str:
    """Return the page's text: a table for each part of the catalogue."""
    parts = load_catalogue()
    return _HEAD.format(number=sum(len(part.mutants) for part in parts)) + "".join(
        line for part in parts for line in _section(f"{part.title}: `{part.name}`", part.mutants)
    )


def _section(title: str, mutants: tuple[Mutant, ...]) -> Iterator[str]:
    yield f"\n## {title}\n\n| mutant | promise that it breaks | tests that see it |\n|---|---|---|\n"
    for mutant in mutants:
        tests = ", ".join(f"`{test}`" for test in mutant.tests)
        yield f"| {mutant.name} | {mutant.breaks} | {tests} |\n"


def main() -> None:
    """Write the page; with `--check` exit 1 if it differs."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(render_page())
    elif not PAGE.exists() or PAGE.read_text() != render_page():
        sys.exit("tests/mutants/README.md and tests/mutants/*.toml differ: run python -m tests.mutants.page")


if __name__ == "__main__":
    main()
