"""Redis key names.    [docs/specification/release.md, State in Redis]

Keys of one partition share the hash tag `{name:p}`, keys of a domain `{domain}`: in a Redis Cluster each group
is on one node, so one script can change it in one step.
"""

from dataclasses import dataclass

# Stored names keep the words that the code had first, so that a stored state stays readable:
#
# | stored name | word in the code |
# |---|---|
# | `clock` | watermark |
# | `outcome:tick` | heartbeat: `Outcome.HEARTBEAT` |
# | `kept`, `k:` | retained |
# | `successors` | next policies: `rows.NEXT_POLICIES` |
# | `told` | what a topic has reported of a reservation |


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one input partition under one policy.

    prefix    start of every key of the partition
    """

    name: str
    partition: int

    @property
    def prefix(self) -> str:
        """`{name:p}:`"""
        return f"{{{self.name}:{self.partition}}}:"

    @property
    def state(self) -> str:
        """Hash: fold state of the partition, and its index.

        `offset` (the next record to read), `owner` (token of the only writer), `clock` (watermark, ms), `gap`,
        `complete_from` (ms), `lost_from` (ms, the watermark at the first gap); `user_key`, the fingerprint of the user
        key of its pseudonyms, and `made_key`, that key if hatcast generated it; `outcome:NAME` (records);
        `rules`, JSON: the rules of each local date that has opened in the partition.
        Of the index: `slot:date/slot` -> end (ms UTC) and number of cells with contributions; `day:date` -> users;
        `journal` (blocks), `kept` (slots with retained contributions), and `nonce`, 128 random bits that every writer
        replaces: whoever derived keys from the index compares it.
        """
        return self.prefix + "state"

    def hats(self, slot: str) -> str:
        """Hash: cell -> users, of one slot."""
        return f"{self.prefix}hats:{slot}"

    def chunk(self, slot: str, cell: str, chunk: int) -> str:
        """String: one packed chunk of contributions."""
        return f"{self.prefix}c:{slot}/{cell}/{chunk}"

    @property
    def journal(self) -> str:
        """Hash: number -> block of readings that were accepted since the chunks were written, of open slots."""
        return self.prefix + "journal"

    def journal_block(self, number: int) -> str:
        """Return the name of a block of the journal, for its checksum."""
        return f"{self.journal}/{number}"

    @property
    def retained(self) -> str:
        """Hash: `date/slot` -> number of cells with retained contributions."""
        return self.prefix + "kept"

    def retained_hats(self, slot: str) -> str:
        """Hash: cell -> concatenated stripped chunks (`hatcast.stream.fold.packing.strip`), of one slot."""
        return f"{self.prefix}k:{slot}"

    def day_chunk(self, date: str, chunk: int) -> str:
        """String: one packed chunk of a day's users."""
        return f"{self.prefix}d:{date}/{chunk}"


@dataclass(frozen=True, slots=True)
class DomainKeys:
    """The keys of a domain, which is one telemetry topic with all its policies."""

    domain: str

    @property
    def prefix(self) -> str:
        """`{domain}:`"""
        return f"{{{self.domain}}}:"

    def row(self, name: str) -> str:
        """Hash, string or set of a row of the ledger, by its name in `hatcast.stream.ledger.rows`."""
        return self.prefix + name

    def policy(self, name: str) -> str:
        """Hash: `policy_id`, `canonical`, `partitions`, stored at the policy's first start."""
        return f"{self.prefix}policy:{name}"

    def registered(self, name: str) -> str:
        """String: a copy of the policy's record in the registry topic."""
        return f"{self.prefix}registered:{name}"

    @property
    def zone(self) -> str:
        """Hash: `timezone` of all policies of the domain, so that their local days are the same."""
        return self.prefix + "zone"

    def owner(self, name: str) -> str:
        """Hash: `domain` of a policy name, because partition keys contain only the policy name."""
        return f"{{{name}:domain}}"

    @staticmethod
    def opening(name: str, date: str) -> str:
        """String: rules of a policy's local date that is opening; expires."""
        return f"{{{name}:domain}}:opening:{date}"

    @property
    def user_key(self) -> str:
        """Hash: `fingerprint` of the user key, and `key` if hatcast generated it."""
        return self.prefix + "user-key"

    def estimates(self, name: str) -> str:
        """String: snapshot of the model behind the estimates of a policy (`hatcast.agents.redis.estimates`)."""
        return f"{self.prefix}estimates:{name}"

    def running(self, name: str) -> str:
        """Hash: local date -> inputs of a policy's free running means (`hatcast.agents.redis.estimates`).

        They are published numbers. `running:H:NAME` of a horizon H (`rows.states`) is private: states of running sums.
        """
        return f"{self.prefix}running:{name}"
