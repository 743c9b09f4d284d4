"""The ledger in Redis: one domain's records, marks of publication, and day ledgers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hatcast.agents.ledger.store import RecentRows
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.policy_state import ProgressStore
from hatcast.agents.redis.row_store import DomainRows, take_turns
from hatcast.agents.redis.stored_values import date_of, number_of, parsing, record_of, records_of
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import date_rules, rows
from hatcast.stream.ledger.book import whole_total
from hatcast.stream.ledger.commits import AnyProposal, Guard, Rejection, commit, commit_rows
from hatcast.stream.ledger.day import Total
from hatcast.stream.ledger.progress import state_of, store_tracker_state
from hatcast.stream.ledger.proposals import Committed
from hatcast.stream.ledger.recovery import RECOVERED_ROWS
from hatcast.stream.ledger.summary import DaySummary, charging, summary_of, summary_rows
from hatcast.stream.ledger.sums import StoredStates, drop_horizon, states_of, states_rows
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.ledger.view import DamagedRow, Decision, Draft, TooLarge, View, Wanted, merged
from hatcast.stream.policy.policy import Policy


@dataclass(slots=True)
class CommitGuard:
    """The recovery token and the commit sequences that this worker knows."""

    token: str = ""  # of the finished recovery, which commits compare; "" while the ledger is not known to be recovered
    # release partition -> the commit sequence that this worker wrote last; only for partitions it took over
    written: dict[int, int] = field(default_factory=dict)
    commits: int = 0  # the greatest number of the domain's commits that this worker knows, its own or others'
    # generation and token of the newest recovery that this worker knows; kept by `reset`
    newest: tuple[int, str] = (0, "")

    @property
    def known(self) -> Guard:
        """The state that the next commit compares with the ledger."""
        return Guard(self.token, dict(self.written), self.commits)

    def count(self, release_partition: int, new: bool) -> None:  # noqa: FBT001 - of one call
        """Note that a commit of a release partition was applied, or found its record."""
        if release_partition in self.written:
            self.written[release_partition] += new

    def own(self, sequences: Mapping[int, int]) -> None:
        """Take over these release partitions, with their stored sequences."""
        self.written.update(sequences)

    def disown(self, release_partitions: Iterable[int]) -> None:
        """Drop release partitions that moved to other workers, or whose sequence is uncertain."""
        for release_partition in release_partitions:
            self.written.pop(release_partition, None)

    def reset(self, token: str = "") -> None:
        """Drop all release partitions, and set the token of a recovery that was just read."""
        self.token = token
        self.written.clear()
        self.commits = 0


class HorizonStore(DomainRows):
    """The states of cells in the horizons of one policy.    [docs/specification/release.md, Running sums]

    The apply that writes a record writes the state too: hatcast.stream.ledger.sums.
    """

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        super().__init__(redis, domain)
        self._name = name

    async def read(self, horizon: str, cells: Sequence[str]) -> StoredStates:
        """Return the states of cells in a horizon."""
        wanted = states_rows(self._name, horizon, cells)
        return await self._rows.look(wanted, lambda view: states_of(view, self._name, horizon, cells))

    async def settle(self, horizon: str, cells: Sequence[str]) -> None:
        """Drop the states before the last releases of these cells, which are published now."""
        if cells:
            await self._redis.hdel(self._keys.row(rows.states_before(self._name, horizon)), *cells)

    async def known(self) -> list[str]:
        """Return the horizons with a stored state, oldest first."""
        key = self._keys.row(rows.horizons(self._name))
        fields: Any = await self._redis.hkeys(key)  # bytes, but the types allow text
        with parsing(key):
            names = [field.decode().partition(":") for field in fields]
        return sorted({horizon for kind, _, horizon in names if kind in ("cells", "closed")})

    async def cells(self, horizon: str) -> int:
        """Return the number of cells with a running sum in a horizon."""
        row = rows.horizons(self._name)
        stored = await self._field(row, f"cells:{horizon}")
        return 0 if stored is None else number_of(self._keys.row(row), stored)

    async def drop(self, horizon: str) -> None:
        """Delete the states of a horizon of which every day is sealed, or belongs to the next policy."""
        await self._rows.decide({}, lambda view: drop_horizon(view, self._name, horizon))


class TrackerStore(DomainRows):
    """The state of one policy's tracker, before its next day.    [docs/specification/tracker.md, section 4]"""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        super().__init__(redis, domain)
        self._name = name

    async def read(self) -> bytes | None:
        """Return the state after the last day that was settled; None if there is none. Raises Damaged."""
        wanted: Wanted = {rows.tracker(self._name): {"date", "state"}}
        return await self._rows.look(wanted, lambda view: state_of(view, self._name))

    async def settled(self) -> str:
        """Return the local date through which days are settled; "" if there is none."""
        stored = await self._field(rows.tracker(self._name), "date")
        return "" if stored is None else date_of(self._keys.row(rows.tracker(self._name)), stored)

    async def store(self, date: str, state: bytes, token: str) -> None:
        """Store the state after a local date, unless a later one is stored.

        token   of the finished recovery
        Raises Unrecovered if this Redis may have lost data.
        """
        wanted: Wanted = {rows.tracker(self._name): {"date"}, **RECOVERED_ROWS}
        await self._rows.decide(wanted, lambda view: store_tracker_state(view, self._name, date, state, token))


