"""Bars of progress on standard error, of terminals and of notebooks only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

AddBar = Callable[[str, int | None], Callable[[int], None]]
"""Takes what is done now, and the number of its steps if known; returns a function that takes the further ones."""


class _Done(ProgressColumn):
    """The share that is done, or the number of steps where their total is not known."""

    def render(self, task: Task) -> Text:
        return Text(
            f"{task.completed:,.0f}" if task.total is None else f"{task.percentage:3.0f}%", "progress.percentage"
        )


@contextmanager
def progress_bars(*, one: bool = False, hidden: bool = False) -> Iterator[AddBar]:
    """Yield a function that adds a bar; no output without a terminal or notebook.

    one      whether a bar takes the place of the one before
    hidden   whether there is no output in any case
    """
    console = Console(stderr=True)
    is_shown = (console.is_terminal or console.is_jupyter) and not hidden
    columns = TextColumn("{task.description}"), BarColumn(), _Done(), TimeRemainingColumn()
    shown: list[TaskID] = []
    # Without redirection by rich: what is printed may go to a file.
    with Progress(*columns, console=console, transient=True, disable=not is_shown, redirect_stdout=False) as progress:

        def add_bar(description: str, total: int | None) -> Callable[[int], None]:
            while one and shown:
                progress.remove_task(shown.pop())
            task = progress.add_task(description, total=total)
            shown.append(task)
            return lambda steps: progress.advance(task, steps)

        yield add_bar


@contextmanager
def counters(unit: str = "") -> Iterator[Callable[[str, int], None]]:
    """Yield a function advance(name, number) that adds to the counter of a name; no output without a terminal.

    unit   what is counted
    """
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), TextColumn(f"{{task.completed:,.0f}}{unit}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def advance(name: str, number: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=None)
            progress.advance(tasks[name], number)

        yield advance


def no_bar(_: str, __: int | None) -> Callable[[int], None]:
    """Show nothing."""
    return lambda _: None
