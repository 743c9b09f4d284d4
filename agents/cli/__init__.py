"""`hatcast`: one command a file. A command is loaded when it is named, so that `--help` is quick."""

import importlib
import sys
from typing import Final

import click

from stream.errors import Refusal

# In the order of a newcomer's day, with the line that `hatcast --help` shows.
COMMANDS: Final[dict[str, str]] = {
    "demo": "All of it on this machine: a feed, a worker, a live map.",
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
        command: click.Command = importlib.import_module(f"agents.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without loading any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here:  hatcast demo. Each command's --help has an example.",
)
@click.version_option(package_name="hatcast")
def hatcast() -> None:
    """Continual private means from live bus telemetry."""


def main() -> None:
    """The console script. A refusal is one line on standard error and exit 1."""
    try:
        hatcast.main(standalone_mode=False)
    except Refusal as refusal:
        print(f"hatcast: {refusal}", file=sys.stderr)
        sys.exit(1)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output left, as in `hatcast tail | head`
        sys.stderr.close()
        sys.exit(1)
