"""The next slot to be released, for a page without records. Follows from the policy and the time alone."""

from datetime import date, timedelta
from typing import Final

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.stream.fold.hats import Calendar, Slot, closes_at

_DAYS: Final = 10  # more than the local clock ever skips


class AwaitedSlot(msgspec.Struct, frozen=True):
    """A slot, and the instant from which its releases are due: its end plus the policy's lateness."""

    slot: str
    start: str
    end: str
    closes: str


class Awaited(msgspec.Struct, frozen=True, omit_defaults=True):
    """The next slot of a policy, for its map.

    topic   on which releases appear
    slot    that closes next; None where telemetry is a recording, whose time is not that of a clock
    """

    policy: str
    topic: str
    slot: AwaitedSlot | None = None


class AwaitedReleases:
    """Finds the next slot of the configured policy."""

    def __init__(self, settings: Settings) -> None:
        self._policy = settings.policy
        self._topic = settings.topics.means
        self._is_recording = settings.retention_ms is None
        self._calendar = Calendar(settings.policy)

    def view(self, now_ms: int) -> bytes:
        """Render the awaited slot as JSON."""
        slot = None if self._is_recording else self._next(now_ms)
        return msgspec.json.encode(
            Awaited(self._policy.name, self._topic, None if slot is None else self._rendered(slot))
        )

    def _next(self, now_ms: int) -> Slot | None:
        """Return the first slot in the policy's hours that closes after an instant."""
        closed_ms = now_ms - self._policy.lateness_ms
        today = self._calendar.local(closed_ms).date()
        first = max(today, date.fromisoformat(self._policy.from_date or today.isoformat()))
        for day in range(_DAYS):
            for slot in self._calendar.slots_of((first + timedelta(days=day)).isoformat()):
                if slot.outside is None and slot.end_ms > closed_ms:
                    return slot
        return None

    def _rendered(self, slot: Slot) -> AwaitedSlot:
        start, end, closes = (
            self._calendar.local(each).isoformat(timespec="seconds")
            for each in (slot.start_ms, slot.end_ms, closes_at(slot, self._policy))
        )
        return AwaitedSlot(f"{slot.date}T{slot.name}", start, end, closes)