_READ: Final = 1_000  # records in one round trip
_MANY_STALE: Final = 10  # stale answers in a row, after which a batch is halved: a smaller one is decided faster
_NEVER: Final = "9999-99-99"  # greater than every local date


class _ManyStale(Exception):
    """Other workers changed the rows before each of our applies: nothing was written."""


class LedgerStore(DomainRows):
    """The ledger of a domain, for one policy."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        super().__init__(redis, domain)
        self._recent = RecentRows(self._rows)
        self._policy = policy
        self._name = policy.name
        self.progress = ProgressStore(redis, domain, policy.name)  # slot progress of the policy, under `add_remove`
        self.tracker = TrackerStore(redis, domain, policy.name)  # state of the policy's tracker, if it has one
        self.horizons = HorizonStore(redis, domain, policy.name)  # states of the policy's running sums, if it has them
        self._charging: Collection[str] = ()  # policies that the last summary had charges of: most days have the same

    def _releases(self, date: str) -> str:
        return self._keys.row(rows.releases(date, self._name))

    def _published(self, date: str) -> str:
        return self._keys.row(rows.published(date, self._name))

    async def find(self, date: str, release_ids: Sequence[str]) -> list[Committed | None]:
        """Return the stored record of each release, in the same order; None if there is none."""
        if not release_ids:
            return []
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hmget(self._releases(date), list(release_ids))
            pipe.smismember(self._published(date), list(release_ids))
            records, published = await pipe.execute()
        key = self._releases(date)
        return [
            None if record is None else Committed(record_of(key, release_id, record), bool(mark), new=False)
            for release_id, record, mark in zip(release_ids, records, published, strict=True)
        ]

    async def records(self, date: str) -> dict[str, bytes]:
        """Return release_id -> record of all stored records of a date. Raises Damaged."""
        names: Any = await self._redis.hkeys(self._releases(date))  # bytes, but the types allow text
        found: dict[str, bytes] = {}
        for start in range(0, len(names), _READ):
            some = names[start : start + _READ]
            records: Any = await self._redis.hmget(self._releases(date), some)
            found |= records_of(self._releases(date), some, records)
        return found

    async def count_missing(self, date: str, release_ids: Sequence[str]) -> int:
        """Count those of these releases that lack a record."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for release_id in release_ids:
                pipe.hexists(self._releases(date), release_id)
            found = await pipe.execute()
        return found.count(False)

    async def are_published(self, date: str, release_ids: Sequence[str]) -> list[bool]:
        """Return whether each of these releases is published, without reading its record."""
        if not release_ids:
            return []
        marks: Any = await self._redis.smismember(self._published(date), list(release_ids))
        return [bool(mark) for mark in marks]

    async def commit(self, proposals: Sequence[AnyProposal], guard: CommitGuard) -> list[Committed]:
        """Commit releases or answers with their charges; a record that is stored already is returned.

        The proposal that raises was not written; others may have been. Raises Unrecovered or Behind if this Redis may
        have lost data, DaySealed if a day is sealed, Replaced if it belongs to the next policy, Unclaimed if Redis
        lacks the transition to our policy, Damaged or Overflow if a stored value stopped it.

        After a failure the sequences are uncertain, so the release partitions must be taken over again.
        """
        try:
            return await self._commit(proposals, guard)
        except BaseException:
            guard.disown({each.release_partition for each in proposals})
            raise

    async def _commit(self, proposals: Sequence[AnyProposal], guard: CommitGuard) -> list[Committed]:
        """Commit a batch; in halves, one after the other, if others have been faster too often."""
        known, seen = guard.known, guard.commits

        def decision(view: View) -> Decision[list[Committed | Rejection]]:
            nonlocal seen
            decided = commit(view, self._policy, proposals, known)
            seen = max(known.commits, Draft(view).number(rows.SEQUENCES, rows.ALL))
            return decided

        async def on_stale(times: int) -> None:
            if times == _MANY_STALE and len(proposals) > 1:
                raise _ManyStale
            await take_turns(times)

        try:
            decided = await self._recent.decide(lambda: commit_rows(self._policy, proposals, known), decision, on_stale)
        except _ManyStale:
            half = len(proposals) // 2
            return [each for part in (proposals[:half], proposals[half:]) for each in await self._commit(part, guard)]
        except (DamagedRow, TooLarge) as error:
            raise self._rows.clear(error) from None
        committed = []
        for proposal, each in zip(proposals, decided, strict=True):
            if isinstance(each, DamagedRow | TooLarge):
                raise self._rows.clear(each)
            if isinstance(each, Exception):
                raise each
            guard.count(proposal.release_partition, each.new)
            seen += each.new
            committed.append(each)
        guard.commits = seen
        return committed

    async def published(self, date: str) -> list[str]:
        """Return the ids of all releases and answers of a date that Kafka has acknowledged."""
        key = self._published(date)
        names: Any = await self._redis.smembers(key)  # bytes, but the types allow text
        with parsing(key):
            return [name.decode() for name in names]

    async def mark_published(self, date: str, release_ids: Sequence[str]) -> None:
        """Store that Kafka has acknowledged these releases."""
        if release_ids:
            await self._redis.sadd(self._published(date), *release_ids)

    async def dates(self) -> list[str]:
        """Return the local dates with a ledger, oldest first."""
        fields: Any = await self._redis.hkeys(self._keys.row(rows.NONCES))  # bytes, but the types allow text
        return sorted(date_of(self._keys.row(rows.NONCES), each) for each in fields if each != rows.TOTAL.encode())

    async def sealed_through(self) -> str:
        """Return the local date through which the policy's days are sealed; "" for none."""
        stored = await self._field(rows.SEALED, self._name)
        return "" if stored is None else date_of(self._keys.row(rows.SEALED), stored)

    async def pin_rules(self, date: str, calendar: Calendar) -> None:
        """Pin the rules of a local date for all policies of the domain. Raises HatcastError, as `check_rules`."""
        wanted = date_rules.rules_rows(self._name, [date])
        await self._rows.decide(wanted, lambda view: date_rules.pin(view, self._name, date, calendar))

    async def check_rules(self, dates: Collection[str], calendar: Calendar) -> None:
        """Raise HatcastError if one of these local dates, or one beside it, is pinned to other rules."""
        wanted = date_rules.rules_rows(self._name, dates)
        await self._rows.look(wanted, lambda view: date_rules.check(view, self._name, dates, calendar))

    async def unsealed_dates(self) -> list[str]:
        """Return the local dates of the policy whose records are in Redis, oldest first."""
        key = self._keys.row(rows.unsealed(self._name))
        dates: Any = await self._redis.smembers(key)  # bytes, but the types allow text
        return sorted(date_of(key, date) for date in dates)

    async def summary(self, date: str) -> DaySummary:
        """Return a day's ledger, as published on `hats.budget`."""
        others = {rows.levels(date, name): None for name in self._charging}
        wanted = merged(summary_rows(date, self._policy.name), others)

        def read(view: View) -> DaySummary:
            summary = summary_of(view, self._policy, date)
            self._charging = charging(view, date)
            return summary

        return await self._rows.look(wanted, read)

    async def next_policy(self) -> NextPolicy | None:
        """Return our policy's next policy, or None."""
        return await self._next_policy(self._name)

    async def end_date(self) -> str:
        """Return the local date on which the next policy takes over; without one, a date greater than every other."""
        next_policy = await self.next_policy()
        return _NEVER if next_policy is None else next_policy.from_date

    async def total(self) -> Total:
        """Return the cost of all days for one user."""
        return await self._rows.look({rows.TOTAL: None}, whole_total)

    async def unpublished_records(self, date: str) -> dict[str, bytes]:
        """Return release_id -> record of a day's records that Kafka has not acknowledged."""
        names: Any = await self._redis.hkeys(self._releases(date))  # bytes, but the types allow text
        published = await self._redis.smembers(self._published(date))
        wanted = sorted(set(names) - set(published))
        if not wanted:
            return {}
        records: Any = await self._redis.hmget(self._releases(date), wanted)
        return records_of(self._releases(date), wanted, records)

    async def count_unpublished(self, date: str) -> int:
        """Return how many records of a day Kafka has not acknowledged."""
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hlen(self._releases(date))
            pipe.scard(self._published(date))
            records, published = await pipe.execute()
        return int(records) - int(published)
