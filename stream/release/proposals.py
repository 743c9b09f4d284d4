"""What the releases of a cell and slot have in common: date and place of the charge, and the proposal to a ledger."""

from typing import Protocol, Self

from hatcast.stream.fold.hats import Slot
from hatcast.stream.ledger.proposals import AnswerProposal, Proposal, StateChange
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records.fields import release_id


class AnyRelease(Protocol):
    """A release of any kind, before the ledger assigns its `seq`."""

    @property
    def release_id(self) -> str:
        """Its name, which never changes."""
        ...

    def proposal(self, at_ms: int, release_partition: int) -> Proposal | AnswerProposal:
        """Return the release as proposed to the ledger by the owner of a release partition."""
        ...


class Placed:
    """A release of one cell and slot. A kind that charges by reservation alone keeps the charge and fineness of 0."""

    __slots__ = ()
    policy: Policy
    slot: Slot
    cell: str

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

    def exhausted(self) -> Self:
        """Return the release with status `budget_exhausted` and without an estimate."""
        raise NotImplementedError

    def record(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return the record's bytes before and after `seq`, which the ledger assigns."""
        raise NotImplementedError

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
