"""Reasons for which a ledger rejects a commit or a reservation: nothing of it was written."""


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
