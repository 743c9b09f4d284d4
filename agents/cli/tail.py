"""`hatcast tail`: follow the releases."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import click
from rich.console import Console

from hatcast.agents.cli import check_reader, write_output
from hatcast.agents.cli.options import config_option, json_option, stop_on_signals
from hatcast.agents.cli.report import output_option, places_of, report_written, written
from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.client import translate_kafka_errors
from hatcast.agents.kafka.partition_reader import is_end, open_consumer, value_of_domain
from hatcast.agents.kafka.topics import topic_range
from hatcast.agents.tables.terminal import read_shown, record_line
from hatcast.stream.policy.policy import Policy

POLL_SECONDS: Final = 0.5


def follow(
    settings: Settings,
    topics: Sequence[str],
    stopping: Callable[[], bool],
    *,
    from_beginning: bool,
    seconds: float | None,
) -> Iterator[bytes]:
    """Yield the values of records, from the log start or the end, until `stopping` or for so many seconds.

    Only committed records of this domain, in offset order within each partition. Waits for a broker that becomes
    unreachable.
    Raises HatcastError if the broker is unreachable at the start, or one of the topics does not exist.
    """
    from confluent_kafka import TopicPartition

    starts = [
        TopicPartition(name, partition, first if from_beginning else end)
        for name in topics
        for partition, (first, end) in enumerate(topic_range(settings, name))
    ]
    deadline_s = None if seconds is None else monotonic_s() + seconds
    # The group is that of `export`, which readers may describe; none is joined.
    with (
        translate_kafka_errors(settings),
        open_consumer(settings, "export", {"enable.partition.eof": False}) as consumer,
    ):
        consumer.assign(starts)
        while not stopping() and (deadline_s is None or monotonic_s() < deadline_s):
            wait_s = POLL_SECONDS if deadline_s is None else min(POLL_SECONDS, deadline_s - monotonic_s())
            message = consumer.poll(max(0.0, wait_s))
            if message is None or is_end(message):
                continue
            value = value_of_domain(message, settings.topics.telemetry)
            if value is not None:
                yield value


@click.command(epilog="Example:  hatcast tail --from-beginning --json --for 10 > releases.jsonl")
@config_option
@json_option
@click.option("--releases", is_flag=True, help="The releases: means and answers to queries.")
@click.option("--means", is_flag=True, help="The means: hats.means.")
@click.option("--queries", is_flag=True, help="The answers to queries over days: hats.queries.")
@click.option("--estimates", is_flag=True, help="The estimates of all cells: hats.estimates.")
@click.option("--running", is_flag=True, help="The running means: hats.running.")
@click.option("--policy", metavar="NAME", help="Only the records of this policy.")
@click.option("--from-beginning", is_flag=True, help="Also show earlier releases.")
@click.option("--for", "seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after this many seconds.")
@click.option("--max", "most", type=click.IntRange(min=1), help="Stop after this many releases.")
@output_option("the records", of_records=True)
def command(**given: Any) -> None:
    """Show new estimates, or the releases that they are made of, until Ctrl-C or SIGTERM.

    Estimates are what a tracker is read by. Of any other policy the releases are shown: means and answers to queries.
    Each line begins with the record's policy: the topics have those of all policies. With --json each line is the
    original record; a record with "query" is the answer to a query. A release may appear twice, with the same
    release_id and the same bytes.

    With -o the records are written to a file and not printed. JSON lines and CSV grow line by line; a Parquet or
    GeoJSON file gets its name at the end. Records of several topics share a file of JSON lines, or of Parquet, whose
    first column is `table`; else answers go to FILE.answers.csv, running means to FILE.running.csv.
    """
    settings = load_settings(given["config"])
    chosen = chosen_topics(given, settings.policy)
    topics = [getattr(settings.topics, name) for name in chosen]
    # The Kafka client may swallow a KeyboardInterrupt: an event stops the loop reliably.
    with stop_on_signals() as stopping, _open_output(settings, given, chosen) as write:

        def is_stopping() -> bool:
            if given["output"] is None:
                check_reader()
            return stopping.is_set()

        records = follow(
            settings, topics, is_stopping, from_beginning=given["from_beginning"], seconds=given["seconds"]
        )
        if (policy := given["policy"]) is not None:
            records = (each for each in records if (read := read_shown(each)) is not None and read.policy == policy)
        for value in islice(records, given["most"]):
            write(value)


@contextmanager
def _open_output(settings: Settings, given: dict[str, Any], chosen: list[str]) -> Iterator[Callable[[bytes], object]]:
    """Yield the function that writes a record: to the file, or to standard output as JSON or as a line of text."""
    output = given["output"]
    if output is None:
        if given["as_json"]:
            yield lambda value: write_output(value + b"\n")
            return
        console = Console(highlight=False, soft_wrap=True)
        if console.is_terminal:
            console.print(heading(settings.policy, chosen), style="dim")
        yield lambda value: console.print(record_line(read_shown(value)))
        return
    from hatcast.agents.tables.files import FilesOf, open_growing_file
    from hatcast.agents.tables.records import TABLES

    tables = [TABLES[name] for name in chosen]
    with FilesOf(output, tables, written(places_of(settings, output)), open_growing_file) as files:
        yield files.write
    report_written(files.rows, files.left_out)


_MEANINGS: Final = {
    "means": "means with their noise, and 95 % of it",
    "queries": "answers to queries over days, and 95 % of their noise",
    "estimates": "the mean of all readings of the hour and its 95 % interval, the road beside it",
    "running": "running means and their 95 % intervals",
}


def heading(policy: Policy, chosen: Sequence[str]) -> str:
    """Return the heading of the lines: policy, quantity and kinds of numbers. chosen: keys of their topics."""
    named = [name for name in chosen if name != "queries" or policy.queries or chosen == ["queries"]]
    return f"{policy.name}, {policy.quantity}: {'; '.join(_MEANINGS[name] for name in named)}"


def chosen_topics(given: Mapping[str, Any], policy: Policy) -> list[str]:
    """Return the keys of the topics that the options name; without one, those that readers of the policy use."""
    named = (
        ("means", given["means"] or given["releases"]),
        ("queries", given["queries"] or given["releases"]),
        ("estimates", given["estimates"]),
        ("running", given["running"]),
    )
    chosen = [name for name, is_named in named if is_named]
    return chosen or (["estimates"] if policy.method.settles_days else ["means", "queries"])
