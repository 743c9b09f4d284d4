"""A report as it stands on the topic `reports`: what a device encodes, and what the operator decodes.    [design 6]

Its key is its `id`: random, new every local day. So reports of one day can be told to be from one device,
since each has a cap, and those of two days cannot.
"""

from decimal import Decimal
from typing import Final

import msgspec

from hatcast.stream.records import Cell, Date, DeviceId, PolicyId, Slot

ID_BYTES: Final = 16


class Report(msgspec.Struct, frozen=True, gc=False):
    """One report.

    id           of the device, of this local day: 32 hexadecimal digits
    cell         H3 index in hexadecimal
    date, slot   local, `YYYY-MM-DD` and `HH:MM`
    value        km/h, noisy
    epsilon      of the device's noise
    """

    id: DeviceId
    policy_id: PolicyId
    cell: Cell
    date: Date
    slot: Slot
    value: Decimal
    epsilon: float


_DECODER: Final = msgspec.json.Decoder(Report)
_ENCODER: Final = msgspec.json.Encoder()


def decode_report(raw: bytes) -> Report | None:
    """None if undecodable; raises nothing."""
    try:
        return _DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, ArithmeticError):
        return None


def encode_report(report: Report) -> bytes:
    """A record's bytes. Raises ValueError for a value that is not finite."""
    if not report.value.is_finite():
        raise ValueError("a report is a number")
    return _ENCODER.encode(msgspec.structs.asdict(report) | {"value": msgspec.Raw(f"{report.value:f}".encode())})
