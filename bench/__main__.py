"""Run a benchmark: `python -m bench NAME [options]`."""

import sys
from importlib import import_module
from typing import Final

import click

from tests.services import ServiceAbsent

NAMES: Final = (
    "ingest",
    "peers",
    "release",
    "ledger",
    "soak",
    "scale",
    "start",
    "fold",
    "feeds",
    "estimators",
    "tracker",
    "alarms",
    "opendp_means",
    "continual",
    "chooser",
    "survey",
    "device",
    "display",
)


def main() -> int:
    """Run one benchmark and return the exit code. 0: within all limits, 1: a limit is missed, 2: wrong usage."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        print(f"usage: scripts/bench {{{'|'.join(NAMES)}}} [--json] [--help]", file=sys.stderr)
        return 2
    command = import_module(f"bench.{name}").command
    try:
        return int(command.main(sys.argv[2:], prog_name=f"scripts/bench {name}", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ServiceAbsent as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
