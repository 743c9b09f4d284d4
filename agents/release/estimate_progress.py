"""Position of the publisher of estimates on `hats.means`, with its models.    [decisions/0032]"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import takewhile

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.agents.config.topics_table import TopicsTable
from hatcast.agents.kafka.cloud_events import cloud_event
from hatcast.agents.kafka.producers import Message
from hatcast.agents.redis.estimates import StoredRunning, StoredSnapshot
from hatcast.agents.release.loop import PublicationProgress
from hatcast.agents.release.means_reader import MeansReader, ReadRelease
from hatcast.stream.policy.running_keys import RunningOf
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.records import EstimateRecord, RunningRecord
from hatcast.stream.running.running import RunningMeans
from hatcast.stream.running.setting import RunningSetting
from hatcast.stream.tracker.observations import ReleasedSlot, SlotKey, end_of
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting


class EstimateProgress:
    """Position of the publisher on `hats.means`, with its models.

    waiting        records of the slots and settlements that are not taken yet
    stored_date    date of the last snapshot that is stored
    """

    def __init__(self, settings: Settings, stored: StoredSnapshot | None, dates: Mapping[str, bytes]) -> None:
        """dates: inputs of running means, by local date.

        Without the inputs that its running means need, it reads `hats.means` from the beginning, and sends nothing of
        the dates that the snapshot says were sent.
        """
        self._settings = settings
        self._running_setting = RunningSetting.of(settings.policy)
        running = self._restored(stored, dates)
        self._stored = set() if running is None else set(dates)
        self._silent_before = stored.state.date if running is None and stored is not None else ""
        used = None if running is None else stored
        self._running = running or RunningMeans(self._running_setting)
        self.reader = MeansReader(settings, {} if used is None else used.positions)
        self._smoother = Smoother(SmootherSetting.of(settings.policy), None if used is None else used.state)
        self.waiting: dict[SlotKey, list[ReadRelease]] = defaultdict(list)
        self.stored_date = self._smoother.date
        self.seen: PublicationProgress | None = None

    def read(self) -> bool:
        """Read new records. Return whether they are all up to the topic's present end. Blocks."""
        records, complete = self.reader.read()
        for each in records:
            key = SlotKey.of(each.record)
            # A slot that was taken is published again after a crash, and read again after a snapshot.
            if key > self._smoother.taken:
                self.waiting[key].append(each)
        return complete

    def complete(self, published: PublicationProgress) -> list[SlotKey]:
        """Return the slots and settlements to take, in order: up to the first that is not published as a whole."""
        ended = [key for key in self.waiting if not key.is_settlement and self._end_of(key) <= published.through_ms]
        newest = max((key.date for key in ended), default="")

        def is_complete(key: SlotKey) -> bool:
            if key.is_settlement:  # a later date begins after it, also where Redis has lost that the date was settled
                return key.date <= published.settled or key.date < newest
            return key in ended

        return list(takewhile(is_complete, sorted(self.waiting)))

    def take(self, key: SlotKey, partitions: int) -> list[Message]:
        """Add a slot or settlement to the model; return its messages. Takes seconds of computing for 10,000 cells.

        partitions   of `hats.estimates` and of `hats.running`
        """
        self._positions = self._positions_now()
        slot = ReleasedSlot(key, [each.record for each in self.waiting[key]])
        estimates = self._smoother.add(slot)
        of_estimates = RunningOf.ESTIMATES in self._running_setting.kinds
        running = self._running.add(slot, self._smoother.day_parts() if of_estimates else None)
        del self.waiting[key]
        if key.date < self._silent_before:
            return []
        topics = self._settings.topics
        messages = [estimate_message(topics, each, partitions) for each in estimates]
        return messages + [running_message(topics, each, partitions) for each in running]

    def snapshot(self) -> tuple[StoredSnapshot, Mapping[str, bytes]]:
        """Return the state at the beginning of the date of the slot that was taken last, its first.

        The second part are those inputs of running means, by local date, that were not stored yet.
        """
        dates, setting = self._running.dates, self._running_setting
        new = {date: self._running.date_state(date) for date in dates if date not in self._stored}
        self._stored |= new.keys()
        running = StoredRunning(days=setting.days, dates=dates)
        return StoredSnapshot(positions=self._positions, state=self._smoother.snapshot, running=running), new

    def _restored(self, stored: StoredSnapshot | None, dates: Mapping[str, bytes]) -> RunningMeans | None:
        """Return the running means at the beginning of the snapshot's date; None if a needed date is not stored."""
        setting = self._running_setting
        if stored is None or not setting.means:
            return RunningMeans(setting)
        running = stored.running
        if running.days < setting.days or running.dates != [*dates]:
            return None
        try:
            return RunningMeans(setting, [*dates.values()])
        except ValueError:
            return None

    def _end_of(self, key: SlotKey) -> int:
        return end_of(self.waiting[key][0].record)

    def _positions_now(self) -> dict[int, int]:
        """Return for each partition the offset of its first record that is not taken."""
        positions = dict(self.reader.positions)
        for records in self.waiting.values():
            for each in records:
                positions[each.partition] = min(positions[each.partition], each.offset)
        return positions


def estimate_message(topics: TopicsTable, estimate: EstimateRecord, partitions: int) -> Message:
    """Return the message of an estimate: equal for equal estimates. partitions: of the topic."""
    return Message(
        topic=topics.estimates,
        partition=by_murmur2(estimate.cell.encode(), partitions),
        key=estimate.estimate_id.encode(),
        value=msgspec.json.encode(estimate),
        headers=cloud_event("estimate", f"{estimate.estimate_id}/{estimate.stage}", topics.telemetry),
    )


def running_message(topics: TopicsTable, running: RunningRecord, partitions: int) -> Message:
    """Return the message of a running mean: equal for equal records. partitions: of the topic."""
    return Message(
        topic=topics.running,
        partition=by_murmur2(running.cell.encode(), partitions),
        key=f"{running.policy}/{running.name}/{running.cell}".encode(),
        value=msgspec.json.encode(running),
        headers=cloud_event("running", f"{running.running_id}/{running.stage}", topics.telemetry),
    )
