"""How far a command is, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int | None], Callable[[int], None]]]:
    """A bar a part, where that is a terminal. Yields: what, how much -> what is told of each part."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:

        def of(what: str, total: int | None) -> Callable[[int], None]:
            task = bar.add_task(what, total=total)
            return lambda done: bar.advance(task, done)

        yield of
