"""The names of everything that hatcast keeps in Redis.    [design 4, State in Redis]

Keys of one partition share the hash tag `{name:p}`, keys of a domain `{domain}`: in a Redis Cluster each group
lives on one node, so one script can change it in one step.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one input partition under one policy.

    prefix    begins every key of the partition
    """

    name: str
    partition: int

    @property
    def prefix(self) -> str:
        """`{name:p}:`"""
        return f"{{{self.name}:{self.partition}}}:"

    @property
    def state(self) -> str:
        """Hash: `offset` (the next record to read), `owner` (who may write), `clock`, `gap`; `complete_from` (ms), and
        `lost_from` (ms), the clock at the first gap; `user_key`, the fingerprint of the user key that it was folded
        under, and `made_key`, that key if hatcast made it.
        """
        return self.prefix + "state"

    @property
    def outcomes(self) -> str:
        """Hash: outcome -> records."""
        return self.prefix + "outcomes"

    @property
    def slots(self) -> str:
        """Hash: `date/slot` -> end (ms UTC), of slots with contributions."""
        return self.prefix + "slots"

    def hats(self, slot: str) -> str:
        """Hash: cell -> users, of one slot."""
        return f"{self.prefix}hats:{slot}"

    def chunk(self, slot: str, cell: str, chunk: int) -> str:
        """String: a packed chunk of contributions."""
        return f"{self.prefix}c:{slot}/{cell}/{chunk}"

    @property
    def kept(self) -> str:
        """Hash: `date/slot` -> end (ms UTC), of slots of which something is kept for queries over days."""
        return self.prefix + "kept"

    def kept_hats(self, slot: str) -> str:
        """Hash: cell -> stripped chunks (`stream.packing.strip`), one after the other, of one slot."""
        return f"{self.prefix}k:{slot}"

    @property
    def days(self) -> str:
        """Hash: date -> users."""
        return self.prefix + "days"

    def day_chunk(self, date: str, chunk: int) -> str:
        """String: a packed chunk of a day's users."""
        return f"{self.prefix}d:{date}/{chunk}"


@dataclass(frozen=True, slots=True)
class DomainKeys:
    """The keys of a domain: one telemetry topic, all its policies."""

    domain: str

    @property
    def prefix(self) -> str:
        """`{domain}:`"""
        return f"{{{self.domain}}}:"

    def policy(self, name: str) -> str:
        """Hash: `policy_id`, `canonical`, `partitions`, fixed at the first start under a name."""
        return f"{self.prefix}policy:{name}"

    def registered(self, name: str) -> str:
        """String: a copy of the policy's record in the registry topic."""
        return f"{self.prefix}registered:{name}"

    @property
    def zone(self) -> str:
        """Hash: `timezone`, which all policies share: a day of one has to be a day of the others."""
        return self.prefix + "zone"

    def owner(self, name: str) -> str:
        """Hash: `domain`, the one that a policy's name belongs to: partitions are kept by the name alone."""
        return f"{{{name}:domain}}"

    @property
    def successors(self) -> str:
        """Hash: policy name -> `DATE NAME` of the policy that follows it, and from when."""
        return self.prefix + "successors"

    @property
    def last(self) -> str:
        """Hash: policy name -> the greatest local date with a record of it."""
        return self.prefix + "last"

    @property
    def user_key(self) -> str:
        """Hash: `fingerprint`, and `key` if it was made here."""
        return self.prefix + "user-key"

    @property
    def recovery(self) -> str:
        """Hash: `run_id`, `replid`, `token`: this server, in this life and replication history, holds all that was
        published; `attempt`, `attempt_run_id`, `attempt_replid` of a recovery in progress.
        """
        return self.prefix + "recovery"

    @property
    def ends(self) -> str:
        """Hash: `topic/partition` -> `topic id:offset` to which a recovery in progress reads; none before its fence."""
        return self.prefix + "ends"

    @property
    def adopted(self) -> str:
        """Hash: `topic/partition` -> `topic id:offset` up to which what was published is in the ledger."""
        return self.prefix + "adopted"

    @property
    def oldest(self) -> str:
        """Hash: `topic/partition date policy` -> `topic id:offset` of the first record of a day that is not sealed."""
        return self.prefix + "oldest"

    @property
    def sequences(self) -> str:
        """Hash: `policy/R` -> commits so far of release partition R, each found or new."""
        return self.prefix + "sequences"

    @property
    def sealed(self) -> str:
        """Hash: policy name -> the local date through which its days are sealed."""
        return self.prefix + "sealed"

    def unsealed(self, name: str) -> str:
        """Set: local dates of a policy with records."""
        return f"{self.prefix}unsealed:{name}"

    def releases(self, date: str, name: str) -> str:
        """Hash: release_id -> the record's bytes, which never change. Of one policy."""
        return f"{self.prefix}releases:{date}:{name}"

    def published(self, date: str, name: str) -> str:
        """Set: release_ids whose bytes were acknowledged by Kafka. Of one policy."""
        return f"{self.prefix}published:{date}:{name}"

    def seen(self, date: str, name: str) -> str:
        """Set: release_ids that were found on an output topic before Kafka had acknowledged them. Of one policy."""
        return f"{self.prefix}seen:{date}:{name}"

    def ledger(self, date: str) -> str:
        """Hash: `sequence`, `cost` and `limit`; by policy name `commits:`, `releases:`, `epsilon:`, `cap:`, `cost:`,
        `fineness:..:f` (charges), `query:..:q` (`PLACESxEPSILON` of a query over days), `told:..:q` (the most places
        that an output topic told of) and `reserved:`, the sum of what queries take.

        Epsilons are in 1e-9; `cost` is what the day costs one user, `limit` the least of those that charged it.
        """
        return f"{self.prefix}ledger:{date}"

    def costs(self, date: str, name: str) -> str:
        """Hash: `cell/slot` -> e(cell, slot) under one policy, in 1e-9."""
        return f"{self.prefix}costs:{date}:{name}"

    def levels(self, date: str, name: str = "") -> str:
        """Hash: e -> how many cells and slots have it under one policy. Without a name: what such keys begin with."""
        return f"{self.prefix}levels:{date}:{name}"

    @property
    def total(self) -> str:
        """Hash: `spent` and `limit` (1e-9) of all days: `accounting.Total`."""
        return self.prefix + "total"

    @property
    def announced(self) -> str:
        """Hash: policy name -> `1`, once `hats.budget` has what its private list of cells has cost."""
        return self.prefix + "announced"

    def progress(self, name: str) -> str:
        """Hash of a policy under `add_remove`: `first`, and `committed:R` and `published:R` of release partitions R."""
        return f"{self.prefix}progress:{name}"

    @property
    def dates(self) -> str:
        """Set: local dates with a ledger."""
        return self.prefix + "dates"
