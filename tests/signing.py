"""Signed reports for tests: an authority, and devices with a certified key a day."""

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from hatcast.stream.hybrid import DeviceReport, encode_report
from hatcast.stream.hybrid.reports import DayKey, device_id
from hatcast.stream.hybrid.signatures import certify, public_key, sign_report

DATE: Final = "2022-01-02"


def seed_of(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=32).digest()


AUTHORITY: Final = seed_of("authority")


@dataclass(frozen=True)
class Device:
    """A device on one date. `authority`: the seed of the one that certified its key for `certified`."""

    number: int
    authority: bytes = AUTHORITY
    certified: str = DATE

    @property
    def seed(self) -> bytes:
        return seed_of(f"device {self.number}")

    @property
    def key(self) -> bytes:
        return public_key(self.seed)

    @property
    def id(self) -> str:
        return device_id(self.key)

    @property
    def day_key(self) -> DayKey:
        return DayKey(self.seed, certify(self.authority, self.certified, self.key))

    def sign(self, report: DeviceReport) -> bytes:
        """What the device sends, whatever id the report has."""
        return sign_report(encode_report(report), self.day_key)


def report_of(device: Device, policy_id: str, cell: str, **changes: Any) -> DeviceReport:
    report = DeviceReport(device.id, policy_id, cell, DATE, "12:00", Decimal("31.5"), 0.5)
    return msgspec.structs.replace(report, **changes)
