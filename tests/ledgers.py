"""A ledger in memory, and what any ledger has to be: by the definition, without levels, books or rows."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from hatcast.agents.ledger.sqlite import SCHEMA, SqliteStore
from hatcast.agents.sqlite import execute_all
from hatcast.stream.ledger.day import Reserved, reservations
from hatcast.stream.ledger.proposals import AnswerProposal, Proposal, numbered
from hatcast.stream.policy.policy import Policy

NO_LIMIT = float("inf")


Rows = dict[str, dict[str, bytes]]
"""Key -> field -> value"""


class MemoryStore(SqliteStore):
    """The store of a file, in memory; its rows can be copied and brought back."""

    def __init__(self) -> None:
        database = sqlite3.connect(":memory:", isolation_level=None)
        execute_all(database, SCHEMA)
        super().__init__(database)

    @property
    def rows(self) -> Rows:
        found: Rows = {}
        for key, name, value in self._database.execute("SELECT key, field, value FROM ledger"):
            found.setdefault(key, {})[name] = value
        return found

    def restore(self, copy: Rows) -> None:
        self._database.execute("DELETE FROM ledger")
        found = [(key, name, value) for key, fields in copy.items() for name, value in fields.items()]
        self._database.executemany("INSERT INTO ledger VALUES (?, ?, ?)", found)


@dataclass
class Model:
    """What was charged, reserved and recorded.

    charged    (date, policy) -> `cell/slot` -> sum of its charges (1e-9)
    reserved   (date, policy) -> query -> its reservation; one that had no room has 0 places
    states     (policy, horizon, cell) -> state of its running sum
    """

    policies: Mapping[str, Policy]
    charged: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    reserved: dict[tuple[str, str], dict[str, Reserved]] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    total_limit: float = NO_LIMIT
    records: dict[str, bytes] = field(default_factory=dict)
    commits: Counter[tuple[str, str]] = field(default_factory=Counter)
    sequence: Counter[str] = field(default_factory=Counter)
    releases: Counter[tuple[str, str]] = field(default_factory=Counter)
    states: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    closed: dict[tuple[str, str], str] = field(default_factory=dict)

    def copy(self) -> "Model":
        return replace(
            deepcopy(replace(self, policies={})),
            policies=self.policies,
        )

    def cost(self, date: str) -> int:
        """By the definition: of each policy the K largest e(cell, slot), and its reservations."""
        hats = sum(
            sum(sorted(e.values(), reverse=True)[: self.policies[name].max_hats_per_day])
            for (of, name), e in self.charged.items()
            if of == date
        )
        queries = [each for (of, _), by_name in self.reserved.items() if of == date for each in by_name.values()]
        return hats + sum(each.places * each.epsilon for each in queries)

    @property
    def total(self) -> int:
        return sum(map(self.cost, {date for date, _ in self.charged.keys() | self.reserved.keys()}))

    def commit(self, policy: Policy, proposal: Proposal | AnswerProposal) -> bytes | None:
        """Return the record of a release; None if its running sum was drawn from another state."""
        if proposal.release_id in self.records:
            return self.records[proposal.release_id]
        if isinstance(proposal, AnswerProposal):
            has_room = self._answer(policy, proposal)
        else:
            if not self._follows(policy, proposal):
                return None
            has_room = self._charge(policy, proposal)
        self.sequence[proposal.date] += 1
        self.commits[proposal.date, policy.name] += 1
        record = proposal.record if has_room else proposal.exhausted
        self.records[proposal.release_id] = numbered(record, self.commits[proposal.date, policy.name])
        return self.records[proposal.release_id]

    def reserve(self, policy: Policy, date: str, query: str, cost: Reserved) -> bool:
        """Return whether a cost is decided now; it is booked with 0 places without room."""
        by_name = self.reserved.setdefault((date, policy.name), {})
        if query in by_name:
            return False
        by_name[query] = cost
        if self._fits(date, policy) or cost.is_spent:
            self._spend(date, policy)
        else:
            by_name[query] = Reserved(0, cost.epsilon)
        return True

    def book_spent(self, policy: Policy, dates: Sequence[str]) -> None:
        for date in dates:
            self.sequence[date] += self.reserve(policy, date, "cells", reservations(policy, date)["cells"])

    def _charge(self, policy: Policy, proposal: Proposal) -> bool:
        date, change = proposal.date, proposal.change
        wanted = {} if proposal.ends_horizon else reservations(policy, date)
        for query, cost in wanted.items():
            self.reserve(policy, date, query, cost)
        reserved = self.reserved.get((date, policy.name), {})
        has_room = all(reserved[query].places for query, cost in wanted.items() if cost.is_required)
        if has_room and proposal.charge:
            e = self.charged.setdefault((date, policy.name), Counter())
            e[proposal.place] += proposal.charge
            has_room = self._fits(date, policy)
            if has_room:
                self._spend(date, policy)
                self.releases[date, policy.name] += 1
            else:
                e[proposal.place] -= proposal.charge
        if change is not None:
            horizon = policy.name, change.horizon
            if not has_room or change.closes is not None:
                self.closed.setdefault(horizon, change.closes or "budget_exhausted")
            elif change.after is not None:
                self.states[(*horizon, change.cell)] = change.after
        return has_room

    def _answer(self, policy: Policy, proposal: AnswerProposal) -> bool:
        for date in proposal.dates:
            self.sequence[date] += self.reserve(policy, date, proposal.query, proposal.reserved)
        return all(self.reserved[date, policy.name][proposal.query].places for date in proposal.dates)

    def _follows(self, policy: Policy, proposal: Proposal) -> bool:
        change = proposal.change
        if change is None or change.after is None:
            return True
        stored = self.states.get((policy.name, change.horizon, change.cell))
        return (policy.name, change.horizon) not in self.closed and stored == change.before

    def _fits(self, date: str, policy: Policy) -> bool:
        limit = min(self.limits.get(date, NO_LIMIT), policy.daily_limit_nano)
        of_all = min(self.total_limit, NO_LIMIT if policy.total_limit_nano is None else policy.total_limit_nano)
        return self.cost(date) <= limit and self.total <= of_all

    def _spend(self, date: str, policy: Policy) -> None:
        self.limits[date] = min(self.limits.get(date, NO_LIMIT), policy.daily_limit_nano)
        if policy.total_limit_nano is not None:
            self.total_limit = min(self.total_limit, policy.total_limit_nano)
