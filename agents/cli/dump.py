"""`hatcast dump`: write a topic as lines, for `batch --format kafka`."""

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hatcast.agents.cli import write_all, write_output
from hatcast.agents.cli.options import config_option
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.dump import TopicDump, open_dump
from hatcast.stream.errors import HatcastError

GZIP_LEVEL: Final = 3  # on telemetry a third larger than level 6, in a third of the time


@click.command(epilog="Example:  hatcast dump telemetry --output telemetry.jsonl.gz")
@click.argument("topic")
@config_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file, compressed if it ends in .gz.  [default: standard output]",
)
def command(topic: str, config: Path, output: Path | None) -> None:
    """Print a topic as lines for `batch --format kafka`: from its first record to the current end.

    TOPIC is telemetry, reports, means, queries, budget, estimates, running, clusters, cluster_answers or dead_letters,
    as named under [topics], or any other topic.
    The first line has the topic, its partitions and their start offsets; the other lines are records, with key and
    value in base64. Reads raw data, not private.
    """
    settings = load_settings(config)
    name, public = _resolve(settings, topic)
    if not public:
        click.echo("reads raw data, not private", err=True)
    with open_dump(settings, name) as dump, _open_sink(output) as write, _progress(dump) as advance:
        for lines, records in dump.chunks():
            write(lines)
            advance(records)


def _resolve(settings: Settings, topic: str) -> tuple[str, bool]:
    """Return the topic's name, and whether its records are public."""
    topics = settings.topics
    roles = {
        "telemetry": topics.telemetry,
        "means": topics.means,
        "queries": topics.queries,
        "budget": topics.budget,
        "estimates": topics.estimates,
        "running": topics.running,
        "dead_letters": topics.dead_letters,
        "reports": topics.reports,
        "clusters": topics.clusters,
        "cluster_answers": topics.cluster_answers,
    }
    name = roles.get(topic, topic)
    records = topics.means, topics.queries, topics.budget, topics.estimates, topics.running, topics.clusters
    public = *records, topics.dead_letters
    return name, name in public


@contextmanager
def _open_sink(output: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that writes all bytes to the output. A file gets its name when it is complete.

    Raises HatcastError if a write fails.
    """
    if output is None:
        yield write_output
        return
    try:
        if output.exists() and not output.is_file():
            with output.open("wb", buffering=0) as device:
                yield lambda data: write_all(device.fileno(), data)
        else:
            with _complete_or_absent(output) as file:
                yield lambda data: _write(file, data)
    except OSError as error:
        raise HatcastError(
            f"{output} cannot be written ({error.strerror or error}): the dump is not complete"
        ) from None


@contextmanager
def _complete_or_absent(output: Path) -> Iterator[BinaryIO]:
    part = output.with_name(output.name + ".part")
    try:
        with part.open("wb") as plain:
            if output.suffix == ".gz":
                # No file name and no time in the header: equal logs give equal files.
                with gzip.GzipFile("", "wb", GZIP_LEVEL, plain, mtime=0) as compressed:
                    yield cast("BinaryIO", compressed)
            else:
                yield plain
            plain.flush()
            os.fsync(plain.fileno())
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


@contextmanager
def _progress(dump: TopicDump) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar; no output without a terminal."""
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
