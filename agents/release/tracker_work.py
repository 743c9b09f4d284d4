"""A tracker at work in this process, and the releases that it has drawn."""

from dataclasses import dataclass, field

from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.release.tracker import PolicyTracker
from hatcast.stream.release.tracker_records import TrackerRelease


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn release. is_stored: it had a record before the draw, and the same numbers lead to it."""

    proposal: Proposal
    is_stored: bool


@dataclass(slots=True)
class TrackerWork:
    """A tracker at work in this process.

    known     token of the recovery and commit sequence, as of the last commit: if they differ, others have committed
    closed    `date/slot` of the date's slots that are published
    """

    tracker: PolicyTracker
    known: tuple[str, int | None]
    closed: set[str] = field(default_factory=set)

    def is_at(self, date: str) -> bool:
        """Return whether the tracker works on a local date. An earlier date is settled, and its HATs are late."""
        return self.tracker.settled < date == self.tracker.date

    def has_stored(self, release: TrackerRelease) -> bool:
        """Return whether a release had a record before the tracker was at work on its date."""
        return not self.is_at(release.date) or self.tracker.is_known(release.release_id)
