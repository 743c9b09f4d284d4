"""Domain of a ledger recovery: its output topics, policies and sealed days."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.registry import Facts, decode_record
from hatcast.stream.fold.calendar import later
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.ledger.sealed_days import DAY_KEY, SEALED_KEY, Sealed, SealedDay
from hatcast.stream.ledger.transitions import NextPolicy


@dataclass(frozen=True, slots=True)
class Domain:
    """One telemetry topic with all its policies."""

    releases: frozenset[str]  # topics with means and answers, except those of ended policies
    budgets: frozenset[str]  # topics with budget records, except those of ended policies
    partitions: Mapping[str, int] = field(default_factory=dict)  # policy name -> number of its release partitions
    ended: frozenset[str] = frozenset()  # replaced policies of which every day is sealed
    sealed: Mapping[str, Sealed] = field(default_factory=dict)  # policy name -> its seal
    days: tuple[SealedDay, ...] = ()  # summaries of sealed days
    next_policies: Mapping[str, NextPolicy] = field(default_factory=dict)  # policy name -> its next policy

    @property
    def outputs(self) -> frozenset[str]:
        """All output topics."""
        return self.releases | self.budgets

    @property
    def publishing(self) -> dict[str, int]:
        """Policy name -> number of release partitions, of the policies that may still publish."""
        return {name: number for name, number in self.partitions.items() if name not in self.ended}

    def is_sealed(self, name: str, day: str) -> bool:
        """Return whether a local date of a policy is sealed."""
        sealed = self.sealed.get(name)
        return sealed is not None and day <= sealed.through

    def unsealed_from(self, partition: OutputPartition) -> list[Position]:
        """Return positions before which an output partition has only records of sealed days; empty if none is known."""
        return [found for sealed in self.sealed.values() if (found := sealed.read_from(partition)) is not None]

    @classmethod
    def of(cls, facts: Facts, settings: Settings, partitions: int) -> "Domain":
        """Return the domain from the registry, with this worker's policy, which may not be registered yet."""
        registry = settings.topics.registry
        sealed = {
            name: decode_record(registry, f"{SEALED_KEY}{name}", value, Sealed)
            for name, value in facts.of_kind(SEALED_KEY).items()
        }
        ended = frozenset(
            record.replaces
            for record in facts.policies.values()
            if record.replaces in sealed and day_before(record.first_date) <= sealed[record.replaces].through
        )
        topics = settings.topics
        used = [record.topics for name, record in facts.policies.items() if name not in ended]
        return cls(
            releases=frozenset({topics.means, topics.queries, *(name for t in used for name in (t.means, t.queries))}),
            budgets=frozenset({topics.budget, *(t.budget for t in used)}),
            partitions={settings.policy.name: partitions}
            | {name: record.partitions for name, record in facts.policies.items()},
            ended=ended,
            sealed=sealed,
            days=tuple(
                decode_record(registry, f"{DAY_KEY}{name}", value, SealedDay)
                for name, value in facts.of_kind(DAY_KEY).items()
            ),
            next_policies={
                record.replaces: NextPolicy(record.first_date, record.policy)
                for record in facts.policies.values()
                if record.replaces is not None and record.first_date is not None
            },
        )


def day_before(first_date: str | None) -> str:
    """Return the day before a policy's first day; a text after any date if that day is unknown."""
    if first_date is None:
        return "9999-99-99"
    return later(first_date, -1)
