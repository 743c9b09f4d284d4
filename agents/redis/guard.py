"""The commit guard: each commit compares it with Redis, so that lost data is detected before anything is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hatcast.stream.ledger.commits import Guard


@dataclass(slots=True)
class CommitGuard:
    """The recovery token and the commit sequences that this worker knows.

    token        of the finished recovery, which commits compare; "" while the ledger is not known to be recovered
    written      release partition -> the commit sequence that this worker wrote last; only for partitions it took over
    commits      the greatest number of the domain's commits that this worker knows, its own or others'
    newest       generation and token of the newest recovery that this worker knows; kept by `reset`
    """

    token: str = ""
    written: dict[int, int] = field(default_factory=dict)
    commits: int = 0
    newest: tuple[int, str] = (0, "")

    @property
    def known(self) -> Guard:
        """What the next commit compares."""
        return Guard(self.token, dict(self.written), self.commits)

    def count(self, release_partition: int, new: bool) -> None:  # noqa: FBT001 - of one call
        """Note that a commit of a release partition was applied, or found its record."""
        if release_partition in self.written:
            self.written[release_partition] += new

    def own(self, sequences: Mapping[int, int]) -> None:
        """Take over these release partitions, with their stored sequences."""
        self.written.update(sequences)

    def disown(self, release_partitions: Iterable[int]) -> None:
        """Drop release partitions that moved to other workers, or whose sequence is uncertain."""
        for release_partition in release_partitions:
            self.written.pop(release_partition, None)

    def reset(self, token: str = "") -> None:
        """Drop all release partitions, and set the token of a recovery that was just read."""
        self.token = token
        self.written.clear()
        self.commits = 0
