"""The commands of `hatcast`, a file for each, and files that commands share.

A command is imported when it is called, so that `--help` is fast.
A failed write to standard output is one line on standard error and exit code 1. Python's own standard output raises an
OSError like that of any other file, and tries the write again at exit.
"""

import errno
import importlib
import io
import os
import re
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from hatcast.agents.errors.causes import missing_extra
from hatcast.agents.errors.unexpected import install_hooks, last_line, shows_texts, trace_of
from hatcast.stream.errors import HatcastError, similar_name

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from click.shell_completion import CompletionItem

# /dev/null as the file of a closed stream. Open for reading, it fails each write, as the closed stream would.
_IF_CLOSED: Final = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class OutputError(HatcastError):
    """Standard output cannot be written: its disk is full, or it is closed."""


class ReaderLeft(OutputError):
    """The reader of standard output closed the pipe, as in `hatcast tail | head`."""


class _StandardOutput(io.FileIO):
    """Standard output. It raises OutputError once, and discards everything that is written afterwards."""

    def __init__(self) -> None:
        super().__init__(1, "wb", closefd=False)
        self._failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some bytes and return their number. Raises OutputError."""
        if self._failed:  # the error is reported already: the flush at exit must not report it again
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            if isinstance(error, BrokenPipeError):
                raise ReaderLeft("the reader of standard output closed it") from None
            reason = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise OutputError(f"standard output cannot be written ({reason}): the output is not complete") from None


def open_streams() -> None:
    """Open /dev/null for each closed standard stream, and let standard output raise OutputError instead of OSError.

    Otherwise the first file that a command opens, such as a ledger, has the descriptor of the closed stream.
    """
    for descriptor, flags in _IF_CLOSED.items():
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free descriptor: this one
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as above
    if sys.stdout is None or sys.stdout is sys.__stdout__:  # else a test captures it
        before = sys.stdout
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_StandardOutput()),
            encoding="utf-8" if before is None else before.encoding,
            errors="strict" if before is None else before.errors,
            line_buffering=before is not None and before.isatty(),
        )


def check_reader() -> None:
    """Raise ReaderLeft if the reader of standard output has closed it. For commands that wait for their next line."""
    with suppress(io.UnsupportedOperation):  # a test captures it
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            raise ReaderLeft("the reader of standard output closed it")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor, in several writes if necessary. Raises OSError.

    Unbuffered: an error is raised at once, and not again when Python exits.
    """
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def write_output(data: bytes) -> None:
    """Write all of `data` to standard output at once. Raises OutputError."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


# In the order in which a new user needs them, with the line that `hatcast --help` shows.
_PRODUCT: Final[dict[str, str]] = {
    "demo": "Run everything on this machine: a feed, a worker, a live map.",
    "init": "Write and check a first hatcast.toml, after a few questions.",
    "worker": "Fold telemetry and release private means, against your Kafka and Redis.",
    "feed": "Send telemetry: MQTT, GTFS-RT, SIRI, AMQP, a recording or a synthetic city.",
    "device": "Run a device that does not trust the operator, or a fleet of them.",
    "keys": "Make and certify the keys of devices' signed reports.",
    "batch": "Fold and release recordings, in one process without services.",
    "check": "Say what a file has, and what is left out of it. Reads raw data, not private.",
    "tail": "Follow the releases.",
    "display": "Serve a live map and its JSON API.",
    "map": "Write the map of a ledger file as one page, which works offline.",
    "budget": "Show the privacy budget: spent by day, and what a day can lose in words.",
    "statement": "Print what to tell the public: a page, a registry entry, NIST's hazards.",
    "query": "Request the speed limit of a query over days, once a period.",
    "status": "Operator: offsets, watermarks, outcomes, open HATs.",
    "contributions": "Operator: open contributions. Reads raw data, not private.",
    "dump": "Operator: write a topic as lines, for `batch --format kafka`.",
    "republish": "Operator: send the stored releases of a date again, after a topic was lost.",
    "export": "Write releases and estimates to Parquet files, one a date.",
    "cells": "Make a public list of cells, from a timetable, an area or a box.",
    "doctor": "Check brokers, topics, Redis, clocks and configuration.",
    "topics": "Operator: show the topics and their partitions, or add partitions.",
    "acls": "Print the least Kafka and Redis privileges of a role.",
    "completion": "Print shell code that completes commands with the Tab key.",
}
# Research, and what an operator asks before a start: commands of `hatcast.lab`.
LABORATORY: Final[dict[str, str]] = {
    "survey": "Find a resolution and cells in recordings. Reads raw data, not private.",
    "plan": "Choose the keys of a tracker or of running sums, with the errors to expect.",
    "cluster": "Private K-means over recordings, in the central, local or hybrid model.",
    "evaluate": "Compare estimators by simulation; releases nothing.",
    "audit": "Audit a policy: compare the measured epsilon of its releases with the claim.",
}
COMMANDS: Final = _PRODUCT | LABORATORY

_KINDS: Final = re.compile(r"is not a valid (float|integer)(?: range)?\b")


def laboratory(module: str) -> Any:
    """Import a module of `hatcast.lab`. The only way from agents to it, at run time: no contract has an exception."""
    return importlib.import_module(f"hatcast.lab.{module}")


class Commands(click.Group):
    """Command group that imports `cli/NAME.py`, of agents or lab, for the command NAME; each defines `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or None, which click reports as a usage error."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in LABORATORY:
            command: click.Command = laboratory(f"cli.{cmd_name}").command
        else:
            command = importlib.import_module(f"hatcast.agents.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the tables of commands without importing any of them."""
        for title, commands in (("Commands", _PRODUCT), ("Laboratory", LABORATORY)):
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Complete command names without importing the commands: click's own method would import all at each Tab."""
        from click.shell_completion import CompletionItem

        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},  # of all commands
    epilog="Start here:  hatcast demo. The --help of each command has an example.",
)
@click.version_option(package_name="hatcast")
def hatcast() -> None:
    """Continual private means from live bus telemetry."""


def main() -> None:
    """Run the console script. An error is one line on standard error: exit code 1, or 2 for a usage error.

    An unexpected error also is one line, its type and place: see agents/errors/unexpected.py.
    """
    install_hooks()
    open_streams()
    try:
        hatcast.main(prog_name="hatcast", standalone_mode=False)  # also as `python -m hatcast`
        sys.stdout.flush()
    except (ReaderLeft, BrokenPipeError):  # the reader of our output, or of standard error, as in `hatcast tail | head`
        sys.stderr.close()
        sys.exit(1)
    except HatcastError as error:
        print(f"hatcast: {error}", file=sys.stderr)
        sys.exit(1)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as usage:  # a command group without a command
        usage.show()
        sys.exit(usage.exit_code)
    except click.UsageError as error:
        print(usage_line(error), file=sys.stderr)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except Exception as error:
        if shows_texts():
            print("\n".join(trace_of(error)), file=sys.stderr)
        command = next((each for each in sys.argv[1:2] if each in COMMANDS), "this")
        print(f"hatcast: {missing_extra(error, command) or last_line(error)}", file=sys.stderr)
        sys.exit(1)


def usage_line(error: click.UsageError) -> str:
    """Return a usage error as one line that names the --help to read."""
    named = [each for each in sys.argv[1:2] if each in COMMANDS]  # click's parser knows no command
    path = " ".join(["hatcast", *named]) if error.ctx is None else error.ctx.command_path
    message = " ".join(error.format_message().split()).rstrip(".").replace(" Did you mean", ", did you mean")
    message = _KINDS.sub(lambda kind: f"is not {'an integer' if kind[1] == 'integer' else 'a number'}", message)
    command = None if error.ctx is None else error.ctx.command
    options = [] if command is None else [name for each in command.params for name in each.opts]
    takes_config = isinstance(command, click.Group) or "--config" in options
    if takes_config and re.match(r"(Got unexpected extra argument|No such command) .*\.toml\b", message):
        message += ": a configuration is named with --config"
    elif "mean" not in message and (similar := _similar(error, message)) is not None:
        message += f", did you mean {similar}?"
    return f"{path}: {message[:1].lower()}{message[1:]}; see {path} --help"


def _similar(error: click.UsageError, message: str) -> str | None:
    """Return the command, or the choice of an option, that is most similar to the one that does not exist."""
    _, quote, rest = message.partition("'")
    command = None if error.ctx is None else error.ctx.command
    if message.startswith("No such command") and isinstance(command, click.Group):
        return similar_name(rest.partition(quote)[0], COMMANDS if command is hatcast else command.commands)
    option = getattr(error, "param", None)
    if isinstance(option, click.Parameter) and isinstance(option.type, click.Choice):
        given = message.rpartition(": '")[2].partition("' is not one of")[0]
        # Not `map(str, ...)`: the command `map` is a module of this package, and that name is its own here.
        return similar_name(given, [str(each) for each in option.type.choices])
    return None
