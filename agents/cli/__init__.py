"""`hatcast`: one command a file. A command is loaded when it is named, so that `--help` is quick."""

import difflib
import importlib
import sys
from typing import Final

import click
from click.shell_completion import CompletionItem

from hatcast.agents.errors.extras import missing_extra
from hatcast.agents.errors.unexpected import install_hooks, last_line, shows_texts, trace_of
from hatcast.stream.errors import HatcastError

# In the order of a newcomer's day, with the line that `hatcast --help` shows.
COMMANDS: Final[dict[str, str]] = {
    "demo": "All of it on this machine: a feed, a worker, a live map.",
    "init": "Write a first hatcast.toml, after a few questions, and check it.",
    "worker": "Fold telemetry and release private means, against your Kafka and Redis.",
    "feed": "Send telemetry: MQTT, GTFS-RT, AMQP, a recording or a synthetic city.",
    "device": "A device that does not trust the operator, or a fleet of them.",
    "batch": "The same fold over files, in one process without services.",
    "tail": "Follow the releases.",
    "display": "A live map in the browser, and its JSON API.",
    "budget": "What has been spent, by day.",
    "status": "Operator: offsets, clocks, outcomes, open HATs.",
    "contributions": "Operator: open contributions. Reads raw data, not private.",
    "dump": "Operator: a topic as lines, for `batch --format kafka`.",
    "survey": "Which resolution, which cells? Over recordings. Reads raw data, not private.",
    "cluster": "Private K-means over recordings, in the central, local or hybrid model.",
    "evaluate": "Compare estimators by simulation; releases nothing.",
    "doctor": "Check brokers, topics, Redis, clocks and configuration.",
    "completion": "Shell code that completes commands with the Tab key.",
}


class Commands(click.Group):
    """Loads `agents/cli/NAME.py` for the command NAME; each has a click command called `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None if there is none, which click reports as wrong usage."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"hatcast.agents.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without loading any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What begins so, without loading any command; click's own would load all of them at each Tab."""
        commands = [CompletionItem(name, help=said) for name, said in COMMANDS.items() if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here:  hatcast demo. Each command's --help has an example.",
)
@click.version_option(package_name="hatcast")
def hatcast() -> None:
    """Continual private means from live bus telemetry."""


def main() -> None:
    """The console script. A refusal is one line on standard error and exit 1, wrong usage one and exit 2.

    So is an error that nobody foresaw: its type and its place, see agents/errors/unexpected.py.
    """
    install_hooks()
    try:
        hatcast.main(prog_name="hatcast", standalone_mode=False)  # also as `python -m hatcast.agents.cli`
    except HatcastError as refusal:
        print(f"hatcast: {refusal}", file=sys.stderr)
        sys.exit(1)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as asked:  # a group that was named without a command
        asked.show()
        sys.exit(asked.exit_code)
    except click.UsageError as wrong:
        print(usage_line(wrong), file=sys.stderr)
        sys.exit(wrong.exit_code)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output left, as in `hatcast tail | head`
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        if shows_texts():
            print("\n".join(trace_of(error)), file=sys.stderr)
        print(f"hatcast: {missing_extra(error) or last_line(error)}", file=sys.stderr)
        sys.exit(1)


def usage_line(wrong: click.UsageError) -> str:
    """What is wrong, and where it says what is right: one line."""
    path = "hatcast" if wrong.ctx is None else wrong.ctx.command_path
    said = " ".join(wrong.format_message().split()).rstrip(".")
    if wrong.ctx is not None and wrong.ctx.command is hatcast and said.startswith("No such command"):
        near = difflib.get_close_matches(said.split("'")[1], COMMANDS, n=1)
        said += f", did you mean {near[0]}?" if near and "mean" not in said else ""
    return f"{path}: {said[:1].lower()}{said[1:]}; see {path} --help"
