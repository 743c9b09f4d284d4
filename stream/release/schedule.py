"""Release schedule under `add_remove`: contents, time and order depend on public data only.

Every listed cell of every slot from the policy's first slot on is released, with or without readings. So neither the
releases nor their order reveal whether anyone was present. Reasons: docs/decisions/0007. See
docs/specification/estimators.md, section 5.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

import h3.api.basic_int as h3

from hatcast.stream.fold.calendar import Calendar, Slot, closes_at
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import MINUTE_MS

HEARTBEAT_MARGIN_MS: Final = 15_000  # a heartbeat every 10 s, and some seconds for its delivery


def listed_cells(policy: Policy) -> list[str]:
    """Return the policy's cells in the order of release. Raises ValueError for a policy without a list."""
    if policy.cells is None:
        raise ValueError("which cells have readings is private, so the policy must list its cells")
    return sorted(h3.int_to_str(cell) for cell in policy.cells)


def first_slot_ms(calendar: Calendar, started_ms: int) -> int:
    """Return the start (ms UTC) of a policy's first slot: the slot that was running at its first start."""
    return calendar.slot_at(started_ms).start_ms


def slots_due(calendar: Calendar, policy: Policy, first_ms: int, done_ms: int, watermark_ms: int) -> Iterator[Slot]:
    """Yield the slots within `hours`, not before `from`, that are final and not done, in the order of release.

    first_ms      start of the policy's first slot
    done_ms       slots that end at or before it are done
    watermark_ms  smallest watermark of the partitions
    All in ms UTC. Takes O(slots since the day before `done_ms`).
    """
    # No slot ends later than two days after the start of its date, whatever clock changes occur.
    since = calendar.local(max(first_ms, done_ms)).date() - timedelta(days=2)
    for slot in slots_between(calendar, since, calendar.local(watermark_ms).date()):
        if slot.start_ms >= first_ms and slot.end_ms > done_ms:
            if watermark_ms < closes_at(slot, policy):
                return
            yield slot


def slots_between(calendar: Calendar, first: date, last: date) -> Iterator[Slot]:
    """Yield the slots within `hours`, not before `from`, from `first` to `last` (included), in the order of release."""
    for days in range((last - first).days + 1):
        for slot in calendar.slots_of((first + timedelta(days=days)).isoformat()):
            if slot.outside is None:
                yield slot


def released_at_ms(slot: Slot, policy: Policy) -> int:
    """Return the `released_at` of a slot's releases (ms UTC): end + lateness, rounded up to the minute."""
    return -(-closes_at(slot, policy) // MINUTE_MS) * MINUTE_MS


def earliest_send_ms(slot: Slot, policy: Policy) -> int:
    """Return the earliest time (ms UTC, by a worker's clock) at which releases of a slot are sent.

    Sources send a heartbeat to every partition every 10 s. So by then every watermark has passed the slot, whether
    readings arrived or not, and no vehicle influences the time of sending.
    """
    return released_at_ms(slot, policy) + HEARTBEAT_MARGIN_MS
