"""What a worker's commits compare, so that a Redis that lost something is noticed before anything is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agents.store.errors import Unrecovered


@dataclass(slots=True)
class CommitGuard:
    """The ledger's recovery and the commit sequences, as this worker knows them.

    token     of the recovery that commits compare; "" while the ledger is not recovered as far as we know
    written   release partition -> the commit sequence that we wrote last; only of partitions that we took over
    seen      the greatest number of commits of the domain that we know of, whoever made them
    """

    token: str = ""
    written: dict[int, int] = field(default_factory=dict)
    seen: int = 0

    def take(self, release_partition: int) -> int:
        """Return the sequence that the next commit compares, and count that commit.

        Raises Unrecovered if the partition was not taken over.
        """
        written = self.written.get(release_partition)
        if not self.token or written is None:
            raise Unrecovered
        self.written[release_partition] = written + 1
        return written

    def own(self, sequences: Mapping[int, int]) -> None:
        """Own these release partitions from now on, whose stored sequences these are."""
        self.written.update(sequences)

    def disown(self, release_partitions: Iterable[int]) -> None:
        """Forget partitions that went to other workers, or whose sequence is in doubt."""
        for release_partition in release_partitions:
            self.written.pop(release_partition, None)

    def reset(self, token: str = "") -> None:
        """Forget everything, but for the token of a recovery that was just seen."""
        self.token = token
        self.written.clear()
        self.seen = 0
