"""Encoding of records: their common fields, exact numbers, instants, and the bytes around `seq`."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec

from hatcast.stream.fold.hats import Slot
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import NANO

JSON: Final = msgspec.json.Encoder()


def cell_fields(policy: Policy, cell: str) -> dict[str, Any]:
    """Return the record fields for a cell."""
    is_remainder = policy.fine is not None and policy.fine.is_remainder(cell)
    return {"cell": cell, "remainder": True} if is_remainder else {"cell": cell}


def value_fields(policy: Policy) -> dict[str, Any]:
    """Return the record fields that name the value; none for the default, the speed in km/h."""
    return {} if policy.value_name is None else {"value": policy.value_name}


def place_fields(policy: Policy, cell: str, slot: Slot, start: datetime, end: datetime) -> dict[str, Any]:
    """Return the record fields for a cell and slot."""
    return {
        **cell_fields(policy, cell),
        "date": slot.date,
        "slot": slot.name,
        "start": start.isoformat(),
        "end": end.isoformat(),
        **value_fields(policy),
    }


def record_parts(head: dict[str, Any], tail: dict[str, Any], *, hidden: bool) -> tuple[bytes, bytes]:
    """Encode a record as the bytes before and after its `seq`; if hidden, all bytes come first, without `seq`."""
    if hidden:
        return JSON.encode(head | tail), b""
    return JSON.encode(head)[:-1] + b',"seq":', b"," + JSON.encode(tail)[1:]


def decimal(nano: int) -> Decimal:
    """Return a charge (1e-9) as a decimal for publication: no trailing zeros, at least one digit after the point."""
    value = (Decimal(nano) / NANO).normalize()
    exponent = value.as_tuple().exponent
    return value if isinstance(exponent, int) and exponent < 0 else value.quantize(Decimal("0.1"))


def exact_json(nano: int) -> msgspec.Raw:
    """Encode a charge (1e-9) as a JSON number with all its digits."""
    return msgspec.Raw(str(decimal(nano)).encode())


@lru_cache(maxsize=64)  # the records of a batch have one
def utc_text(instant_ms: int) -> str:
    """Format an instant (ms UTC) for records: `2022-01-02T09:00:00.000Z`."""
    seconds, milliseconds = divmod(instant_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
