"""Reasons for which a ledger rejects a commit, a reservation or an adoption: nothing of it was written."""

from hatcast.stream.ledger.adoption import Position


class Unrecovered(Exception):
    """This store may have lost releases: recover the ledger before the next commit."""


class Behind(Unrecovered):
    """A commit sequence is not the one its owner wrote last: the store went back in time, or another worker owns it."""


class DaySealed(Exception):
    """The day is sealed: its records are reduced to a summary, and it accepts no commits."""


class Replaced(Exception):
    """The day belongs to the next policy."""


class Unclaimed(Exception):
    """Our policy replaces another, and the store does not have that transition: claim it again, if still possible."""


class Exhausted(Exception):
    """The day, or all days together, lack room for the cost."""


class RecoveryEnded(Exception):
    """The required recovery has ended: Redis lost data, or another recovery began."""


class AlreadyAdopted(Exception):
    """Another worker has adopted these records. `stored` is the partition's adopted position now."""

    def __init__(self, stored: Position | None) -> None:
        super().__init__(stored)
        self.stored = stored


class RecordsMissing(Exception):
    """The ledger lacks some of the records, or has other bytes for them: nothing was adopted."""

    def __init__(self, missing: frozenset[str], different: frozenset[str]) -> None:
        super().__init__(len(missing), len(different))
        self.missing = missing  # ids of records that the ledger lacks
        self.different = different  # ids of records for which the ledger has other bytes
