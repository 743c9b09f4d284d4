"""Map state and event source: connects the topic reader to the viewers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hatcast.agents.map.event_id import Position
from hatcast.agents.map.event_stream import Chunk, event
from hatcast.agents.map.history import History, PolicyHistory
from hatcast.agents.map.record import Budget, Release
from hatcast.agents.map.rendering import slots_view
from hatcast.agents.map.subscribers import Hub

MAX_MISSED: Final = 5_000  # changes; a viewer that missed more gets a snapshot
_RETRY: Final = b"retry: 2000\n\n"
_CACHED_INITIAL_CHUNKS: Final = 8


class Changes:
    """Events of one batch of records."""

    def __init__(self, history: History, position: Position, *, publish: bool) -> None:
        """Args: `publish`, False while the topics are read to their end, before viewers are admitted."""
        self._history = history
        self._position = position
        self._publish = publish
        self.policies: set[str] = set()
        self._events: list[tuple[Release | None, bytes]] = []

    def release(self, release: Release) -> None:
        """Apply a record of `hats.means`."""
        self._position.means[release.partition] = release.offset + 1
        if self._history.add(release) and self._publish:
            self._events.append((release, event("release", release.record, str(self._position))))
            self.policies.add(release.policy)

    def budget(self, budget: Budget, partition: int) -> None:
        """Apply a record of `hats.budget`."""
        self._position.budget[partition] = budget.offset + 1
        if self._history.add_budget(budget) and self._publish:
            self._events.append((None, event("budget", budget.record, str(self._position))))

    def events(self) -> list[bytes]:
        """Return the events in order, without releases that a later one of the batch has evicted."""
        return [text for release, text in self._events if release is None or self._history.contains(release)]


class Feed:
    """State of the map: the history, the position up to which it was read, and the viewers.

    Nothing is served before `serve`.
    """

    def __init__(self, history: History, hub: Hub, position: Position, policy: str) -> None:
        """Args: `policy`, the name of the default policy."""
        self.history = history
        self.hub = hub
        self.position = position
        self._caught_up = False
        self._policy = policy
        self._sent_slots: dict[str, bytes] = {}
        self._initial_chunks: dict[tuple[str, str, str], Chunk] = {}

    @property
    def caught_up(self) -> bool:
        """Whether the topics were read to their ends."""
        return self._caught_up

    def serve(self) -> None:
        """Serve viewers from now on: the topics were read to the ends that they had at the start."""
        self._caught_up = True

    @contextmanager
    def batch(self) -> Iterator[Changes]:
        """Apply a batch of records; send its changes to all viewers at the end of the block."""
        changes = Changes(self.history, self.position, publish=self._caught_up)
        yield changes
        self._initial_chunks.clear()
        slots = [event("slots", view) for name in sorted(changes.policies) if (view := self._changed_slots(name))]
        if events := [*slots, *changes.events()]:
            self.hub.send(Chunk(events))

    def send_keepalive(self) -> None:
        """Send an `alive` event with the name of the default policy to all viewers."""
        name, _ = self.select_policy(None)
        self.hub.send(Chunk([event("alive", json.dumps({"policy": name}).encode())]))

    def select_policy(self, name: str | None) -> tuple[str, PolicyHistory | None]:
        """Return the policy of a name; by default the configured one, or the newest until that one has a release."""
        names = self.history.names()
        if name is None:
            name = self._policy if self._policy in names or not names else names[0]
        return name, self.history.policies.get(name)

    def initial_chunk(self, name: str | None, seen: Position | None) -> Chunk:
        """Return a viewer's first events: the changes since `seen`, or a snapshot.

        Only the last event has an id: a viewer that disconnects before it gets a snapshot next time.
        """
        policy, _ = self.select_policy(name)
        key = (policy, "" if seen is None else str(seen), str(self.position))
        chunk = self._initial_chunks.get(key)
        if chunk is None:
            missed = None if seen is None or not self.position.reaches(seen) else self._missed(seen)
            events = self._snapshot(policy) if missed is None else missed
            done = json.dumps({"policy": policy, "anew": missed is None}).encode()
            chunk = Chunk([_RETRY, *events, event("ready", done, str(self.position))])
            if len(self._initial_chunks) >= _CACHED_INITIAL_CHUNKS:
                self._initial_chunks.clear()
            self._initial_chunks[key] = chunk
        return chunk

    def _missed(self, seen: Position) -> list[bytes] | None:
        missed = list(self.history.since(dict(enumerate(seen.means))))
        if len(missed) > MAX_MISSED:
            return None
        slots = [
            event("slots", slots_view(self.history, self.history.policies[name], name)) for name in self.history.names()
        ]
        return [*slots, *(event("release", each.record) for each in missed), *self._budgets()]

    def _snapshot(self, name: str) -> list[bytes]:
        policy = self.history.policies.get(name)
        latest = None if policy is None else policy.latest()
        releases = [] if latest is None else latest.releases.values()
        events = [event("reset", b"{}"), event("slots", slots_view(self.history, policy, name))]
        return [*events, *(event("release", each.record) for each in releases), *self._budgets()]

    def _budgets(self) -> list[bytes]:
        return [event("budget", each.record) for each in self.history.budgets()]

    def _changed_slots(self, name: str) -> bytes | None:
        """Return the policy's slots if they differ from those sent last."""
        view = slots_view(self.history, self.history.policies[name], name)
        if self._sent_slots.get(name) == view:
            return None
        self._sent_slots[name] = view
        return view
