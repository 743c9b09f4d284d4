"""Commands that the demo names at its end; each works when pasted into a shell."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hatcast.agents.demo.state import Origin
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Columns


def next_steps(origin: Origin, policy: Policy) -> Iterator[str]:
    """Yield the next commands, each on its own line below a line with its purpose."""
    program = own_program()
    yield "next"
    if origin.files:
        # A policy that takes reports needs them in a file: the command has a policy of readings alone instead.
        config = None if policy.takes_reports else origin.config
        yield "  private means of these files, in a ledger that never charges a mean twice:"
        yield f"    {_batch(program, origin, config, policy.timezone)}"
    if policy.takes_reports:
        yield "  a device of your own:"
        yield f"    {program} device --help"
    if not origin.files:
        yield "  recordings of your own:"
        yield f"    {program} demo --help"
    yield "  a pipeline with your own Kafka and Redis:"
    yield f"    {program} init"


def own_program() -> str:
    """Return the command that runs this program again: `hatcast`, or its path if PATH has another one or none."""
    own = Path(sys.argv[0])
    if own.suffix == ".py":  # python -m hatcast
        return f"{shlex.quote(sys.executable)} -m hatcast"
    found = shutil.which(own.name)
    if found is not None and Path(found).resolve() == own.resolve():
        return own.name
    return shlex.quote(os.path.abspath(own))  # noqa: PTH100 - resolve() would follow links out of an environment


def _batch(program: str, origin: Origin, config: Path | None, timezone: str) -> str:
    """Return a command that releases the recordings privately into a new ledger file.

    config   None: it also writes a configuration
    """
    name = _free_name()
    files = " ".join(shlex.quote(str(file)) for file in origin.files)
    prepare = ""
    if config is None:
        config = Path(f"{name}.toml")
        prepare = f"{program} init --yes --timezone {timezone} --hours 0,24 --config {config} && "
    return (
        f"{prepare}{program} batch {files} {_format_options(origin)} --config {shlex.quote(str(config))}"
        f" --ledger {name}.ledger"
    )


_DERIVE: Final[Mapping[str | None, tuple[str, ...]]] = MappingProxyType(
    {None: (), "missing": ("--derive-speed",), "always": ("--derive-speed-always",)}
)


def _format_options(origin: Origin) -> str:
    """Return the options of the recordings' format, as they were given."""
    choice = origin.format
    if choice is None:
        return ""
    columns = choice.columns or Columns()
    given = {
        "--columns": columns.text(),
        "--unit": columns.unit,
        "--time-format": columns.time_format,
        "--times-in": columns.times_in,
    }
    return shlex.join(
        [
            "--format",
            choice.name,
            *_DERIVE[choice.derive],
            *(word for option, text in given.items() if text for word in (option, text)),
        ]
    )


def _free_name() -> str:
    """Return a name for which neither a configuration nor a ledger exists in this folder."""
    names = (f"demo{number}" if number > 1 else "demo" for number in count(1))
    return next(name for name in names if not any(Path(f"{name}.{kind}").exists() for kind in ("toml", "ledger")))
