"""Map state and event source: connects the topic reader to the viewers."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hatcast.agents.clock import now_ms
from hatcast.agents.map.events import EventBatch, EventChunk, EventPosition, Hub, event
from hatcast.agents.map.history import History, PolicyHistory, names_of
from hatcast.agents.map.newest import AnswerIndex, ClusteringIndex, RunningIndex
from hatcast.agents.map.record import Budget, HatRecord, RecordKind
from hatcast.agents.map.rendering import slots_view
from hatcast.agents.monitoring.server import READY

TIMEOUT_MS: Final = 15_000  # a change of partition leaders takes less


class Freshness:
    """Answers of the brokers, partition by partition, and the timestamp of the newest record.

    Both are needed to tell an unreachable broker from a quiet topic: a broker answers every fetch within half a second,
    also when the topic has no new record.
    """

    def __init__(self, started_ms: int) -> None:
        """Args: `started_ms`, when reading began: a partition that never answered is silent since then."""
        self._started_ms = started_ms
        self._answered_ms = [started_ms]
        self._newest_ms: int | None = None

    def answered(self, partitions_ms: Sequence[int | None]) -> None:
        """Store when each partition's broker last answered (ms UTC); None if it never did."""
        self._answered_ms = [self._started_ms if each is None else each for each in partitions_ms]

    def record(self, written_ms: int) -> None:
        """Store that a record was read; `written_ms` is its Kafka timestamp."""
        self._newest_ms = max(written_ms, self._newest_ms or 0)

    @property
    def has_record(self) -> bool:
        """Whether a record was read."""
        return self._newest_ms is not None

    def live(self, now_ms: int) -> bool:
        """Return whether every partition was answered for within `TIMEOUT_MS`."""
        return not self._silent(now_ms)

    def part(self, now_ms: int) -> str:
        """Return the readiness of Kafka: "ok", or since when which partitions are silent."""
        silent = self._silent(now_ms)
        if not silent:
            return READY
        since = f"since {_instant(min(silent))}"
        if len(silent) == len(self._answered_ms):
            return f"no Kafka broker answers {since}"
        return f"no Kafka broker answers for {len(silent)} of {len(self._answered_ms)} partitions {since}"

    def view(self, now_ms: int) -> bytes:
        """Render the state as JSON. `answered_at` is that of the partition that has been silent for longest."""
        answered_ms = min(self._answered_ms, default=self._started_ms)
        newest_ms = self._newest_ms
        return msgspec.json.encode(
            {
                "live": self.live(now_ms),
                "kafka": self.part(now_ms),
                "answered_at": _instant(min(answered_ms, now_ms)),
                "newest_record_at": None if newest_ms is None else _instant(min(newest_ms, now_ms)),
                "now": _instant(now_ms),
            }
        )

    def _silent(self, now_ms: int) -> list[int]:
        return [each for each in self._answered_ms if now_ms - each >= TIMEOUT_MS]


def _instant(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}Z"


MAX_MISSED: Final = 5_000  # changes; a viewer that missed more gets a snapshot
_RETRY: Final = b"retry: 2000\n\n"
_CACHED_INITIAL_CHUNKS: Final = 8

Histories = Mapping[RecordKind, History]
Events = list[tuple[RecordKind | None, bytes]]


def _record_event(record: HatRecord, position: str = "") -> tuple[RecordKind, bytes]:
    return record.kind, event(record.kind.removesuffix("s"), record.record, position)  # such as "release"


