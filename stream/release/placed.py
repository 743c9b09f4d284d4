"""A release of one cell and slot, whatever its kind: the encoding of its record, and its proposal to the ledger."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Self

import msgspec

from hatcast.stream.fold.calendar import Slot
from hatcast.stream.ledger.proposals import Proposal, StateChange
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.records.fields import Status, release_id
from hatcast.stream.release.schedule import released_at_ms
from hatcast.stream.units import NANO

JSON: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Placed(ABC):
    """A release of one cell and slot. A kind that charges by reservation alone has the charge and fineness 0."""

    policy: Policy
    slot: Slot
    cell: str
    # start, end: of what it is about, in local time
    start: datetime
    end: datetime
    status: Status

    @property
    def release_id(self) -> str:
        """`policy/dateTslot/cell`; it never changes."""
        return release_id(self.policy.name, self.slot.key, self.cell)

    @property
    def date(self) -> str:
        """Local date whose budget pays for it."""
        return self.slot.date

    @property
    def place(self) -> str:
        """`cell/slot`, the key by which a day's charges are summed."""
        return f"{self.cell}/{self.slot.name}"

    @property
    def is_hat(self) -> bool:
        """Whether its record is that of a HAT."""
        return True

    @property
    @abstractmethod
    def charge(self) -> int:
        """Charge in 1e-9 epsilon; 0 if a reservation has all charges."""

    @property
    def fineness(self) -> int:
        """Fineness of the noise, equal to what `fineness_of` derives from the published record."""
        return 0

    @property
    def change(self) -> StateChange | None:
        """Change of a horizon by the commit of a running sum."""
        return None

    @abstractmethod
    def exhausted(self) -> Self:
        """Return the release with status `budget_exhausted` and without an estimate."""

    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """Return the record's fields that the kind has of its own."""

    def record(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return the record's bytes before and after `seq`, which the ledger assigns.

        Under `add_remove` there is no `seq`: then the first part has all bytes and the second is empty.
        """
        policy, hidden = self.policy, self.policy.relation is Relation.ADD_REMOVE
        head = {"release_id": self.release_id, "policy_id": policy.policy_id, "status": self.status.value}
        tail = {
            **place_fields(policy, self.cell, self.slot, self.start, self.end),
            **self.fields(),
            "relation": policy.relation.value,
            "released_at": utc_text(released_at_ms(self.slot, policy) if hidden else now_ms),
        }
        return record_parts(head, tail, hidden=hidden)

    def proposal(self, at_ms: int, release_partition: int) -> Proposal:
        """Return the release as proposed to the ledger by the owner of a release partition."""
        return Proposal(
            release_id=self.release_id,
            date=self.date,
            place=self.place,
            charge=self.charge,
            record=self.record(at_ms),
            exhausted=self.exhausted().record(at_ms),
            fineness=self.fineness,
            change=self.change,
            release_partition=release_partition,
        )


def cell_fields(policy: Policy, cell: str) -> dict[str, Any]:
    """Return the record fields for a cell."""
    is_remainder = policy.fine is not None and policy.fine.is_remainder(cell)
    return {"cell": cell, "remainder": True} if is_remainder else {"cell": cell}


def value_fields(policy: Policy) -> dict[str, Any]:
    """Return the record fields that name the value; none for the default, the speed while moving in km/h."""
    names = {"value": policy.value_name, "speed": policy.speed}
    return {name: value for name, value in names.items() if value is not None}


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
