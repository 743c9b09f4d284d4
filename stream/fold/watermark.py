"""Watermarks: when a slot is final. They follow arrival times, not event times.    [docs/specification/fold.md]"""

from collections.abc import Iterable

from hatcast.stream.fold.hats import Slot
from hatcast.stream.policy.policy import Policy


def closes_at(slot: Slot, policy: Policy) -> int:
    """Return the watermark (ms UTC) from which a partition accepts no more readings of a slot."""
    return slot.end_ms + policy.lateness_ms


def min_watermark(watermarks: Iterable[int | None]) -> int | None:
    """Return the smallest watermark; None without partitions or if one is None: then no slot is final."""
    least = None
    for watermark in watermarks:
        if watermark is None:
            return None
        least = watermark if least is None else min(least, watermark)
    return least


def is_final(slot: Slot, watermarks: Iterable[int | None], policy: Policy) -> bool:
    """Return True once every watermark has reached slot end + lateness: one silent partition keeps the slot open."""
    least = min_watermark(watermarks)
    return least is not None and least >= closes_at(slot, policy)
