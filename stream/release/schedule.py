"""What is released under `add_remove`, when, and in which order: public data decides.    [estimators.md, section 5]

Every listed cell of every slot from the policy's first one on, with or without readings. So nobody can tell from what
is published, or from its order, whether somebody was there. The reasons: docs/decisions/0007.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

import h3.api.basic_int as h3

from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import MINUTE_MS

HEARTBEAT_MARGIN_MS: Final = 15_000  # a tick every 10 s, and some seconds for its way


def listed_cells(policy: Policy) -> list[str]:
    """The policy's cells in the order of release. Raises ValueError for a policy without a list."""
    if policy.cells is None:
        raise ValueError("which cells have readings is private, so they have to be listed")
    return sorted(h3.int_to_str(cell) for cell in policy.cells)


def first_slot_ms(calendar: Calendar, started_ms: int) -> int:
    """The start (ms UTC) of the slot that was running when a policy was first started: its first one."""
    return calendar.slot_at(started_ms).start_ms


def slots_due(calendar: Calendar, policy: Policy, first_ms: int, done_ms: int, clock_ms: int) -> Iterator[Slot]:
    """The slots within `hours`, not before `from`, that are final by a clock and not done, in the order of release.

    first_ms   the start of the policy's first slot
    done_ms    slots that end at or before it are done
    clock_ms   that of the slowest partition
    All in ms UTC. Costs O(slots since the day before `done_ms`).
    """
    # No slot ends later than two days after the start of its date, whatever clocks do.
    since = calendar.local(max(first_ms, done_ms)).date() - timedelta(days=2)
    for slot in slots_between(calendar, since, calendar.local(clock_ms).date()):
        if slot.start_ms >= first_ms and slot.end_ms > done_ms:
            if clock_ms < closes_at(slot, policy):
                return
            yield slot


def slots_between(calendar: Calendar, first: date, last: date) -> Iterator[Slot]:
    """The slots within `hours`, and not before `from`, of local dates, both included, in the order of release."""
    for days in range((last - first).days + 1):
        for slot in calendar.slots_of((first + timedelta(days=days)).isoformat()):
            if slot.outside is None:
                yield slot


def released_at_ms(slot: Slot, policy: Policy) -> int:
    """When a slot's releases say that they were made (ms UTC): end + lateness, rounded up to the minute."""
    return -(-closes_at(slot, policy) // MINUTE_MS) * MINUTE_MS


def earliest_send_ms(slot: Slot, policy: Policy) -> int:
    """Before when (ms UTC, by a worker's clock) nothing of a slot is sent.

    Feeds tick every partition every 10 s. So by then all clocks have closed the slot, whoever sent a record or did not,
    and no bus decides when it is sent.
    """
    return released_at_ms(slot, policy) + HEARTBEAT_MARGIN_MS
