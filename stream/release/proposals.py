"""A release of one cell and slot, whatever its kind: its record, and its proposal to the ledger."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self

from hatcast.stream.fold.hats import Slot
from hatcast.stream.ledger.proposals import AnswerProposal, Proposal, StateChange
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.records.fields import Status, release_id
from hatcast.stream.release.encoding import place_fields, record_parts, utc_text
from hatcast.stream.release.schedule import released_at_ms


class AnyRelease(Protocol):
    """A release of any kind, before the ledger assigns its `seq`."""

    @property
    def release_id(self) -> str:
        """Its name, which never changes."""
        ...

    def proposal(self, at_ms: int, release_partition: int) -> Proposal | AnswerProposal:
        """Return the release as proposed to the ledger by the owner of a release partition."""
        ...


@dataclass(frozen=True, slots=True)
class Placed(ABC):
    """A release of one cell and slot. A kind that charges by reservation alone keeps the charge and fineness of 0.

    start, end   of what it is about, in local time
    """

    policy: Policy
    slot: Slot
    cell: str
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
    def charge(self) -> int:
        """Charge in 1e-9 epsilon; 0 if a reservation has all charges."""
        return 0

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
