"""Progress bars on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int | None], Callable[[int], None]]]:
    """Yield a function (description, total) -> advance(steps) that adds a bar; no output without a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:

        def add_bar(description: str, total: int | None) -> Callable[[int], None]:
            task = progress.add_task(description, total=total)
            return lambda steps: progress.advance(task, steps)

        yield add_bar
