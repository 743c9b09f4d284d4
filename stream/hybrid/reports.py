"""Local reports: the noisy mean that a device sends, its record, its check by the operator, and keys of signed ones.

[H Def 3.10; docs/specification/estimators.md, section 6; docs/specification/topics.md]

The record's key is the `id`: random, new every local day. So reports of one day can be linked to one device, which the
cap per device requires, and reports of two days cannot. Signing and checking: hatcast.stream.hybrid.signatures. How the
keys are used: docs/device.md.
"""

import hashlib
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.hybrid._interface import HybridParameters
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.gaussian import scale_bound
from hatcast.stream.records.fields import Cell, Date, DeviceId, PolicyId, Slot
from hatcast.stream.units import is_short

_SCALES: Final = 40  # accepted noise beyond [0, U], in scales: an honest device exceeds it once in e**40 reports


def report(mean: Fraction, parameters: HybridParameters, noise: Noise) -> int:
    """Return a device's report of its own mean in one HAT, in steps: clipped to [0, U], on the grid, with noise.

    mean   milli-units, private; nothing else of the user leaves the device
    Guarantee (replace, against everyone including the operator): `parameters.local_epsilon`, with Gaussian noise at
    `parameters.delta`. Two means within [0, U] are at most U apart, so their nearest steps at most `local_distance` =
    floor(U / grid) + 1 (see Grid.distance), for which the noise is drawn. The existence of the report and its HAT are
    not hidden.
    """
    grid, upper = parameters.grid, Fraction(parameters.upper_bound_milli)
    steps = grid.nearest(min(max(mean, Fraction(0)), upper))
    return parameters.noisy(noise, steps, parameters.local_distance, parameters.local_epsilon).value


def accepts(value: Decimal, epsilon: float, parameters: HybridParameters) -> bool:
    """Return whether the operator accepts a report.

    value     in the policy's unit; must be on the grid and at most `report_bound` from the lower bound, which bounds a
              device's influence
    epsilon   the device's claim; must equal the policy's, which weights and intervals are computed from
    The check reads the report only, which is private already. It cannot detect a wrong value within these limits from a
    faulty or dishonest device.
    """
    if epsilon != parameters.local_epsilon or not is_short(value):
        return False
    steps = parameters.grid.steps_above_lower(value)
    return abs(steps) <= report_bound(parameters) and steps.denominator == 1


def report_bound(parameters: HybridParameters) -> int:
    """Return the largest distance of an accepted report from the lower bound, in steps: equal on every machine.

    Laplace: U + 40 U / epsilon, rounded down to the grid. Gaussian: U + sqrt(80) s, rounded up to the grid, with an s
    of at least that of the noise. X has E exp(t X) <= exp(t^2 s^2 / 2) [Canonne, Kamath, Steinke 2020], and so
    P(X > x) <= exp(-x^2 / 2 s^2): it exceeds sqrt(80) s at most once in e**40 reports.
    """
    if parameters.delta is not None:
        scale = scale_bound(parameters.local_distance, parameters.local_epsilon, parameters.delta)
        return parameters.local_distance + int((2 * _SCALES * scale * scale).sqrt()) + 1
    beyond = _SCALES / Fraction(parameters.local_epsilon)
    return parameters.grid.floor(parameters.upper_bound_milli * (1 + beyond))


def steps_of(value: Decimal, parameters: HybridParameters) -> int:
    """Convert an accepted report (in the policy's unit) to steps. Raises ValueError if it is not on the grid."""
    steps = parameters.grid.steps_above_lower(value)
    if steps.denominator != 1:
        raise ValueError("a report must be a multiple of the grid")
    return steps.numerator


ID_BYTES: Final = 16
REPORT_BYTES_MAX: Final = 2_048  # an honest report has 180 bytes, a signed one 550
KEY_BYTES: Final = 32  # Ed25519, secret and public
_KINDS: Final = ("authority", "revoked")
_PERSONALIZATION: Final = b"hatcast-report"


class DeviceReport(msgspec.Struct, frozen=True, gc=False):
    """One report of a device."""

    id: DeviceId  # id of the device on this local day: 32 hexadecimal digits
    policy_id: PolicyId
    cell: Cell  # H3 index in hexadecimal
    # date, slot: local, `YYYY-MM-DD` and `HH:MM`
    date: Date
    slot: Slot
    value: Decimal  # in the policy's unit, noisy
    epsilon: float  # epsilon of the device's noise


_DECODER: Final = msgspec.json.Decoder(DeviceReport)
_ENCODER: Final = msgspec.json.Encoder()


def decode_report(raw: bytes) -> DeviceReport | None:
    """Decode a report; return None if undecodable or over `REPORT_BYTES_MAX`. Never raises."""
    if len(raw) > REPORT_BYTES_MAX:
        return None
    try:
        return _DECODER.decode(raw)
    except (*UNREADABLE, ArithmeticError):
        return None


def encode_report(report: DeviceReport) -> bytes:
    """Encode a report. Raises ValueError for a value that is not finite."""
    if not report.value.is_finite():
        raise ValueError("the value of a report must be finite")
    return _ENCODER.encode(msgspec.structs.asdict(report) | {"value": msgspec.Raw(f"{report.value:f}".encode())})


# Keys: workers read them from `worker.report_keys_file`, devices have their own.
@dataclass(frozen=True, slots=True)
class DayKey:
    """Key pair of a device for one local date, with its certificate."""

    seed: bytes = field(repr=False)  # 32 random bytes, secret
    certificate: bytes  # signature of the authority


def device_id(key: bytes) -> str:
    """Return the id of the device that signs with a public day key: its BLAKE2b-128, in hexadecimal."""
    return hashlib.blake2b(key, digest_size=ID_BYTES, person=_PERSONALIZATION).hexdigest()


@dataclass(frozen=True, slots=True)
class ReportKeys:
    """Keys that decide which reports are genuine."""

    authorities: frozenset[bytes]  # public keys that certify the day keys of devices
    revoked: frozenset[bytes] = frozenset()  # public day keys whose reports are rejected, certified or not


def parse_report_keys(text: str) -> ReportKeys:
    """Parse lines `authority KEY` and `revoked KEY`, keys in hexadecimal; `#` starts a comment.

    Raises ValueError, which names the line, if a line is neither, no authority is listed, or a revoked one.
    """
    found: dict[str, set[bytes]] = {kind: set() for kind in _KINDS}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        key = parse_key(words[1]) if len(words) == 2 else None
        if words[0] not in found or key is None:
            raise ValueError(f"line {number} is not `authority KEY` or `revoked KEY`, KEY being 64 hexadecimal digits")
        found[words[0]].add(key)
    if not found["authority"]:
        raise ValueError("no line names an authority")
    if found["authority"] & found["revoked"]:
        raise ValueError("an authority is revoked too: remove its line `authority` to end it")
    return ReportKeys(frozenset(found["authority"]), frozenset(found["revoked"]))


def parse_key(text: str) -> bytes | None:
    """Return a key of 64 lower-case hexadecimal digits; None if the text is not one."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES and key.hex() == text else None
