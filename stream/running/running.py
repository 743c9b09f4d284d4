"""Running means, slot by slot.    [docs/specification/continual.md]"""

from collections.abc import Iterable, Iterator, Sequence

from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.running_keys import Running, RunningOf
from hatcast.stream.records import ReleaseRecord, RunningRecord
from hatcast.stream.running.inputs import Inputs, SlotInputs, estimate_inputs, release_inputs
from hatcast.stream.running.means import WindowMeans, window_means
from hatcast.stream.running.records import RecordMaker, Stage
from hatcast.stream.running.setting import RunningSetting
from hatcast.stream.running.state import decode_date, encode_date
from hatcast.stream.running.windows import later, window_at
from hatcast.stream.tracker.observations import ReleasedSlot, end_of, slots_of, start_of
from hatcast.stream.tracker.smoother import DayParts, Smoother, SmootherSetting


class RunningMeans:
    """Makes the running means of one policy, slot by slot. Keeps the inputs of `setting.days` local dates.

    date       local date of the last slot; "" before the first
    snapshot   inputs of the dates before `date`, from which another object continues
    """

    def __init__(self, setting: RunningSetting, dates: Sequence[bytes] = ()) -> None:
        """dates: as `date_state` returned them.

        Raises ValueError for a damaged one, or one of another version or of other kinds of inputs.
        """
        self._setting = setting
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._slots = [slot for date in dates for slot in decode_date(date, self._number)]
        if any(not setting.kinds <= slot.of.keys() for slot in self._slots):
            raise ValueError("a date has no inputs of a kind that is read")
        self._slots.sort(key=lambda slot: slot.start_ms)
        self._present: dict[str, set[int]] = {}
        for running in setting.means if self._slots else ():
            self._present[running.name] = set(self._means(running).cells.tolist())
        self.snapshot = tuple(self._slots)
        self.date = ""

    def add(self, slot: ReleasedSlot, day: DayParts | None) -> list[RunningRecord]:
        """Take the records of a slot or settlement. Return the running means to publish, in order.

        day   the estimates of the date so far, after the smoother has taken the slot; None if no mean is of estimates
        Slots come in the order of their keys.
        """
        if not self._setting.means:
            return []
        if slot.key.is_settlement:
            if day is None or not self._slots or self._slots[-1].date != slot.key.date:
                return []
            self._estimate(day)
            return [*self._records("settled")]
        if slot.key.date != self.date:
            self._begin_day(slot.key.date)
        first, of = slot.records[0], dict.fromkeys(self._setting.kinds, Inputs.of(()))
        if RunningOf.RELEASES in of:
            weights, lower = self._setting.weights, self._setting.value.lower
            of[RunningOf.RELEASES] = release_inputs(slot.records, self._number, weights, lower)
        self._slots.append(SlotInputs(first.date, first.slot, start_of(first), end_of(first), of))
        if day is not None:
            self._estimate(day)
        return [*self._records("live")]

    @property
    def dates(self) -> list[str]:
        """Local dates of the snapshot, in order."""
        return [*dict.fromkeys(slot.date for slot in self.snapshot)]

    def date_state(self, date: str) -> bytes:
        """Return the state of a date of the snapshot."""
        return encode_date([slot for slot in self.snapshot if slot.date == date], self._names)

    def _begin_day(self, date: str) -> None:
        self.date, self.snapshot = date, tuple(self._slots)
        first = later(date, 1 - self._setting.days)
        self._slots = [slot for slot in self._slots if slot.date >= first]

    def _estimate(self, day: DayParts) -> None:
        """Replace the estimates of the present date: each release improves those of earlier slots too."""
        found = estimate_inputs(day, self._number, self._setting.weights)
        for at, slot in enumerate(self._slots):
            if slot.date == self._slots[-1].date:
                of = {**slot.of, RunningOf.ESTIMATES: found.get(slot.name, Inputs.of(()))}
                self._slots[at] = SlotInputs(slot.date, slot.name, slot.start_ms, slot.end_ms, of)

    def _records(self, stage: Stage) -> Iterator[RunningRecord]:
        """Yield the records of all windows that end with the last slot."""
        for running in self._setting.means:
            maker = RecordMaker(self._setting, running, self._slots[-1], stage)
            columns = (column.tolist() for column in self._means(running))
            means = {number: mean for number, *mean in zip(*columns, strict=True)}
            gone = self._present.get(running.name, set()) - means.keys()
            self._present[running.name] = set(means)
            for number in sorted(means.keys() | gone, key=self._names.__getitem__):
                cell = self._names[number]
                yield maker.empty(cell) if number in gone else maker.record(cell, *means[number])

    def _means(self, running: Running) -> WindowMeans:
        is_in = window_at(running, self._slots[-1])
        return window_means((slot.of[running.of] for slot in self._slots if is_in(slot)), len(self._names))

    def _number(self, cell: str) -> int:
        """Return the number of a cell; of a new one the next."""
        if cell not in self._numbers:
            self._numbers[cell] = len(self._names)
            self._names.append(cell)
        return self._numbers[cell]


def running_means_of(policy: Policy, records: Iterable[ReleaseRecord]) -> Iterator[RunningRecord]:
    """Yield all running means that follow from these records of a policy, in any order."""
    setting = RunningSetting.of(policy)
    smoother = Smoother(SmootherSetting.of(policy)) if RunningOf.ESTIMATES in setting.kinds else None
    running = RunningMeans(setting)
    for slot in slots_of(records):
        if smoother is not None:
            smoother.add(slot)
        yield from running.add(slot, None if smoother is None else smoother.day_parts())
