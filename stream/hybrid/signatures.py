"""Signed reports: Ed25519 signatures of devices, checked by workers.    [docs/specification/topics.md, Signed reports]

A device signs with a key of one local day, which an authority has certified for that day. Its id of the day follows
from the key, so nobody else can send under it; keys of two days have nothing in common. A signature is a function of
the bytes that are sent anyway and of the key, never of readings.

Needs the extra `signed`: import this module only where reports are signed or checked.
"""

from typing import Annotated, Final

import msgspec
from nacl.bindings import crypto_core_ed25519_is_valid_point
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from hatcast.stream.errors import readable
from hatcast.stream.hybrid.reports import DayKey, DeviceReport, ReportKeys, device_id
from hatcast.stream.readings.reading import cache

# What is signed begins with its purpose and version, so that no signature is valid for another purpose.
_FOR_REPORT: Final = b"hatcast-report/1\n"
_FOR_DAY_KEY: Final = b"hatcast-day-key/1\n"
_OPENING: Final = b',"signature":"ed25519:'
_ENDING: Final = b'"}'
_SIGNATURE_DIGITS: Final = 128
_SUFFIX_BYTES: Final = len(_OPENING) + _SIGNATURE_DIGITS + len(_ENDING)
_CACHED_KEYS: Final = 200_000  # a full cache is emptied


class _Credentials(msgspec.Struct, frozen=True, gc=False):
    """Fields of a signed report besides those of `DeviceReport` and the signature."""

    # With a length: `$` alone allows a line feed after the digits.
    key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
    certificate: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$", max_length=128)]


_DECODER: Final = msgspec.json.Decoder(_Credentials)


def public_key(seed: bytes) -> bytes:
    """Return the public key (32 bytes) of a seed."""
    return bytes(SigningKey(seed).verify_key)


def certify(authority: bytes, date: str, key: bytes) -> bytes:
    """Return the certificate (64 bytes) of a public day key for a local date. authority: its seed."""
    return SigningKey(authority).sign(_dated(date, key)).signature


def sign_report(body: bytes, day_key: DayKey) -> bytes:
    """Return an encoded report with key, certificate and signature. Its id must be the `device_id` of the key."""
    signing = SigningKey(day_key.seed)
    key, certificate = bytes(signing.verify_key).hex(), day_key.certificate.hex()
    head = body[:-1] + f',"key":"{key}","certificate":"{certificate}"'.encode()
    signature = signing.sign(_FOR_REPORT + head).signature
    return head + _OPENING + signature.hex().encode() + _ENDING


class ReportVerifier:
    """Checks signatures of reports. It keeps the day keys whose certificates it has checked."""

    def __init__(self, keys: ReportKeys) -> None:
        """Raises ValueError if a key cannot be a public one: mistyped, it would refuse all devices or revoke none."""
        if not all(map(crypto_core_ed25519_is_valid_point, keys.authorities | keys.revoked)):
            raise ValueError("a key in it cannot be a public key")
        self._authorities = [VerifyKey(each) for each in sorted(keys.authorities)]
        self._revoked = keys.revoked
        self._certified: dict[tuple[str, str, str], bool] = {}

    def is_genuine(self, raw: bytes, report: DeviceReport) -> bool:
        """Return whether a device with a certified key of the report's date has signed these bytes. Never raises.

        raw   the record's value, from which `report` was decoded
        """
        head, signature = raw[:-_SUFFIX_BYTES], _signature_of(raw[-_SUFFIX_BYTES:])
        if signature is None:
            return False
        credentials = readable(_DECODER.decode, raw)
        if credentials is None:
            return False
        key = bytes.fromhex(credentials.key)
        if device_id(key) != report.id or not self._has_certified_key(credentials, report.date):
            return False
        return _is_signed(VerifyKey(key), _FOR_REPORT + head, signature)

    def is_certified(self, date: str, key: bytes, certificate: bytes) -> bool:
        """Return whether an authority has certified a public day key for a local date, and it is not revoked."""
        signed = _dated(date, key)
        if key in self._revoked or not any(_is_signed(each, signed, certificate) for each in self._authorities):
            return False
        # Ed25519 can be made to verify for keys outside of the prime-order group, on which libraries disagree.
        return crypto_core_ed25519_is_valid_point(key)

    def _has_certified_key(self, credentials: _Credentials, date: str) -> bool:
        entry = (credentials.key, date, credentials.certificate)
        if entry in self._certified:
            return True
        if not self.is_certified(date, bytes.fromhex(credentials.key), bytes.fromhex(credentials.certificate)):
            return False  # not kept: anybody can send such keys
        return cache(self._certified, entry, True, _CACHED_KEYS)  # noqa: FBT003 - the cached value


def _dated(date: str, key: bytes) -> bytes:
    return b"%s%s\n%s" % (_FOR_DAY_KEY, date.encode(), key)


def _signature_of(suffix: bytes) -> bytes | None:
    """Return the signature at the end of a report; None if it has none of this version, in lower case."""
    if not (suffix.startswith(_OPENING) and suffix.endswith(_ENDING)):
        return None
    digits = suffix[len(_OPENING) : -len(_ENDING)]
    try:
        signature = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return None
    return signature if signature.hex().encode() == digits else None


def _is_signed(key: VerifyKey, message: bytes, signature: bytes) -> bool:
    try:
        key.verify(message, signature)
    except (CryptoError, ValueError):  # ValueError: the signature has another length
        return False
    return True
