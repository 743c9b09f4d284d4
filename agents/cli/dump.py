"""`hatcast dump`: a topic as lines, for `batch --format kafka`."""

import gzip
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hatcast.agents.cli.options import config_option
from hatcast.agents.cli.output import write_all
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.dump import Dump, open_dump
from hatcast.stream.errors import HatcastError

GZIP_LEVEL: Final = 3  # on telemetry a third larger than level 6, in a third of the time


@click.command(epilog="Example:  hatcast dump telemetry --output telemetry.jsonl.gz")
@click.argument("topic")
@config_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file, packed if it ends in .gz.  [default: standard output]",
)
def command(topic: str, config: Path, output: Path | None) -> None:
    """Print a topic as lines for `batch --format kafka`: from the log's start to its end at this moment.

    TOPIC is telemetry, reports, means, queries, budget or dead_letters, as named under [topics], or any other topic.
    The first line tells the topic, its partitions and the offsets where they start; the others are records, with key
    and value in base64. Reads raw data, not private.
    """
    settings = load_settings(config)
    name, public = _resolve(settings, topic)
    if not public:
        click.echo("reads raw data, not private", err=True)
    with open_dump(settings, name) as dump, _sink(output) as sink, _progress(dump) as advance:
        for lines, records in dump.chunks():
            sink(lines)
            advance(records)


def _resolve(settings: Settings, topic: str) -> tuple[str, bool]:
    """The topic's name, and whether what it holds is published anyway."""
    topics = settings.topics
    roles = {
        "telemetry": topics.telemetry,
        "means": topics.means,
        "queries": topics.queries,
        "budget": topics.budget,
        "dead_letters": topics.dead_letters,
        "reports": topics.reports,
    }
    name = roles.get(topic, topic)
    return name, name in (topics.means, topics.queries, topics.budget, topics.dead_letters)


@contextmanager
def _sink(output: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Takes bytes and keeps them, or fails. A file has its name only once it is complete.

    Raises HatcastError: nothing may be lost without a word. BrokenPipeError passes, as the reader chose to leave.
    """
    where = "standard output" if output is None else str(output)
    try:
        if output is None:
            # Past Python's buffer: what is in there is tried again at exit, after the error was told.
            yield lambda data: write_all(sys.stdout.fileno(), data)
        elif output.exists() and not output.is_file():
            with output.open("wb", buffering=0) as device:
                yield lambda data: write_all(device.fileno(), data)
        else:
            with _complete_or_absent(output) as file:
                yield lambda data: _all(file, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise HatcastError(f"{where} cannot be written ({error.strerror or error}): the dump is not complete") from None


@contextmanager
def _complete_or_absent(output: Path) -> Iterator[BinaryIO]:
    part = output.with_name(output.name + ".part")
    try:
        with part.open("wb") as plain:
            if output.suffix == ".gz":
                # No name and no time inside: equal logs give equal files.
                with gzip.GzipFile("", "wb", GZIP_LEVEL, plain, mtime=0) as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield plain
            plain.flush()
            os.fsync(plain.fileno())
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


@contextmanager
def _progress(dump: Dump) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        task = progress.add_task(dump.head.topic, total=dump.records)
        yield lambda records: progress.update(task, advance=records)