class FeedChanges:
    """Events of one batch of records."""

    def __init__(self, feed: "Feed") -> None:
        """Collect events; publish none before the topics are read to their end, when viewers are admitted."""
        self._feed = feed
        self._offsets = offsets_of(feed.position)
        self.policies: set[str] = set()
        self._events: list[tuple[HatRecord | None, tuple[RecordKind | None, bytes]]] = []

    def add(self, record: HatRecord) -> None:
        """Apply a record of `hats.means`, `hats.estimates` or `hats.running`."""
        self._offsets[record.kind][record.partition] = record.offset + 1
        if self._feed.stored[record.kind].add(record) and self._feed.caught_up:
            self._events.append((record, _record_event(record, str(self._feed.position))))
            self.policies.add(record.policy)

    def budget(self, budget: Budget, partition: int) -> None:
        """Apply a record of `hats.budget`."""
        self._feed.position.budget[partition] = budget.offset + 1
        if self._feed.histories[RecordKind.RELEASES].add_budget(budget) and self._feed.caught_up:
            self._events.append((None, (None, event("budget", budget.record, str(self._feed.position)))))

    def listed(self, index: AnswerIndex | ClusteringIndex, record: bytes) -> None:
        """Apply a record of `hats.queries` or `hats.clusters`. Its event is that of the slots, which list it."""
        policy = index.add(record)
        if policy is not None and self._feed.caught_up:
            self.policies.add(policy)

    def events(self) -> Events:
        """Return the events in order, without records that a later one of the batch has evicted or replaced."""
        stored = self._feed.stored
        return [made for record, made in self._events if record is None or stored[record.kind].contains(record)]


def offsets_of(position: EventPosition) -> Mapping[RecordKind, list[int]]:
    """Return the next offsets of the topic of each kind."""
    return {
        RecordKind.RELEASES: position.means,
        RecordKind.ESTIMATES: position.estimates,
        RecordKind.RUNNING: position.running,
        RecordKind.CONTINUAL: position.means,
    }


