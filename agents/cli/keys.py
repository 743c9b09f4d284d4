"""`hatcast keys`: keys and certificates of signed reports."""

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from hatcast.agents.cli.options import FILE
from hatcast.agents.errors.causes import require
from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from hatcast.agents.device.stored import IsCertified

_REQUEST: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9a-f]{64})")
_CERTIFICATE: Final = re.compile(rf"{_REQUEST.pattern} ([0-9a-f]{{128}})")
_LINES: Final = click.File("r", encoding="utf-8", lazy=False)


@click.group(epilog="Example:  hatcast keys request --state device.db --from 2026-12-01 --days 90")
def command() -> None:
    """Make and certify the keys of signed reports: an authority once, day keys of devices for weeks or months.

    A device requests certificates for random keys, one a day; whoever looks after the fleet puts the requests of all
    devices together and sorts them; the operator signs them, and the devices install what concerns them. So the
    operator learns how many devices there are, and not which keys are of one device.
    """
    require("nacl", "keys")


@command.command(
    short_help="Make the key of an authority.", epilog="Example:  hatcast keys authority authority.key >> report-keys"
)
@click.argument("file", type=FILE)
def authority(file: Path) -> None:
    """Print the line of an authority for `worker.report_keys_file`; create its secret key FILE if there is none.

    Whoever has FILE can certify devices. Workers do not need it: keep it elsewhere.
    """
    from hatcast.stream.hybrid.signatures import public_key

    try:
        seed = _authority_of(file) if file.exists() else _new_authority(file)
    except OSError as error:
        raise HatcastError(f"{file} cannot be written ({error.strerror}); name another file") from None
    click.echo(f"authority {public_key(seed).hex()}")


@command.command(
    short_help="Request certificates for day keys.",
    epilog="Example:  hatcast keys request --state device.db --from 2026-12-01 --days 90 > request",
)
@click.option("--state", type=FILE, required=True, help="State file of the device, which may not be running.")
@click.option("--from", "first", type=click.DateTime(["%Y-%m-%d"]), required=True, help="First local date.")
@click.option("--days", type=click.IntRange(1, 400), required=True, help="Number of local dates.")
@click.option("--devices", type=click.IntRange(1), default=1, help="Of a fleet in one file.")
def request(state: Path, first: datetime, days: int, devices: int) -> None:
    """Print a certificate request: a line DATE KEY for each day. Missing keys are drawn and stored in the state file.

    With the requests of the other devices, sorted, the lines do not show which are of one device.
    """
    from hatcast.agents.device.store import open_store

    if days - 1 > (date.max - first.date()).days:
        raise click.UsageError(f"--from and --days reach beyond {date.max}: name earlier dates")
    dates = [(first.date() + timedelta(number)).isoformat() for number in range(days)]
    with open_store(state) as store:
        with store.transaction():
            made = {day: store.keys.make(day, devices) for day in dates}
        for day, keys in made.items():
            for key in keys:
                click.echo(f"{day} {key.hex()}")


@command.command(
    short_help="Certify requests, as the authority.",
    epilog="Example:  sort request-* | hatcast keys sign --authority authority.key > certificates",
)
@click.option("--authority", "file", type=FILE, required=True, help="Secret key of the authority.")
@click.argument("requests", type=_LINES, default="-")
def sign(file: Path, requests: IO[str]) -> None:
    """Certify the keys of REQUESTS (or of standard input), and print the certificates in the order of their keys.

    Each certificate lets one device count as one on one day. Compare the numbers that it reports with the fleet.
    """
    from hatcast.stream.hybrid.signatures import certify

    seed = _authority_of(file)
    keys = sorted({(match[1], match[2]) for match in _parsed(requests, _REQUEST)})
    for day, key in keys:
        click.echo(f"{day} {key} {certify(seed, day, bytes.fromhex(key)).hex()}")
    a_day = Counter(day for day, _ in keys)
    most = max(a_day.values(), default=0)
    click.echo(f"{len(keys):,} keys certified: {len(a_day):,} dates, at most {most:,} keys a date", err=True)
    if most == 1 < len(a_day):
        click.echo("who sees these lines can link the days of one device: sign requests of several together", err=True)


@command.command(
    short_help="Store a device's certificates.", epilog="Example:  hatcast keys install --state device.db certificates"
)
@click.option("--state", type=FILE, required=True, help="State file of the device, which may not be running.")
@click.option(
    "--report-keys",
    type=click.File("r", encoding="utf-8", lazy=False),
    help="The operator's `worker.report_keys_file`: install only what workers will accept.",
)
@click.argument("certificates", type=_LINES, default="-")
def install(state: Path, report_keys: IO[str] | None, certificates: IO[str]) -> None:
    """Store the device's own ones of CERTIFICATES (or of standard input) in its state file; others are ignored."""
    from hatcast.agents.device.store import open_store
    from hatcast.agents.device.stored import Certificate

    found = (
        Certificate(match[1], bytes.fromhex(match[2]), bytes.fromhex(match[3]))
        for match in _parsed(certificates, _CERTIFICATE)
    )
    is_certified = None if report_keys is None else _check_of(report_keys)
    with open_store(state) as store, store.transaction():
        installed = store.keys.install(found, is_certified)
    if not installed:
        raise HatcastError(
            f"{state} has none of the keys in {certificates.name}: name the state file with which"
            " `hatcast keys request` made them"
        )
    click.echo(f"{installed:,} certificates installed", err=True)


def _new_authority(file: Path) -> bytes:
    """Create a secret key that only the owner of its file may read. Raises OSError, and then leaves no file."""
    from hatcast.stream.hybrid.reports import KEY_BYTES

    file.touch(mode=0o600, exist_ok=False)
    seed = secrets.token_bytes(KEY_BYTES)
    try:
        file.write_text(f"{seed.hex()}\n", encoding="ascii")
    except OSError:
        file.unlink()
        raise
    return seed


def _check_of(report_keys: IO[str]) -> "IsCertified":
    from hatcast.stream.hybrid.reports import parse_report_keys
    from hatcast.stream.hybrid.signatures import ReportVerifier

    try:
        return ReportVerifier(parse_report_keys(report_keys.read())).is_certified
    except ValueError as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else error
        raise HatcastError(f"{report_keys.name}: {why}: give the file that the operator's workers read") from None


def _authority_of(file: Path) -> bytes:
    from hatcast.stream.hybrid.reports import parse_key

    try:
        seed = parse_key(file.read_text(encoding="ascii").strip())
    except (OSError, UnicodeDecodeError):
        seed = None
    if seed is None:
        raise HatcastError(
            f"{file} is not the secret key of an authority: create one in a new file with `hatcast keys authority`"
        )
    return seed


def _parsed(lines: Iterable[str], form: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the lines as matches. Raises HatcastError, which names the line, for one of another form."""
    try:
        for number, line in enumerate(lines, 1):
            match = form.fullmatch(line.rstrip("\r\n"))
            try:
                date.fromisoformat(match[1] if match else "")
            except ValueError:
                match = None
            if match is None:
                words = "DATE KEY" if form is _REQUEST else "DATE KEY CERTIFICATE"
                raise HatcastError(f"line {number} is not `{words}`: give the output of `hatcast keys` as it is")
            yield match
    except UnicodeDecodeError:
        raise HatcastError("the lines are not text: give the output of `hatcast keys` as it is") from None
