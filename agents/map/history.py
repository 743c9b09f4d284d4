"""Releases of the last day, by policy and slot, in bounded memory.

Slots that ended more than `keep_ms` before the policy's newest slot are evicted, and older ones first while a policy
has more than `MAX_RELEASES` releases. At most `MAX_POLICIES` policies are stored: those with the newest slots.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hatcast.agents.map.record import Budget, Release

MAX_RELEASES: Final = 200_000  # per policy: about 200 MB
MAX_POLICIES: Final = 8
_RANGE_STEP: Final = 5.0  # of the colour range, in the unit of the releases
_OUTLIERS: Final = 40  # one release in 40 may lie above the range and one below: noise has long tails


@dataclass(slots=True)
class SlotReleases:
    """One slot of a policy, and its releases by cell."""

    slot: str
    start: str
    end: str
    start_ms: int
    end_ms: int
    releases: dict[str, Release] = field(default_factory=dict)


@dataclass(slots=True)
class PolicyHistory:
    """Stored slots and budgets of one policy.

    slots     by name, in the order of their first release
    seen      every cell that ever had a release
    budgets   by date
    version   grows with each change: the cache key of rendered responses
    """

    name: str
    slots: dict[str, SlotReleases] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    budgets: dict[str, Budget] = field(default_factory=dict)
    newest_ms: int = 0
    count: int = 0
    version: int = 0

    def in_order(self) -> list[SlotReleases]:
        """Return the slots, ordered by start."""
        return sorted(self.slots.values(), key=lambda slot: (slot.start_ms, slot.slot))

    def latest(self) -> SlotReleases | None:
        """Return the slot with the latest start; None if there is none."""
        return max(self.slots.values(), key=lambda slot: (slot.start_ms, slot.slot), default=None)

    def cells(self) -> list[str]:
        """Return the cells of all stored slots."""
        return sorted({cell for slot in self.slots.values() for cell in slot.releases})

    def value_range(self) -> tuple[float, float]:
        """Return the colour range: it covers nearly all stored means, rounded outwards to multiples of 5."""
        means = sorted(
            each.mean for slot in self.slots.values() for each in slot.releases.values() if each.mean is not None
        )
        if not means:
            return 0.0, _RANGE_STEP
        outliers = len(means) // _OUTLIERS
        low = means[outliers] // _RANGE_STEP * _RANGE_STEP
        return low, max(low + _RANGE_STEP, -(-means[-1 - outliers] // _RANGE_STEP) * _RANGE_STEP)


class History:
    """Stored releases and budgets of all policies. Releases may come out of order and more than once."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._log: dict[int, deque[Release]] = {}
        self.policies: dict[str, PolicyHistory] = {}

    def add(self, release: Release) -> bool:
        """Add a release; return False if it is a duplicate or too old."""
        policy = self._policy(release.policy)
        policy.seen.add(release.cell)
        if release.end_ms <= policy.newest_ms - self._keep_ms:
            return False
        slot = policy.slots.get(release.slot)
        if slot is None:
            slot = SlotReleases(release.slot, release.start, release.end, release.start_ms, release.end_ms)
            policy.slots[release.slot] = slot
        elif release.cell in slot.releases:
            return False
        slot.releases[release.cell] = release
        policy.count += 1
        policy.version += 1
        self._log.setdefault(release.partition, deque()).append(release)
        if release.end_ms > policy.newest_ms or policy.count > MAX_RELEASES:
            policy.newest_ms = max(release.end_ms, policy.newest_ms)
            self._evict_old(policy)
        return True

    def contains(self, release: Release) -> bool:
        """Return True unless the release is a duplicate, too old, or evicted."""
        policy = self.policies.get(release.policy)
        slot = None if policy is None else policy.slots.get(release.slot)
        return slot is not None and slot.releases.get(release.cell) is release

    def add_budget(self, budget: Budget) -> bool:
        """Add a budget record; return False unless it is the latest of its day."""
        policy = self._policy(budget.policy)
        known = policy.budgets.get(budget.date)
        if known is not None and budget.seq <= known.seq:
            return False
        policy.budgets[budget.date] = budget
        policy.version += 1
        self._evict_budgets(policy)
        return True

    def since(self, positions: Mapping[int, int]) -> Iterator[Release]:
        """Yield the stored releases from these offsets on, partition by partition, in offset order."""
        for partition, log in self._log.items():
            begin, newer = positions.get(partition, 0), list[Release]()
            for release in reversed(log):
                if release.offset < begin:
                    break
                newer.append(release)
            yield from reversed(newer)

    def budgets(self) -> Iterator[Budget]:
        """Yield the latest budget record of each policy and day."""
        for policy in self.policies.values():
            yield from policy.budgets.values()

    def names(self) -> Sequence[str]:
        """Return the names of the policies with releases, the one with the newest slot first."""
        released = [policy for policy in self.policies.values() if policy.slots]
        return [policy.name for policy in sorted(released, key=lambda policy: -policy.newest_ms)]

    def _policy(self, name: str) -> PolicyHistory:
        policy = self.policies.get(name)
        if policy is None:
            policy = self.policies[name] = PolicyHistory(name)
            if len(self.policies) > MAX_POLICIES:
                oldest = min((each for each in self.policies.values() if each is not policy), key=_newest)
                self._evict(oldest, list(oldest.slots))
                del self.policies[oldest.name]
        return policy

    def _evict_old(self, policy: PolicyHistory) -> None:
        horizon = policy.newest_ms - self._keep_ms
        expired = [slot.slot for slot in policy.slots.values() if slot.end_ms <= horizon]
        self._evict(policy, expired)
        while policy.count > MAX_RELEASES and len(policy.slots) > 1:
            self._evict(policy, [policy.in_order()[0].slot])
        self._evict_budgets(policy)

    def _evict(self, policy: PolicyHistory, names: Sequence[str]) -> None:
        evicted = set(names)
        for name in evicted:
            policy.count -= len(policy.slots.pop(name).releases)
        if evicted:
            for partition, log in self._log.items():
                remaining = (each for each in log if each.policy != policy.name or each.slot not in evicted)
                self._log[partition] = deque(remaining)

    def _evict_budgets(self, policy: PolicyHistory) -> None:
        """Drop the budgets of dates before the first stored slot."""
        if policy.slots:
            first = min(slot.slot for slot in policy.slots.values())[:10]
            for date in [date for date in policy.budgets if date < first]:
                del policy.budgets[date]


def _newest(policy: PolicyHistory) -> int:
    return policy.newest_ms
