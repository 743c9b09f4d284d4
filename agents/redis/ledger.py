"""The ledger in Redis: one domain's records, marks of publication, and day ledgers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.guard import CommitGuard
from hatcast.agents.redis.horizons import HorizonStore, change_arguments
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_replies import committed_of, kind_of, numbers_of, policies_of, queries_of
from hatcast.agents.redis.policy_transition import claim_args
from hatcast.agents.redis.scripts import Argument, Call, Script
from hatcast.agents.redis.slot_progress import ProgressStore
from hatcast.agents.redis.stored_values import date_of, parsing, record_of, records_of
from hatcast.agents.redis.tracker_state import TrackerStore
from hatcast.stream.ledger.day import Total, largest_charges, user_charges
from hatcast.stream.ledger.proposals import AnswerProposal, Committed, Proposal
from hatcast.stream.ledger.reservations import reservations
from hatcast.stream.ledger.rows import sequence_field
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import DAY_MS

_READ: Final = 1_000  # records in one round trip
_PINNED_MS: Final = 400 * DAY_MS
_NEVER: Final = "9999-99-99"  # greater than every local date


class LedgerStore:
    """The ledger of a domain, for one policy. Errors of redis-py pass through.

    progress   slot progress of the policy, under `add_remove`
    tracker    state of the policy's tracker, if it has one
    horizons   states of the policy's running sums, if it has them
    """

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._name = policy.name
        self.progress = ProgressStore(redis, domain, policy.name)
        self.tracker = TrackerStore(redis, domain, policy.name)
        self.horizons = HorizonStore(redis, domain, policy.name)
        total = policy.total_limit_nano
        self._limits: list[int | str] = [
            policy.max_hats_per_day,
            str(policy.daily_limit_nano),
            "" if total is None else str(total),
        ]
        self._claim = claim_args(policy.name, policy.replaces, policy.from_date)
        self._reservations = partial(reservations, policy)
        self._commit = Script(redis, "commit")
        self._answer = Script(redis, "answer")
        self._summary = Script(redis, "summary")
        self._charging = [policy.name]  # policies that the last summary had charges of: most days have the same

    async def find(self, date: str, release_ids: Sequence[str]) -> list[Committed | None]:
        """Return the stored record of each release, in the same order; None if there is none."""
        if not release_ids:
            return []
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hmget(self._keys.releases(date, self._name), list(release_ids))
            pipe.smismember(self._keys.published(date, self._name), list(release_ids))
            records, published = await pipe.execute()
        key = self._keys.releases(date, self._name)
        return [
            None if record is None else Committed(record_of(key, release_id, record), bool(mark), new=False)
            for release_id, record, mark in zip(release_ids, records, published, strict=True)
        ]

    async def records(self, date: str) -> dict[str, bytes]:
        """Return release_id -> record of all stored records of a date."""
        names: Any = await self._redis.hkeys(self._keys.releases(date, self._name))  # bytes, but the types allow text
        found: dict[str, bytes] = {}
        for start in range(0, len(names), _READ):
            some = names[start : start + _READ]
            records: Any = await self._redis.hmget(self._keys.releases(date, self._name), some)
            found |= {name.decode(): record for name, record in zip(some, records, strict=True) if record is not None}
        return found

    async def count_missing(self, date: str, release_ids: Sequence[str]) -> int:
        """Count those of these releases that lack a record."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for release_id in release_ids:
                pipe.hexists(self._keys.releases(date, self._name), release_id)
            found = await pipe.execute()
        return found.count(False)

    async def acknowledged(self, date: str, release_ids: Sequence[str]) -> list[bool]:
        """Return whether each of these releases is published, without reading its record."""
        if not release_ids:
            return []
        marks: Any = await self._redis.smismember(self._keys.published(date, self._name), list(release_ids))
        return [bool(mark) for mark in marks]

    async def commit(self, proposals: Sequence[Proposal], guard: CommitGuard) -> list[Committed]:
        """Commit records with their charges, each in one atomic step; a record that is stored already is returned.

        At least the proposal that raises was not written. Raises Unrecovered or Behind if this Redis may have lost
        data, DaySealed if the day is sealed, Replaced if the day belongs to the next policy, Unclaimed if Redis lacks
        the transition to our policy.
        """
        # A closed horizon reserves nothing more.
        wanted = {each.date: self._wanted(each.date) for each in proposals if not each.ends_horizon}
        calls = [self._call(proposal, guard, wanted.get(proposal.date, ())) for proposal in proposals]
        return await self._guarded(self._commit, calls, {proposal.release_partition for proposal in proposals}, guard)

    async def commit_answers(self, proposals: Sequence[AnswerProposal], guard: CommitGuard) -> list[Committed]:
        """Commit answers to queries, each with its reservations, as `commit` does."""
        calls = [self._answer_call(proposal, guard) for proposal in proposals]
        return await self._guarded(self._answer, calls, {proposal.release_partition for proposal in proposals}, guard)

    async def _guarded(
        self, script: Script, calls: Sequence[Call], release_partitions: Iterable[int], guard: CommitGuard
    ) -> list[Committed]:
        """Run commits. After a failure the sequences are uncertain, so the partitions must be taken over again."""
        try:
            committed, guard.seen = committed_of(await script.run_each(calls), guard.seen)
        except BaseException:
            guard.disown(release_partitions)
            raise
        return committed

    def _wanted(self, date: str) -> list[str]:
        """Return the script's arguments about the queries that read a date."""
        return [
            part
            for query, reserved in self._reservations(date).items()
            for part in (query, str(reserved.places), str(reserved.epsilon), kind_of(reserved))
        ]

    def _answer_call(self, proposal: AnswerProposal, guard: CommitGuard) -> Call:
        keys, date, reserved, name = self._keys, proposal.date, proposal.reserved, self._name
        return (
            [
                keys.releases(date, name),
                keys.published(date, name),
                keys.ledger(date),
                keys.recovery,
                keys.total,
                keys.next_policies,
                keys.last,
                keys.dates,
                keys.sequences,
                keys.sealed,
                keys.unsealed(name),
                *(keys.ledger(day) for day in proposal.dates),
            ],
            [
                proposal.release_id,
                name,
                date,
                *self._limits[1:],
                *proposal.record,
                *proposal.exhausted,
                guard.token,
                *self._claim,
                *self._sequence(proposal.release_partition, guard),
                str(guard.seen),
                proposal.query,
                str(reserved.places),
                str(reserved.epsilon),
                *proposal.dates,
            ],
        )

    def _call(self, proposal: Proposal, guard: CommitGuard, wanted: Sequence[str]) -> Call:
        keys, date, name, change = self._keys, proposal.date, self._name, proposal.change
        horizon = None if change is None else change.horizon
        return (
            [
                keys.releases(date, name),
                keys.published(date, name),
                keys.ledger(date),
                keys.costs(date, name),
                keys.levels(date, name),
                keys.dates,
                keys.recovery,
                keys.total,
                keys.next_policies,
                keys.last,
                keys.sequences,
                keys.sealed,
                keys.unsealed(name),
                *([] if horizon is None else keys.of_horizon(name, horizon)),
            ],
            [
                proposal.release_id,
                name,
                date,
                proposal.place,
                str(proposal.charge),
                *self._limits,
                *proposal.record,
                *proposal.exhausted,
                guard.token,
                proposal.fineness,
                *self._claim,
                *self._sequence(proposal.release_partition, guard),
                str(guard.seen),
                *wanted,
                *([] if change is None else change_arguments(change, self._keys, name)),
            ],
        )

    def _sequence(self, release_partition: int, guard: CommitGuard) -> tuple[Argument, ...]:
        """Return the field of a release partition's commit sequence, and its value before this commit."""
        return sequence_field(self._name, release_partition), str(guard.next_sequence(release_partition))

    async def mark_published(self, date: str, release_ids: Sequence[str]) -> None:
        """Store that Kafka has acknowledged these releases."""
        if release_ids:
            await self._redis.sadd(self._keys.published(date, self._name), *release_ids)

    async def dates(self) -> list[str]:
        """Return the local dates with a ledger, oldest first."""
        dates: Any = await self._redis.smembers(self._keys.dates)  # bytes, but the types allow text
        return sorted(date_of(self._keys.dates, date) for date in dates)

    async def sealed_through(self) -> str:
        """Return the local date through which the policy's days are sealed; "" for none."""
        stored = await self._redis.hget(self._keys.sealed, self._name)
        return date_of(self._keys.sealed, stored) if isinstance(stored, bytes) else ""

    async def pin_rules(self, date: str, rules: str) -> None:
        """Fix the rules of a local date for all policies of the domain, unless they are fixed."""
        await self._redis.set(self._keys.rules(date), rules, nx=True, px=_PINNED_MS)

    async def pinned_rules(self, dates: Sequence[str]) -> list[tuple[str, str]]:
        """Return those of these local dates whose rules are fixed, with their rules."""
        found: Any = await self._redis.mget([self._keys.rules(date) for date in dates])
        pairs = zip(dates, found, strict=True)
        return [(date, rules.decode(errors="replace")) for date, rules in pairs if rules is not None]

    async def unsealed_dates(self) -> list[str]:
        """Return the local dates of the policy whose records are in Redis, oldest first."""
        dates: Any = await self._redis.smembers(self._keys.unsealed(self._name))  # bytes, but the types allow text
        return sorted(date_of(self._keys.unsealed(self._name), date) for date in dates)

    async def summary(self, date: str) -> DaySummary:
        """Return a day's ledger, as published on `hats.budget`."""
        keys = self._keys
        names = self._charging
        while True:
            levels = [keys.levels(date, name) for name in names]
            found = await self._summary(keys=[keys.ledger(date), keys.total, *levels], args=[])
            with parsing(keys.ledger(date)):
                self._charging = policies_of(found[0])
                if self._charging == names:
                    return self._summary_of(found, names)
            names = self._charging

    def _summary_of(self, found: Sequence[Any], names: Sequence[str]) -> DaySummary:
        """Return the summary of a reply of summary.lua, with the levels of these policies."""
        day, total = numbers_of(found[0]), numbers_of(found[1])
        queries = queries_of(found[0])
        levels, met = dict[str, Counter[int]](), Counter[int]()
        for name, flat in zip(names, found[2:], strict=True):
            of_hats, cap = {int(e): count for e, count in numbers_of(flat).items()}, day.get(f"cap:{name}")
            levels[name] = largest_charges(of_hats, cap)
            met += user_charges(of_hats, cap, queries.get(name, {}).values())
        fineness = f"fineness:{self._name}:"
        return DaySummary(
            releases=day.get(f"releases:{self._name}", 0),
            epsilon_sum=day.get(f"epsilon:{self._name}", 0),
            epsilon_user_day=day.get("cost", 0),
            shared=day.get("cost", 0) > day.get(f"cost:{self._name}", 0),
            limit=day.get("limit"),
            sequence=day.get("sequence", 0),
            levels=met,
            total=Total(total.get("spent", 0), total.get("limit")),
            policy_levels=levels.get(self._name, {}),
            fineness={int(key.removeprefix(fineness)): n for key, n in day.items() if key.startswith(fineness)},
            queries=queries.get(self._name, {}),
        )

    async def next_policy(self) -> NextPolicy | None:
        """Return our policy's next policy, or None."""
        stored = await self._redis.hget(self._keys.next_policies, self._name)
        with parsing(self._keys.next_policies):
            return NextPolicy.of(stored) if isinstance(stored, bytes) else None

    async def end_date(self) -> str:
        """Return the local date on which the next policy takes over; without one, a date greater than every other."""
        next_policy = await self.next_policy()
        return _NEVER if next_policy is None else next_policy.from_date

    async def total(self) -> Total:
        """Return the cost of all days for one user."""
        spent, limit = await self._redis.hmget(self._keys.total, ["spent", "limit"])
        with parsing(self._keys.total):
            return Total(int(spent or 0), None if limit is None else int(limit))

    async def unpublished_records(self, date: str) -> dict[str, bytes]:
        """Return release_id -> record of a day's records that Kafka has not acknowledged."""
        names: Any = await self._redis.hkeys(self._keys.releases(date, self._name))  # bytes, but the types allow text
        published = await self._redis.smembers(self._keys.published(date, self._name))
        wanted = sorted(set(names) - set(published))
        if not wanted:
            return {}
        records: Any = await self._redis.hmget(self._keys.releases(date, self._name), wanted)
        return records_of(self._keys.releases(date, self._name), wanted, records)

    async def count_unpublished(self, date: str) -> int:
        """Return how many records of a day Kafka has not acknowledged."""
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hlen(self._keys.releases(date, self._name))
            pipe.scard(self._keys.published(date, self._name))
            records, published = await pipe.execute()
        return int(records) - int(published)
