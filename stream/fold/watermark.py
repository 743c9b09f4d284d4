"""When a slot is final: hours close by the time records arrived.    [design 4, Arrival clock; fold.md, Slot]"""

from collections.abc import Iterable

from hatcast.stream.fold.hats import Slot
from hatcast.stream.policy.policy import Policy


def closes_at(slot: Slot, policy: Policy) -> int:
    """The clock (ms UTC) from which a partition takes no more readings of a slot."""
    return slot.end_ms + policy.lateness_ms


def slowest(clocks: Iterable[int | None]) -> int | None:
    """The least clock of all partitions; None if there is none, or one has no clock: then nothing is final."""
    least = None
    for clock in clocks:
        if clock is None:
            return None
        least = clock if least is None else min(least, clock)
    return least


def is_final(slot: Slot, clocks: Iterable[int | None], policy: Policy) -> bool:
    """True once every partition's clock is past slot end + lateness; one silent partition keeps the slot open."""
    least = slowest(clocks)
    return least is not None and least >= closes_at(slot, policy)
