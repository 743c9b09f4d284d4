"""Write figures to files, with the same bytes for the same numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hatcast.stream.errors import HatcastError


@contextmanager
def open_figure(path: Path, title: str, size: tuple[float, float], option: str = "--plot") -> Iterator[Figure]:
    """Yield a figure of this size in inches, and write it in the format of the file's suffix. option: for the error.

    Raises HatcastError if it cannot be written.
    """
    with rc_context({"svg.hashsalt": "hatcast", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.suptitle(title, fontsize=9)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise HatcastError(f"{option}: {path} cannot be written ({error}); name a file such as out.svg") from None


@contextmanager
def open_axes(path: Path, title: str) -> Iterator[Axes]:
    """Yield the only axes of a figure, with a legend beside them. Raises HatcastError as `open_figure`."""
    with open_figure(path, title, (7, 4.2)) as figure:
        axes = figure.add_subplot()
        yield axes
        axes.grid(visible=True, which="both", linewidth=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
