"""Rows of a ledger: a value under a key and a field, all text but the values.    [docs/specification/release.md]

A store has the rows of one domain: in Redis a key is a hash or a set of the domain, in a file a part of one table. A
set has its members as fields, with empty values. The rows of a date are those of `ledger`, `costs`, `levels`,
`releases`, `published` and `seen`; each apply that changes any of them but the marks replaces the date's nonce.
"""

from typing import Final

TOTAL: Final = "total"
"""Local date -> cost of that date for one user (1e-9); LIMIT -> least limit of all days of the policies that charged"""
LIMIT: Final = "limit"
NONCES: Final = "nonces"
"""Local date, or TOTAL -> random value that each change of its rows replaces. Not a counter: a store that went back
would count to the same number again, with other rows. A date with a ledger has one"""
SEQUENCES: Final = "sequences"  # `policy/R` -> commits of release partition R; ALL -> commits of the domain
ALL: Final = "*"
SEALED: Final = "sealed"  # policy -> its last sealed local date
NEXT_POLICIES: Final = "successors"  # policy -> `DATE NAME`, its next policy and that one's first local date
LAST: Final = "last"  # policy -> its last local date with a record
RULES: Final = "rules"  # local date -> rules under which all policies of the domain release it: `Calendar.rules_of`
ANNOUNCED: Final = "announced"  # policy -> `1`, once the cost of its private list of cells is on `hats.budget`
RECOVERY: Final = "recovery"
"""`run_id`, `replid`, `token`: this server process, with this replication history, has every published record;
`attempt`, `attempt_run_id`, `attempt_replid`: the same of a recovery in progress; `kept`: its token, once it has kept
what a lost topic may have had; `generation`: of the newest one"""
ENDS: Final = "ends"
"""`topic/partition` -> `topic id:offset`, the end of a recovery in progress; empty before its fence"""
ADOPTED: Final = "adopted"
"""`topic/partition` -> `topic id:offset`, up to which the ledger contains all published records"""
OLDEST: Final = "oldest"  # `topic/partition date policy` -> `topic id:offset`, the first record of an unsealed day
SERVER: Final = "server"  # not stored: `run_id` and `replid` of the server that was read

COUNT: Final = "#"
"""Field of any key, which is not stored: its number of fields"""

_SETS: Final = frozenset({"published", "seen", "unsealed"})


def ledger(date: str) -> str:
    """Ledger of a local date.

    `sequence` (changes), `limit` (1e-9); by policy `commits:`, `releases:`, `epsilon:`, `cap:`, `cost:`, and
    `fineness:NAME:F` (charges), `query:NAME:Q` (`PLACESxEPSILON`), `told:NAME:Q` (places that a topic has
    reported, or may have: a recovery does not take them back).
    """
    return f"ledger:{date}"


def costs(date: str, name: str) -> str:
    """`cell/slot` -> e(cell, slot) under one policy (1e-9)."""
    return f"costs:{date}:{name}"


def levels(date: str, name: str) -> str:
    """e -> number of cells and slots with that e under one policy."""
    return f"levels:{date}:{name}"


def releases(date: str, name: str) -> str:
    """release_id -> record, which never changes; of one policy and date."""
    return f"releases:{date}:{name}"


def published(date: str, name: str) -> str:
    """Set: release_ids whose records Kafka has acknowledged; of one policy and date."""
    return f"published:{date}:{name}"


def seen(date: str, name: str) -> str:
    """Set: release_ids that are not marked as published, and readers may have seen; of one policy and date.

    They were found on an output topic, or may have been on one that lost records.
    """
    return f"seen:{date}:{name}"


def unsealed(name: str) -> str:
    """Set: local dates of a policy whose records are stored."""
    return f"unsealed:{name}"


def states(name: str, horizon: str) -> str:
    """Cell -> state of its running sum, of a policy and horizon. Private.

    `running:NAME`, without a horizon, is of agents/redis/keys.py: published numbers, of which free running means are
    made.
    """
    return f"running:{horizon}:{name}"


def states_before(name: str, horizon: str) -> str:
    """Cell -> release_id of its last release and the state before, until that release is published."""
    return f"running-before:{horizon}:{name}"


def horizons(name: str) -> str:
    """Horizons of a policy: `cells:H` (number of states), `closed:H` (status), `lost` (sealed date)."""
    return f"horizons:{name}"


def tracker(name: str) -> str:
    """`date`, the last local date that a policy's tracker has settled, and `state` after it."""
    return f"tracker:{name}"


def progress(name: str) -> str:
    """`first`, and `committed:R` and `published:R` by release partition R; of a policy under `add_remove` (ms UTC)."""
    return f"progress:{name}"


def sequence_field(name: str, release_partition: int) -> str:
    """Return the field of the commit sequence of a policy's release partition."""
    return f"{name}/{release_partition}"


def is_set(key: str) -> bool:
    """Return whether a key is a set."""
    return key.partition(":")[0] in _SETS
