"""Records of the topic `reports`: encoding on the device, decoding by the operator.    [docs/specification/topics.md]

The key is the `id`: random, new every local day. So reports of one day can be linked to one device, which the cap per
device requires, and reports of two days cannot.
"""

from decimal import Decimal
from typing import Final

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.records.fields import Cell, Date, DeviceId, PolicyId, Slot

ID_BYTES: Final = 16
REPORT_BYTES_MAX: Final = 2_048  # an honest report has 180 bytes, a signed one 550


class Report(msgspec.Struct, frozen=True, gc=False):
    """One report of a device.

    id           id of the device on this local day: 32 hexadecimal digits
    cell         H3 index in hexadecimal
    date, slot   local, `YYYY-MM-DD` and `HH:MM`
    value        in the policy's unit, noisy
    epsilon      epsilon of the device's noise
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
    """Decode a report; return None if undecodable or over `REPORT_BYTES_MAX`. Never raises."""
    if len(raw) > REPORT_BYTES_MAX:
        return None
    try:
        return _DECODER.decode(raw)
    except (*UNREADABLE, ArithmeticError):
        return None


def encode_report(report: Report) -> bytes:
    """Encode a report. Raises ValueError for a value that is not finite."""
    if not report.value.is_finite():
        raise ValueError("the value of a report must be finite")
    return _ENCODER.encode(msgspec.structs.asdict(report) | {"value": msgspec.Raw(f"{report.value:f}".encode())})
