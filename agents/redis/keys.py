"""Redis key names.    [docs/specification/release.md, State in Redis]

Keys of one partition share the hash tag `{name:p}`, keys of a domain `{domain}`: in a Redis Cluster each group
is on one node, so one script can change it in one step.
"""

from dataclasses import dataclass

from hatcast.stream.ledger import rows


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
    def next_policies(self) -> str:
        """See `rows.NEXT_POLICIES`."""
        return self.prefix + rows.NEXT_POLICIES

    @property
    def last(self) -> str:
        """See `rows.LAST`."""
        return self.prefix + rows.LAST

    @property
    def user_key(self) -> str:
        """Hash: `fingerprint` of the user key, and `key` if hatcast generated it."""
        return self.prefix + "user-key"

    @property
    def recovery(self) -> str:
        """See `rows.RECOVERY`."""
        return self.prefix + rows.RECOVERY

    @property
    def ends(self) -> str:
        """See `rows.ENDS`."""
        return self.prefix + rows.ENDS

    @property
    def adopted(self) -> str:
        """See `rows.ADOPTED`."""
        return self.prefix + rows.ADOPTED

    @property
    def oldest(self) -> str:
        """See `rows.OLDEST`."""
        return self.prefix + rows.OLDEST

    @property
    def sequences(self) -> str:
        """See `rows.SEQUENCES`."""
        return self.prefix + rows.SEQUENCES

    @property
    def sealed(self) -> str:
        """See `rows.SEALED`."""
        return self.prefix + rows.SEALED

    def unsealed(self, name: str) -> str:
        """See `rows.unsealed`."""
        return self.prefix + rows.unsealed(name)

    def releases(self, date: str, name: str) -> str:
        """See `rows.releases`."""
        return self.prefix + rows.releases(date, name)

    def published(self, date: str, name: str) -> str:
        """See `rows.published`."""
        return self.prefix + rows.published(date, name)

    def seen(self, date: str, name: str) -> str:
        """See `rows.seen`."""
        return self.prefix + rows.seen(date, name)

    def ledger(self, date: str) -> str:
        """See `rows.ledger`."""
        return self.prefix + rows.ledger(date)

    def costs(self, date: str, name: str) -> str:
        """See `rows.costs`."""
        return self.prefix + rows.costs(date, name)

    def levels(self, date: str, name: str) -> str:
        """See `rows.levels`."""
        return self.prefix + rows.levels(date, name)

    @property
    def total(self) -> str:
        """See `rows.TOTAL`."""
        return self.prefix + rows.TOTAL

    @property
    def announced(self) -> str:
        """See `rows.ANNOUNCED`."""
        return self.prefix + rows.ANNOUNCED

    def progress(self, name: str) -> str:
        """See `rows.progress`."""
        return self.prefix + rows.progress(name)

    def tracker(self, name: str) -> str:
        """See `rows.tracker`."""
        return self.prefix + rows.tracker(name)

    def states(self, name: str, horizon: str) -> str:
        """See `rows.states`."""
        return self.prefix + rows.states(name, horizon)

    def states_before(self, name: str, horizon: str) -> str:
        """See `rows.states_before`."""
        return self.prefix + rows.states_before(name, horizon)

    def horizons(self, name: str) -> str:
        """See `rows.horizons`."""
        return self.prefix + rows.horizons(name)

    def estimates(self, name: str) -> str:
        """String: snapshot of the model behind the estimates of a policy (`hatcast.agents.redis.estimates`)."""
        return f"{self.prefix}estimates:{name}"

    def running(self, name: str) -> str:
        """Hash: local date -> inputs of a policy's running means (`hatcast.agents.redis.estimates`)."""
        return f"{self.prefix}running:{name}"

    @property
    def nonces(self) -> str:
        """See `rows.NONCES`."""
        return self.prefix + rows.NONCES
