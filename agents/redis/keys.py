"""Redis key names.    [docs/specification/release.md, State in Redis]

Keys of one partition share the hash tag `{name:p}`, keys of a domain `{domain}`: in a Redis Cluster each group
is on one node, so one script can change it in one step.
"""

from dataclasses import dataclass


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
        """Hash: policy name -> `DATE NAME`, its next policy and that policy's first local date."""
        return self.prefix + "successors"

    @property
    def last(self) -> str:
        """Hash: policy name -> its last local date with a record."""
        return self.prefix + "last"

    @property
    def user_key(self) -> str:
        """Hash: `fingerprint` of the user key, and `key` if hatcast generated it."""
        return self.prefix + "user-key"

    @property
    def recovery(self) -> str:
        """Hash: ledger recovery.

        `run_id`, `replid`, `token`: this server process, with this replication history, has every published record.
        `attempt`, `attempt_run_id`, `attempt_replid`: the same of a recovery in progress.
        """
        return self.prefix + "recovery"

    @property
    def ends(self) -> str:
        """Hash: `topic/partition` -> `topic id:offset`, the end of a recovery in progress; empty before its fence."""
        return self.prefix + "ends"

    @property
    def adopted(self) -> str:
        """Hash: `topic/partition` -> `topic id:offset`, up to which the ledger contains all published records."""
        return self.prefix + "adopted"

    @property
    def oldest(self) -> str:
        """Hash: `topic/partition date policy` -> `topic id:offset`, the first record of an unsealed day."""
        return self.prefix + "oldest"

    @property
    def sequences(self) -> str:
        """Hash: `policy/R` -> number of commits of release partition R, both new ones and those already stored."""
        return self.prefix + "sequences"

    @property
    def sealed(self) -> str:
        """Hash: policy name -> its last sealed local date."""
        return self.prefix + "sealed"

    def unsealed(self, name: str) -> str:
        """Set: local dates of a policy whose records are stored."""
        return f"{self.prefix}unsealed:{name}"

    def releases(self, date: str, name: str) -> str:
        """Hash: release_id -> record bytes, which never change; of one policy and date."""
        return f"{self.prefix}releases:{date}:{name}"

    def published(self, date: str, name: str) -> str:
        """Set: release_ids whose bytes Kafka has acknowledged; of one policy and date."""
        return f"{self.prefix}published:{date}:{name}"

    def seen(self, date: str, name: str) -> str:
        """Set: release_ids found on an output topic before Kafka had acknowledged them; of one policy and date."""
        return f"{self.prefix}seen:{date}:{name}"

    def ledger(self, date: str) -> str:
        """Hash: ledger of a local date.

        `sequence`, `cost`, `limit`; by policy name `commits:`, `releases:`, `epsilon:`, `cap:`, `cost:`,
        `fineness:..:f` (charges), `query:..:q` (`PLACESxEPSILON` of a query over days), `told:..:q` (the most places
        that an output topic has reported) and `reserved:`, the sum of the reservations.
        Epsilons are in 1e-9; `cost` is the day's cost for one user, `limit` the least limit of the charging policies.
        """
        return f"{self.prefix}ledger:{date}"

    def costs(self, date: str, name: str) -> str:
        """Hash: `cell/slot` -> e(cell, slot) under one policy (1e-9)."""
        return f"{self.prefix}costs:{date}:{name}"

    def levels(self, date: str, name: str) -> str:
        """Hash: e -> number of cells and slots with that e under one policy."""
        return f"{self.prefix}levels:{date}:{name}"

    @property
    def total(self) -> str:
        """Hash: `spent` and `limit` (1e-9) of all days: `accounting.Total`."""
        return self.prefix + "total"

    @property
    def announced(self) -> str:
        """Hash: policy name -> `1`, once the cost of its private list of cells is on `hats.budget`."""
        return self.prefix + "announced"

    def progress(self, name: str) -> str:
        """Hash: `first`, and `committed:R` and `published:R` by release partition R; of a policy under `add_remove`."""
        return f"{self.prefix}progress:{name}"

    def tracker(self, name: str) -> str:
        """Hash: `date`, the last local date that a policy's tracker has settled, and `state` after it."""
        return f"{self.prefix}tracker:{name}"

    def states(self, name: str, horizon: str) -> str:
        """Hash: cell -> state of its running sum, of a policy and horizon. Private."""
        return f"{self.prefix}running:{horizon}:{name}"

    def states_before(self, name: str, horizon: str) -> str:
        """Hash: cell -> release_id of its last release and the state before, until that release is published."""
        return f"{self.prefix}running-before:{horizon}:{name}"

    def horizons(self, name: str) -> str:
        """Hash: horizons of a policy.

        By horizon `cells:` (number of cells with a state) and `closed:` (status with which it ended early); `lost`, the
        last date of the sealed days that this Redis has lacked.
        """
        return f"{self.prefix}horizons:{name}"

    def of_horizon(self, name: str, horizon: str) -> list[str]:
        """Return the keys of a horizon, in the order of the scripts."""
        return [self.states(name, horizon), self.states_before(name, horizon), self.horizons(name)]

    def estimates(self, name: str) -> str:
        """String: snapshot of the model behind the estimates of a policy (`hatcast.agents.redis.estimates`)."""
        return f"{self.prefix}estimates:{name}"

    def running(self, name: str) -> str:
        """Hash: local date -> inputs of a policy's running means (`hatcast.agents.redis.estimates`)."""
        return f"{self.prefix}running:{name}"

    @property
    def dates(self) -> str:
        """Set: local dates with a ledger."""
        return self.prefix + "dates"
