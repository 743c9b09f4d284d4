"""Options that several commands share, progress bars, and the signals that end a command."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import click

from hatcast.agents.config.settings import DEFAULT_FILE
from hatcast.agents.config.tables import Address, parse_address
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.readings.vehicles import canonical_vehicle

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")
PATH: Final = click.Path(path_type=Path)
FILE: Final = click.Path(path_type=Path, dir_okay=False)
EXISTING_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)


def combined(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return a decorator that adds these options, in this order."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def parsed(parse: Callable[[str], T], problem: str) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """Return the callback of an option that is read from a text; where `parse` raises ValueError, say the problem."""

    def callback(_: click.Context, __: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except ValueError:
            raise click.BadParameter(problem) from None

    return callback


@contextmanager
def stop_on_signals(seconds: float | None = None) -> Iterator[threading.Event]:
    """Yield an event for a clean stop: Ctrl-C or SIGTERM sets it, or the end of this time.

    A second signal raises KeyboardInterrupt.
    """
    stop = threading.Event()
    timer = None if seconds is None else threading.Timer(seconds, stop.set)
    if timer is not None:
        timer.daemon = True
        timer.start()

    def handle(_: int, __: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        if timer is not None:
            timer.cancel()
        for number, handler in previous.items():
            signal.signal(number, handler)


class FiniteNumber(click.ParamType):
    """Number without "nan" and "inf"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a text. Fails as every click type."""
        number: float = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail("write a finite number", param, ctx)
        return number


class FiniteRange(click.FloatRange):
    """Range of numbers without "nan" and "inf": click accepts "nan" in every range, as no comparison rejects it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a text. Fails as every click type."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail("write a finite number", param, ctx)
        return number


config_option = click.option("--config", type=PATH, default=DEFAULT_FILE, help="The configuration file.")
optional_config_option = click.option(
    "--config",
    type=PATH,
    help=f"Configuration of the policy.  [default: {DEFAULT_FILE}, if it exists, else a general policy]",
)


def found_config(given: Path | None) -> Path | None:
    """Return --config, or the file that all commands read without it; None if there is none. Say which policy it is."""
    default = Path(DEFAULT_FILE)
    found = given or (default if default.exists() else None)
    if given is None:
        name = f"a general one, without {DEFAULT_FILE} and --config" if found is None else f"that of {found}"
        click.echo(f"policy: {name}", err=True)
    return found


_PLOT_SUFFIXES: Final = (".svg", ".png", ".pdf")


def _check_plot_file(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    # Checked before the computation, which may take hours.
    if path is not None and path.suffix not in _PLOT_SUFFIXES:
        raise click.BadParameter(f"name a file that ends in {', '.join(_PLOT_SUFFIXES)}")
    return path


plot_option = click.option(
    "--plot",
    "plot_file",
    type=FILE,
    callback=_check_plot_file,
    help="Also write a plot: out.svg, out.png or out.pdf. Needs hatcast[research].",
)
map_option = click.option(
    "--map",
    "map_file",
    type=FILE,
    callback=_check_plot_file,
    help="Also draw a map of the cells: map.svg, map.png or map.pdf. It loads nothing, so it has no streets. Needs"
    " hatcast[research].",
)
log_level_option = click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
accept_gap_option = click.option(
    "--accept-gap",
    is_flag=True,
    help="Continue after telemetry was deleted unread; unreleased HATs of those days are published as incomplete.",
)
accept_volatile_state_option = click.option(
    "--accept-volatile-state",
    is_flag=True,
    help="Start on a Redis that evicts keys or does not persist: for trials, where state may be lost.",
)


def address_of(option: str) -> Callable[[click.Context, click.Parameter, str | None], Address | None]:
    """Return the callback of an option that is an address to listen on."""

    def parse(_: click.Context, __: click.Parameter, text: str | None) -> Address | None:
        try:
            return None if text is None else parse_address(text, option)
        except SettingError as error:
            raise click.BadParameter(str(error)) from None

    return parse


METRICS_LISTEN: Final = "--metrics-listen"
metrics_listen_option = click.option(
    METRICS_LISTEN,
    callback=address_of(METRICS_LISTEN),
    metavar="ADDRESS",
    help="For operators: serve /metrics, /livez and /readyz at this address, such as 127.0.0.1:9465.",
)


def vehicles_of(_: click.Context, __: click.Parameter, path: Path | None) -> frozenset[str] | None:
    """Callback of an option that names a file of vehicles: return their canonical ids."""
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read ({type(error).__name__}): name a text file") from None
    vehicles = [canonical_vehicle(line) for line in lines if line.strip()]
    if not vehicles or None in vehicles:
        raise click.BadParameter(f"{path} is not a list of vehicles: write one id per line")
    return frozenset(vehicle for vehicle in vehicles if vehicle is not None)


except_option = click.option(
    "--except-vehicles",
    "left_out",
    type=PATH,
    callback=vehicles_of,
    help="Leave out the vehicles in this file, one id per line: those of `hatcast device --vehicles-file`.",
)


def local_date(text: str) -> date:
    """Parse a date that has neighbours in every time zone. Raises ValueError."""
    found = date.fromisoformat(text)
    if not date(2, 1, 1) <= found <= date(9998, 12, 31):
        raise ValueError
    return found


def _two_days(text: str) -> tuple[date, date]:
    first, last = map(local_date, text.split(","))
    if first > last:
        raise ValueError
    return first, last


days_of: Final = parsed(_two_days, 'write two dates, such as "2022-01-02,2022-01-31"')
"""Callback of an option `FIRST,LAST`: returns two local dates, both inclusive."""


def epsilons_of(option: str, text: str, example: str) -> list[float]:
    """Return the epsilons of a list such as `0.5,1,2`, each once. Raises HatcastError, which names the option."""
    try:
        epsilons = list(dict.fromkeys(float(each) for each in text.split(",")))
    except ValueError:
        epsilons = []
    if not epsilons or not all(1e-3 <= each <= 1e3 for each in epsilons):
        raise HatcastError(
            f"{option}: {text!r} is not a list of epsilons; write numbers from 0.001 to 1000, such as {example}"
        )
    return epsilons
