"""What was read, and those who want to hear of it: between the reader of the topics and the viewers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hatcast.agents.map.event_id import Position
from hatcast.agents.map.event_stream import Chunk, event
from hatcast.agents.map.history import Kept, PolicyOf
from hatcast.agents.map.record import Budget, Release
from hatcast.agents.map.rendering import slots_view
from hatcast.agents.map.subscribers import Hub

MOST_MISSED: Final = 5_000  # changes that a viewer who comes back is sent; one who missed more starts anew
_RETRY: Final = b"retry: 2000\n\n"
_STARTS_KEPT: Final = 8


class Changes:
    """The events of one batch of records."""

    def __init__(self, kept: Kept, position: Position, *, told: bool) -> None:
        """Args: `told`, whether anybody is told: while the topics are read to their end nobody is there."""
        self._kept = kept
        self._position = position
        self._told = told
        self.events: list[bytes] = []
        self.policies: set[str] = set()

    def release(self, release: Release) -> None:
        """A record of `hats.means`."""
        self._position.means[release.partition] = release.offset + 1
        if self._kept.add(release) and self._told:
            self.events.append(event("release", release.record, str(self._position)))
            self.policies.add(release.policy)

    def budget(self, budget: Budget, partition: int) -> None:
        """A record of `hats.budget`."""
        self._position.budget[partition] = budget.offset + 1
        if self._kept.add_budget(budget) and self._told:
            self.events.append(event("budget", budget.record, str(self._position)))


class Feed:
    """The map's own state: what is kept, up to which position, and who is listening.

    caught_up   all that stood on the topics at the start was read: until then nothing is served
    """

    def __init__(self, kept: Kept, hub: Hub, position: Position, policy: str) -> None:
        """Args: `policy`, the name of the one that is shown to those who name none."""
        self.kept = kept
        self.hub = hub
        self.position = position
        self.caught_up = False
        self._policy = policy
        self._told: dict[str, bytes] = {}
        self._starts: dict[tuple[str, str, str], Chunk] = {}

    @contextmanager
    def changing(self) -> Iterator[Changes]:
        """Take records in; at the block's end all viewers are told."""
        changes = Changes(self.kept, self.position, told=self.caught_up)
        yield changes
        self._starts.clear()
        events = [event("slots", view) for name in sorted(changes.policies) if (view := self._changed(name))]
        if events or changes.events:
            self.hub.send(Chunk([*events, *changes.events]))

    def alive(self) -> None:
        """Tell all viewers that the line stands, and which policy is shown now to one who names none."""
        name, _ = self.chosen(None)
        self.hub.send(Chunk([event("alive", json.dumps({"policy": name}).encode())]))

    def chosen(self, name: str | None) -> tuple[str, PolicyOf | None]:
        """The policy of that name; without one the configured, or the newest while that one has released nothing."""
        names = self.kept.names()
        if name is None:
            name = self._policy if self._policy in names or not names else names[0]
        return name, self.kept.policies.get(name)

    def start(self, name: str | None, seen: Position | None) -> Chunk:
        """What a viewer is sent first: all that it missed since `seen`, or what there is now.

        Only the last event has an id: one who leaves before it starts anew.
        """
        policy, _ = self.chosen(name)
        key = (policy, "" if seen is None else str(seen), str(self.position))
        chunk = self._starts.get(key)
        if chunk is None:
            missed = None if seen is None or not self.position.reaches(seen) else self._missed(seen)
            events = self._snapshot(policy) if missed is None else missed
            done = json.dumps({"policy": policy, "anew": missed is None}).encode()
            chunk = Chunk([_RETRY, *events, event("ready", done, str(self.position))])
            if len(self._starts) >= _STARTS_KEPT:
                self._starts.clear()
            self._starts[key] = chunk
        return chunk

    def _missed(self, seen: Position) -> list[bytes] | None:
        missed = list(self.kept.since(dict(enumerate(seen.means))))
        if len(missed) > MOST_MISSED:
            return None
        slots = [event("slots", slots_view(self.kept, self.kept.policies[name], name)) for name in self.kept.names()]
        return [*slots, *(event("release", each.record) for each in missed), *self._budgets()]

    def _snapshot(self, name: str) -> list[bytes]:
        policy = self.kept.policies.get(name)
        latest = None if policy is None else policy.latest()
        releases = [] if latest is None else latest.releases.values()
        events = [event("reset", b"{}"), event("slots", slots_view(self.kept, policy, name))]
        return [*events, *(event("release", each.record) for each in releases), *self._budgets()]

    def _budgets(self) -> list[bytes]:
        return [event("budget", each.record) for each in self.kept.budgets()]

    def _changed(self, name: str) -> bytes | None:
        view = slots_view(self.kept, self.kept.policies[name], name)
        if self._told.get(name) == view:
            return None
        self._told[name] = view
        return view