class Feed:
    """State of the map: its records, the position up to which they were read, and the viewers.

    Nothing is served before `serve`.
    """

    def __init__(self, keep_ms: int, hub: Hub, position: EventPosition, policy: str) -> None:
        """Args: `keep_ms`, see `History`; `policy`, the name of the default policy."""
        self.histories: Histories = {kind: History(keep_ms) for kind in RecordKind if kind is not RecordKind.RUNNING}
        self.running = RunningIndex(keep_ms)
        self.stored: Mapping[RecordKind, History | RunningIndex] = {**self.histories, RecordKind.RUNNING: self.running}
        self.answers = AnswerIndex()
        self.clusterings = ClusteringIndex()
        self.hub = hub
        self.position = position
        self.freshness = Freshness(now_ms())
        self._sent_status = (True, False)
        self.caught_up = False  # the topics were read to their ends
        self._policy = policy
        self._sent_slots: dict[str, bytes] = {}
        self._initial_chunks: dict[tuple[str, ...], EventChunk] = {}

    def serve(self) -> None:
        """Serve viewers from now on: the topics were read to the ends that they had at the start."""
        self.caught_up = True

    @contextmanager
    def batch(self) -> Iterator[FeedChanges]:
        """Apply a batch of records; send its changes to all viewers at the end of the block."""
        changes = FeedChanges(self)
        yield changes
        self._initial_chunks.clear()
        slots: Events = [
            (None, event("slots", view)) for name in sorted(changes.policies) if (view := self._changed_slots(name))
        ]
        if events := [*slots, *changes.events()]:
            self.hub.send(EventBatch(events))

    def add_topics(self, start: EventPosition) -> None:
        """Read topics of estimates or running means from now on that did not exist before.

        start   the position before the first record of all topics that exist now
        """
        self.position.estimates = self.position.estimates or start.estimates
        self.position.running = self.position.running or start.running

    def send_keepalive(self) -> None:
        """Send an `alive` event with the name of the default policy, and the status, to all viewers."""
        alive = event("alive", json.dumps({"policy": self.select_policy(None)}).encode())
        self.hub.send(EventBatch([(None, alive), (None, self.status())]))

    def send_status_if_changed(self) -> None:
        """Send a `status` event to viewers if brokers became unreachable or answer again, or the first record came."""
        status = (self.freshness.live(now_ms()), self.freshness.has_record)
        if status != self._sent_status:
            self._sent_status = status
            self.hub.send(EventBatch([(None, self.status())]))

    def status(self) -> bytes:
        """Return a `status` event."""
        return event("status", self.freshness.view(now_ms()))

    def select_policy(self, name: str | None) -> str:
        """Return the policy of a name; by default the configured one, or the newest until that one has a release."""
        if name is not None:
            return name
        names = self.names()
        return self._policy if self._policy in names or not names else names[0]

    def names(self) -> list[str]:
        """Return the names of the policies with releases, the one with the newest slot first."""
        return names_of(self.histories[RecordKind.RELEASES], self.histories[RecordKind.CONTINUAL])

    def policy(self, kind: RecordKind, name: str) -> PolicyHistory | None:
        """Return the records of a kind of a policy, or None if there is none. Running means are in `running`."""
        return self.histories[kind].policies.get(name)

    def slots_view(self, name: str) -> bytes:
        """Render the slots of a policy, of all kinds, the periods of its queries, and its clusterings."""
        lists: dict[str, Sequence[Any]] = {
            "queries": self.answers.index(name),
            "clusterings": self.clusterings.ids(name),
            "running": self.running.index(name),
        }
        return slots_view(self.names(), name, {kind: self.policy(kind, name) for kind in self.histories}, lists)

    def initial_chunk(self, name: str | None, seen: EventPosition | None, kind: RecordKind | None = None) -> EventChunk:
        """Return a viewer's first events: the changes since `seen`, or a snapshot.

        Only the last event has an id: a viewer that disconnects before it gets a snapshot next time.
        """
        policy = self.select_policy(name)
        if seen is not None and not self.position.reaches(seen):
            seen = None  # of another log: all such viewers share one snapshot
        key = (policy, "" if seen is None else str(seen), str(self.position), kind or "")
        chunk = self._initial_chunks.get(key)
        if chunk is None:
            kinds = tuple(RecordKind) if kind is None else (kind,)
            missed = None if seen is None else self._missed(seen, kinds)
            events = self._snapshot(policy, kinds) if missed is None else missed
            done = json.dumps({"policy": policy, "anew": missed is None}).encode()
            chunk = EventChunk([_RETRY, *events, event("ready", done, str(self.position))])
            if len(self._initial_chunks) >= _CACHED_INITIAL_CHUNKS:
                self._initial_chunks.clear()
            self._initial_chunks[key] = chunk
        return chunk

    def _missed(self, seen: EventPosition, kinds: Sequence[RecordKind]) -> list[bytes] | None:
        offsets = offsets_of(seen)
        missed = [each for kind in kinds for each in self.stored[kind].since(dict(enumerate(offsets[kind])))]
        if len(missed) > MAX_MISSED:
            return None
        slots = [event("slots", self.slots_view(name)) for name in self.names()]
        return [*slots, *(_record_event(each)[1] for each in missed), *self._budgets()]

    def _snapshot(self, name: str, kinds: Sequence[RecordKind]) -> list[bytes]:
        events = [event("reset", b"{}"), event("slots", self.slots_view(name))]
        for kind in kinds:
            events += [_record_event(each)[1] for each in self._latest(kind, name)]
        return [*events, *self._budgets()]

    def _latest(self, kind: RecordKind, name: str) -> Iterable[HatRecord]:
        """Return the records of a policy's latest slot, and of running means all, which are the newest ones."""
        if kind is RecordKind.RUNNING:
            return self.running.policies.get(name, ())
        policy = self.policy(kind, name)
        latest = None if policy is None else policy.latest()
        return () if latest is None else latest.records.values()

    def _budgets(self) -> list[bytes]:
        return [event("budget", each.record) for each in self.histories[RecordKind.RELEASES].budgets()]

    def _changed_slots(self, name: str) -> bytes | None:
        """Return the policy's slots if they differ from those sent last."""
        view = self.slots_view(name)
        if self._sent_slots.get(name) == view:
            return None
        self._sent_slots[name] = view
        return view
