"""`hatcast dump`: write a topic as lines, for `batch --format kafka`."""

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

import click

from hatcast.agents.cli import write_all, write_output
from hatcast.agents.cli.options import PATH, config_option
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.dump import open_dump
from hatcast.agents.progress import progress_bars
from hatcast.stream.errors import HatcastError

_PUBLIC: Final = ("means", "queries", "budget", "estimates", "running", "clusters", "dead_letters")
_RAW: Final = ("telemetry", "reports", "cluster_answers")
GZIP_LEVEL: Final = 3  # on telemetry a third larger than level 6, in a third of the time


@click.command(epilog="Example:  hatcast dump telemetry --output telemetry.jsonl.gz")
@click.argument("topic")
@config_option
@click.option(
    "--output", type=PATH, help="Write to this file, compressed if it ends in .gz.  [default: standard output]"
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
    with open_dump(settings, name) as dump, _open_sink(output) as write, progress_bars() as add_bar:
        advance = add_bar(name, dump.records)
        for lines, records in dump.chunks():
            write(lines)
            advance(records)


def _resolve(settings: Settings, topic: str) -> tuple[str, bool]:
    """Return the topic's name, and whether its records are public."""
    name = getattr(settings.topics, topic) if topic in (*_PUBLIC, *_RAW) else topic
    return name, name in {getattr(settings.topics, each) for each in _PUBLIC}


@contextmanager
def _open_sink(output: Path | None) -> Iterator[Callable[[bytes], object]]:
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
                yield file.write
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
