"""The last day of releases, by policy and slot: all that the map holds, in bounded memory.

Of a policy, slots that ended more than `keep_ms` before its newest one are forgotten, and the oldest before that if
there are more than `MOST_RELEASES` in all. Of the policies, those with the newest slots are kept.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hatcast.agents.map.record import Budget, Release

MOST_RELEASES: Final = 200_000  # of a policy: about 200 MB
MOST_POLICIES: Final = 8
_STEP: Final = 5.0  # of the range of the colours, in the releases' unit
_OUTLIERS: Final = 40  # one release in so many may lie above the range, and one below: noise has long tails


@dataclass(slots=True)
class SlotOf:
    """A slot of a policy, and what was released of it by cell."""

    slot: str
    start: str
    end: str
    start_ms: int
    end_ms: int
    releases: dict[str, Release] = field(default_factory=dict)


@dataclass(slots=True)
class PolicyOf:
    """What is kept of a policy.

    slots     by name, in the order in which their first release came
    seen      every cell that ever had a release
    budgets   by date
    version   grows with each change, so that what was made of it can be kept
    """

    name: str
    slots: dict[str, SlotOf] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    budgets: dict[str, Budget] = field(default_factory=dict)
    newest_ms: int = 0
    count: int = 0
    version: int = 0

    def in_order(self) -> list[SlotOf]:
        """The slots by their start."""
        return sorted(self.slots.values(), key=lambda slot: (slot.start_ms, slot.slot))

    def latest(self) -> SlotOf | None:
        """The slot that began last; None without any."""
        return max(self.slots.values(), key=lambda slot: (slot.start_ms, slot.slot), default=None)

    def cells(self) -> list[str]:
        """The cells of all slots that are kept."""
        return sorted({cell for slot in self.slots.values() for cell in slot.releases})

    def value_range(self) -> tuple[float, float]:
        """What the colours span: nearly all means that are kept, out to whole steps of 5."""
        means = sorted(
            each.mean for slot in self.slots.values() for each in slot.releases.values() if each.mean is not None
        )
        if not means:
            return 0.0, _STEP
        out = len(means) // _OUTLIERS
        low = means[out] // _STEP * _STEP
        return low, max(low + _STEP, -(-means[-1 - out] // _STEP) * _STEP)


class Kept:
    """All of it. Releases may come in any order of slots, and twice."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._log: dict[int, deque[Release]] = {}
        self.policies: dict[str, PolicyOf] = {}

    def add(self, release: Release) -> bool:
        """Take a release in; False if it was known or is too old to be kept."""
        policy = self._policy(release.policy)
        policy.seen.add(release.cell)
        if release.end_ms <= policy.newest_ms - self._keep_ms:
            return False
        slot = policy.slots.get(release.slot)
        if slot is None:
            slot = SlotOf(release.slot, release.start, release.end, release.start_ms, release.end_ms)
            policy.slots[release.slot] = slot
        elif release.cell in slot.releases:
            return False
        slot.releases[release.cell] = release
        policy.count += 1
        policy.version += 1
        self._log.setdefault(release.partition, deque()).append(release)
        if release.end_ms > policy.newest_ms or policy.count > MOST_RELEASES:
            policy.newest_ms = max(release.end_ms, policy.newest_ms)
            self._forget(policy)
        return True

    def add_budget(self, budget: Budget) -> bool:
        """Take a budget record in; False if a later one of its day is known."""
        policy = self._policy(budget.policy)
        known = policy.budgets.get(budget.date)
        if known is not None and budget.seq <= known.seq:
            return False
        policy.budgets[budget.date] = budget
        policy.version += 1
        self._forget_budgets(policy)
        return True

    def since(self, positions: Mapping[int, int]) -> Iterator[Release]:
        """What is kept of the records from these offsets on, by partition; of each partition in order."""
        for partition, log in self._log.items():
            begin, found = positions.get(partition, 0), list[Release]()
            for release in reversed(log):
                if release.offset < begin:
                    break
                found.append(release)
            yield from reversed(found)

    def budgets(self) -> Iterator[Budget]:
        """The budget records that hold."""
        for policy in self.policies.values():
            yield from policy.budgets.values()

    def names(self) -> Sequence[str]:
        """The policies with releases, that with the newest first."""
        found = [policy for policy in self.policies.values() if policy.slots]
        return [policy.name for policy in sorted(found, key=lambda policy: -policy.newest_ms)]

    def _policy(self, name: str) -> PolicyOf:
        policy = self.policies.get(name)
        if policy is None:
            policy = self.policies[name] = PolicyOf(name)
            if len(self.policies) > MOST_POLICIES:
                oldest = min((each for each in self.policies.values() if each is not policy), key=_newest)
                self._drop(oldest, list(oldest.slots))
                del self.policies[oldest.name]
        return policy

    def _forget(self, policy: PolicyOf) -> None:
        horizon = policy.newest_ms - self._keep_ms
        old = [slot.slot for slot in policy.slots.values() if slot.end_ms <= horizon]
        self._drop(policy, old)
        while policy.count > MOST_RELEASES and len(policy.slots) > 1:
            self._drop(policy, [policy.in_order()[0].slot])
        self._forget_budgets(policy)

    def _drop(self, policy: PolicyOf, names: Sequence[str]) -> None:
        gone = set(names)
        for name in gone:
            policy.count -= len(policy.slots.pop(name).releases)
        if gone:
            for partition, log in self._log.items():
                kept = (each for each in log if each.policy != policy.name or each.slot not in gone)
                self._log[partition] = deque(kept)

    def _forget_budgets(self, policy: PolicyOf) -> None:
        """Only dates of slots that are kept, and later ones."""
        if policy.slots:
            first = min(slot.slot for slot in policy.slots.values())[:10]
            for date in [date for date in policy.budgets if date < first]:
                del policy.budgets[date]


def _newest(policy: PolicyOf) -> int:
    return policy.newest_ms
