"""A command that is printed, by the demo or `init`, has the options of the format that was given."""

from dataclasses import fields

import click
from click.testing import CliRunner

from hatcast.agents.cli.recordings import format_options
from hatcast.stream.readings.formats import Columns, FormatChoice

COLUMNS = Columns(
    {"vehicle": "plate, no"}, "m/s", "%d.%m.%Y %H:%M", "Europe/Berlin", {"kind": "bus"}, "data.bikes", "latin-1", ",", 2
)


def parsed(words: list[str]) -> FormatChoice | None:
    found: list[FormatChoice | None] = []

    @click.command()
    @format_options(of="file")
    def command(feed_format: FormatChoice | None) -> None:
        found.append(feed_format)

    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    return found[0]


def test_a_format_is_printed_as_the_options_that_give_it() -> None:
    assert all(getattr(COLUMNS, each.name) != getattr(Columns(), each.name) for each in fields(Columns))
    for choice in (FormatChoice("jsonl", COLUMNS, "always", header_time=True), FormatChoice("csv", None, "missing")):
        assert parsed(choice.words) == choice
