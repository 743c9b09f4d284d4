"""`python -m tools.notebook [--check]`: write docs/notebook.md and docs/math.md from their notebooks, or check.

A code cell whose metadata has `figure` and `alt` is followed by that picture, of an earlier run: every run draws new
noise.
"""

import sys
from pathlib import Path
from typing import Any, Final

import msgspec

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGES: Final = (DOCS / "notebook.md", DOCS / "math.md")


class Cell(msgspec.Struct):
    """One cell. source: its lines, with their ends."""

    cell_type: str
    source: list[str]
    metadata: dict[str, Any]
    outputs: list[Any] = []

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "".join(self.source)

    @property
    def is_code(self) -> bool:
        """Whether the cell is executed."""
        return self.cell_type == "code"


class _Notebook(msgspec.Struct):
    cells: list[Cell]


def cells(page: Path) -> list[Cell]:
    """Return the cells of the notebook of a page."""
    return msgspec.json.decode(page.with_suffix(".ipynb").read_bytes(), type=_Notebook).cells


def rendered(page: Path) -> str:
    """Return the page: text as it is, code as blocks, pictures after the code that draws them."""
    return "\n\n".join(map(_block, cells(page))) + "\n"


def _block(cell: Cell) -> str:
    if not cell.is_code:
        return cell.text
    block = f"```python\n{cell.text}\n```"
    if "figure" not in cell.metadata:
        return block
    return f"{block}\n\n![{cell.metadata['alt']}]({cell.metadata['figure']})"


def main() -> None:
    """Write the pages; with `--check` exit 1 if one differs."""
    for page in PAGES:
        if "--check" not in sys.argv[1:]:
            page.write_text(rendered(page))
        elif rendered(page) != page.read_text():
            sys.exit(f"docs/{page.name} and its .ipynb differ: run python -m tools.notebook")


if __name__ == "__main__":
    main()
