"""Records of the topic `reports`, and the keys of signed ones.    [docs/specification/topics.md]

The key is the `id`: random, new every local day. So reports of one day can be linked to one device, which the cap per
device requires, and reports of two days cannot. Signing and checking: hatcast.stream.hybrid.signatures. How the keys
are used: docs/device.md.
"""

import hashlib
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.records.fields import Cell, Date, DeviceId, PolicyId, Slot

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
