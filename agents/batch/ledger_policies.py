"""Policies of a ledger file: each is stored by its first run and never changes, and one may replace another."""

import sqlite3
from pathlib import Path

import msgspec

from hatcast.agents.ledger.sqlite import SqliteStore
from hatcast.agents.ledger.store import at_once, decide
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.transitions import AlreadyBegun, NextPolicy, claim
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys


def claim_policy(database: sqlite3.Connection, path: Path, policy: Policy) -> None:
    """Store the policy of a first run; reject a changed policy, and one that cannot replace the one that it names."""
    policies = {
        name: (policy_id, msgspec.json.decode(canonical), canonical)
        for name, policy_id, canonical in database.execute("SELECT name, policy_id, canonical FROM policies")
    }
    ours = policies.get(policy.name)
    if ours is not None and ours[0] != policy.policy_id:
        raise HatcastError(
            f"{path}: policy {policy.name!r} was started with another {differing_keys(ours[2], policy.canonical)}: a"
            " policy does not change; restore it, or start the new one under a new policy.name"
        )
    for _, other, _ in policies.values():
        if other["timezone"] != policy.timezone:
            raise HatcastError(
                f"{path}: its policies have the policy.timezone {other['timezone']!r}, and all must have the same local"
                " days: use that"
            )
    if policy.replaces is not None and policy.from_date is not None:
        if policy.replaces not in policies:
            raise HatcastError(
                f"{path}: policy {policy.replaces!r} was never run on this file: correct policy.replaces, or remove it"
            )
        _follow(database, path, policy, policies[policy.replaces][1].get("from"))
    database.execute(
        "INSERT OR IGNORE INTO policies VALUES (?, ?, ?)", (policy.name, policy.policy_id, policy.canonical)
    )


def _follow(database: sqlite3.Connection, path: Path, policy: Policy, begins: str | None) -> None:
    """Store the transition from the policy that this one replaces, which itself `begins` on a date."""
    old, first = str(policy.replaces), str(policy.from_date)
    if begins is not None and first <= begins:
        raise HatcastError(f"{path}: policy.from {first}: {old!r} itself begins on {begins}: use a later date")
    wanted = {rows.NEXT_POLICIES: {old}, rows.LAST: {old}}
    claimed = at_once(decide(SqliteStore(database), wanted, lambda view: claim(view, old, first, policy.name)))
    if isinstance(claimed, AlreadyBegun):
        raise HatcastError(
            f"{path}: policy.from {first} has begun: {old!r} has already released {claimed.last}; use a later date"
        )
    if claimed != NextPolicy(first, policy.name):
        raise HatcastError(
            f"{path}: policy {old!r} is replaced by {claimed.name!r} from {claimed.from_date} on: set policy.replaces"
            f" to {claimed.name!r}, with a later policy.from"
        )
