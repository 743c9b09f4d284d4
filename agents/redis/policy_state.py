"""Rows of a policy in the ledger beside its releases: the transition to the next policy, slot progress, spent cells,
and reservations of clusterings.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.row_store import DomainRows
from hatcast.agents.redis.stored_values import parsing
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import progress, rows
from hatcast.stream.ledger.commits import Reservation, announce_spent, book_spent, dates_rows, reserve
from hatcast.stream.ledger.date_rules import rules_rows
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.progress import Mark, Progress
from hatcast.stream.ledger.recovery import RECOVERED_ROWS
from hatcast.stream.ledger.transitions import AlreadyBegun, NextPolicy, claim
from hatcast.stream.ledger.view import Wanted, merged
from hatcast.stream.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy that this domain has started."""

    from_date: str | None  # its own first local date, if it replaces another policy
    partitions: int  # number of telemetry partitions at its first start; 0 if Redis has lost it


class PolicyTransitionStore(DomainRows):
    """The policy transitions of a domain."""

    async def next_policy(self, name: str) -> NextPolicy | None:
        """Return a policy's next policy, or None."""
        return await self._next_policy(name)

    async def claim(self, replaced: str, next_policy: NextPolicy) -> NextPolicy | AlreadyBegun:
        """Store a policy's next policy unless one is stored, and return the stored one.

        AlreadyBegun, checked in the same atomic step, if the replaced policy has released a date of the next policy.
        """
        wanted: Wanted = {rows.NEXT_POLICIES: {replaced}, rows.LAST: {replaced}}
        return await self._rows.decide(
            wanted, lambda view: claim(view, replaced, next_policy.from_date, next_policy.name)
        )

    async def known(self, name: str) -> StoredPolicy | None:
        """Return a policy of this domain; None if it was never started here and has never released anything."""
        policy: Any = await self._redis.hmget(self._keys.policy(name), ["canonical", "partitions"])
        canonical, partitions = policy
        if canonical is not None:
            with parsing(self._keys.policy(name)):
                return StoredPolicy(msgspec.json.decode(canonical).get("from"), int(partitions))
        released = await self._field(rows.LAST, name)
        key = self._keys.row(rows.NEXT_POLICIES)
        stored: Any = await self._redis.hgetall(key)  # bytes, but the types allow for text
        with parsing(key):
            from_dates = [each.from_date for each in map(NextPolicy.of, stored.values()) if each.name == name]
        if released is None and not from_dates:
            return None
        return StoredPolicy(from_dates[0] if from_dates else None, 0)

    async def last_date(self, name: str) -> str | None:
        """Return a policy's last local date with a record, or None."""
        stored = await self._field(rows.LAST, name)
        with parsing(self._keys.row(rows.LAST)):
            return None if stored is None else stored.decode()

    async def domain_of(self, name: str) -> str | None:
        """Return the telemetry topic on which a policy of this name was started, or None."""
        stored = await self._redis.hget(self._keys.owner(name), "domain")
        return stored.decode() if isinstance(stored, bytes) else None


class ProgressStore(DomainRows):
    """Slot progress of one policy."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        super().__init__(redis, domain)
        self._name = name
        self._wanted: Wanted = {rows.progress(name): None}

    async def read(self) -> Progress:
        """Return the stored progress."""
        return await self._rows.look(self._wanted, lambda view: progress.progress_of(view, self._name))

    async def restore(self, first_ms: int, done_ms: int = 0, release_partitions: Iterable[int] = ()) -> None:
        """Restore lost progress: the first slot, and that all slots that end by `done_ms` are published."""
        own = list(release_partitions)
        await self._rows.decide(self._wanted, lambda view: progress.restore(view, self._name, first_ms, done_ms, own))

    async def advance(self, mark: Mark, release_partitions: Iterable[int], end_ms: int, token: str) -> Progress:
        """Raise a mark to the end of a slot; return the progress after that.

        Raises Unrecovered, and writes nothing, if the ledger is not recovered under this token.
        """
        own = list(release_partitions)
        wanted = merged(self._wanted, RECOVERED_ROWS)
        await self._rows.decide(wanted, lambda view: progress.advance(view, self._name, mark, own, end_ms, token))
        return await self.read()


class SpentStore(DomainRows):
    """The cost that a policy has spent before its first release."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        super().__init__(redis, domain)
        self._policy = policy

    @property
    def dates(self) -> list[str]:
        """The local dates that the selection of the cells has read."""
        return [] if self._policy.selection_cost is None else self._policy.selection_cost.dates

    async def book(self) -> list[str]:
        """Book the cost on each date on which it is not booked yet; return these dates."""
        wanted = dates_rows(self._policy, self.dates)
        return await self._rows.decide(wanted, lambda view: book_spent(view, self._policy, self.dates))

    async def is_announced(self) -> bool:
        """Return whether the cost of every date is on `hats.budget`."""
        return bool(await self._redis.hexists(self._keys.row(rows.ANNOUNCED), self._policy.name))

    async def confirm(self) -> bool:
        """Store that every cost is on `hats.budget`; False if Redis had lost some, which are then booked again."""
        wanted = merged(dates_rows(self._policy, self.dates), {rows.ANNOUNCED: {self._policy.name}})
        return await self._rows.decide(wanted, lambda view: announce_spent(view, self._policy, self.dates))


class ClusteringStore(DomainRows):
    """Costs of a policy's clusterings."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        super().__init__(redis, domain)
        self._policy = policy
        self._calendar = Calendar(policy)

    async def policy_id(self) -> str | None:
        """Return the policy_id under which this policy was started; None if it was not, or Redis has lost it."""
        stored = await self._redis.hget(self._keys.policy(self._policy.name), "policy_id")
        return stored.decode() if isinstance(stored, bytes) else None

    async def reserve(self, query: str, date: str, epsilon_nano: int) -> Reservation:
        """Reserve an epsilon (1e-9) for each user of a local date, once for each query name.

        Raises Unrecovered, DaySealed, Replaced or Exhausted, and HatcastError if the domain's policies release the date
        by other rules: then nothing was written.
        """
        policy, cost = self._policy, Reserved(1, epsilon_nano)
        wanted = merged(dates_rows(policy, [date]), rules_rows(policy.name, [date]))
        return await self._rows.decide(wanted, lambda view: reserve(view, policy, query, date, cost, self._calendar))
