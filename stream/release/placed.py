"""Date and place of a release, in which its charge is booked."""

from hatcast.stream.fold.hats import Slot


class Placed:
    """A release of one cell and slot."""

    __slots__ = ()
    slot: Slot
    cell: str

    @property
    def date(self) -> str:
        """Local date whose budget pays for it."""
        return self.slot.date

    @property
    def place(self) -> str:
        """`cell/slot`, the key by which a day's charges are summed."""
        return f"{self.cell}/{self.slot.name}"
