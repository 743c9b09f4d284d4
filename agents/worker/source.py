"""A topic to fold, and what its ingest needs from the worker."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from hatcast.agents.monitoring.declarations import REPORTS
from hatcast.agents.monitoring.kinds import Counter
from hatcast.agents.redis.identity import StoredKey
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.worker.drain_limits import Drain
from hatcast.stream.fold.partition_fold import PartitionFold


@dataclass(frozen=True, slots=True)
class Source:
    """A topic to fold, and its parts.

    group       the consumer group
    store       the state of the topic's partitions
    make_fold   makes a partition's empty fold
    counter     counts stored records by outcome
    """

    topic: str
    group: str
    store: PartitionStore
    make_fold: Callable[[int], PartitionFold[bytes]]
    counter: Counter

    @property
    def arrivals_by_watermark(self) -> bool:
        """Whether only records that advance the watermark count as arrivals.

        Anybody may send reports, and could otherwise hold a partition's watermark back for ever with old records.
        """
        return self.counter is REPORTS


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Options of an ingest, and the callbacks to its worker.

    fail           ends the worker; called with a HatcastError or an unexpected error
    accept_gap     continue after records were deleted unread, instead of raising
    drain          limits of a drain; None: the worker does not drain
    user_key       under which the partitions are folded
    restore        restores the policy and the user key in Redis; called whenever a state is loaded
    confirm_topic  checks that the topic is still the registered one; None if the broker has no topic ids
    open_dates     compares the rules of the dates that open in a partition, before they are stored
    on_rollback    called if a stored offset is not the one that was stored last
    """

    fail: Callable[[Exception], None]
    accept_gap: bool = False
    drain: Drain | None = None
    user_key: StoredKey | None = None
    restore: Callable[[], Awaitable[None]] | None = None
    confirm_topic: Callable[[], Awaitable[None]] | None = None
    open_dates: Callable[[Mapping[str, str]], Awaitable[Mapping[str, str]]] | None = None
    on_rollback: Callable[[], None] = lambda: None
