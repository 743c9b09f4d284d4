"""Running means, slot by slot.    [docs/specification/continual.md]"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.fold.calendar import later
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.running_keys import Running, RunningOf
from hatcast.stream.records import NormalRecord, ReleaseRecord, RunningRecord
from hatcast.stream.records.fields import release_id
from hatcast.stream.running.inputs import (
    Inputs,
    RunningSetting,
    SlotInputs,
    estimate_inputs,
    release_inputs,
    window_at,
    window_start,
)
from hatcast.stream.tracker.counts import Floats, Integers
from hatcast.stream.tracker.observations import DEVIATIONS, ReleasedSlot, end_of, slots_of, start_of
from hatcast.stream.tracker.smoother import DayParts, Smoother, SmootherSetting

# Quantile of a sum by its excess kurtosis k: z + (z^3 - 3 z) k / 24 (Cornish-Fisher). The next term is negative. No sum
# of Laplace noise has a larger quantile than the noise alone.
_PER_KURTOSIS: Final = (DEVIATIONS**3 - 3 * DEVIATIONS) / 24
_LAPLACE: Final = math.log(20) / math.sqrt(2)
VERSION: Final = 1  # of this format and of the inputs: another version's state is not read
Stage = Literal["live", "settled"]


# For weights w of a cell's slots, W their sum, a the standard deviations of the common parts of the errors and b the
# variances of the own parts, the error of sum(w v) / W has a variance of at most
#
#     (sum(w a) / W)^2 + sum(w^2 b) / W^2
#
# by Cauchy-Schwarz for the common parts, whatever their correlation, and by independence for the own parts.
class WindowMeans(NamedTuple):
    """Means of the cells that have a slot in a window."""

    cells: Integers  # int64 [C]  their numbers, ascending
    slots: Integers  # int64 [C]  number of slots
    # means, sd: float64 [C]  above the policy's lower bound, in its unit; not clipped
    means: Floats
    sd: Floats
    half_widths: Floats  # float64 [C]  of 95 % intervals


def window_means(window: Iterable[Inputs], cells: int) -> WindowMeans:
    """Return the mean of each cell over the slots of a window, in their order. cells: number of cells."""
    slots = np.zeros(cells, np.int64)
    weight, value, common, own, fourth = sums = np.zeros((5, cells))
    for inputs in window:
        at, w = inputs.cells, inputs.weights.astype(np.float64)
        slots[at] += 1
        weight[at] += w
        value[at] += w * inputs.values
        common[at] += w * inputs.common
        own[at] += w**2 * inputs.own
        fourth[at] += w**4 * inputs.fourth
    present = np.flatnonzero(slots)
    weight, value, common, own, fourth = sums[:, present]
    variance = (common**2 + own) / weight**2
    sd = np.sqrt(variance)
    excess = fourth / weight**4 / variance**2
    half_widths = np.minimum(DEVIATIONS + _PER_KURTOSIS * excess, _LAPLACE) * sd
    return WindowMeans(present, slots[present], value / weight, sd, half_widths)


class _Slot(msgspec.Struct, frozen=True):
    """Inputs of a slot. Arrays are little-endian: int32 numbers of cells, then float32 [5, N]."""

    name: str
    start_ms: int
    end_ms: int
    of: dict[str, tuple[bytes, bytes]]  # kind of inputs -> both arrays


class DateState(msgspec.Struct, frozen=True):
    """Inputs of one local date."""

    version: int
    date: str
    cells: Sequence[str]  # names of the cells with a number, by the numbers that the slots have
    slots: Sequence[_Slot]


_DECODER: Final = msgspec.msgpack.Decoder(DateState)


def encode_date(slots: Sequence[SlotInputs], names: Sequence[str]) -> bytes:
    """Return the state of the slots of one date, 1 or more. names: of cells, by their numbers."""
    used = [inputs.cells for slot in slots for inputs in slot.of.values()]
    numbers = np.unique(np.concatenate([*used, np.empty(0, np.int32)]))
    packed = [
        _Slot(
            slot.name,
            slot.start_ms,
            slot.end_ms,
            {kind.value: _packed(inputs, numbers) for kind, inputs in slot.of.items()},
        )
        for slot in slots
    ]
    cells = [names[number] for number in numbers.tolist()]
    return msgspec.msgpack.encode(DateState(VERSION, slots[0].date, cells, packed))


def decode_date(state: bytes, number: Callable[[str], int]) -> list[SlotInputs]:
    """Return the slots of a state. number: of a cell. Raises ValueError if it is damaged, or of another version."""
    try:
        date = _DECODER.decode(state)
        if date.version != VERSION:
            raise ValueError(f"version {date.version}")
        numbers = np.array([number(cell) for cell in date.cells], np.int32)
        return [
            SlotInputs(
                date.date,
                slot.name,
                slot.start_ms,
                slot.end_ms,
                {RunningOf(kind): _unpacked(*arrays, numbers) for kind, arrays in slot.of.items()},
            )
            for slot in date.slots
        ]
    except (*UNREADABLE, IndexError) as error:
        raise ValueError("the state of a date is damaged") from error


def _packed(inputs: Inputs, numbers: np.typing.NDArray[np.int32]) -> tuple[bytes, bytes]:
    columns = np.stack((inputs.weights, inputs.values, inputs.common, inputs.own, inputs.fourth))
    return np.searchsorted(numbers, inputs.cells).astype("<i4").tobytes(), columns.astype("<f4").tobytes()


def _unpacked(cells: bytes, columns: bytes, numbers: np.typing.NDArray[np.int32]) -> Inputs:
    places = np.frombuffer(cells, "<i4")
    return Inputs(numbers[places], *np.frombuffer(columns, "<f4").astype(np.float32).reshape(5, len(places)))


class RecordMaker:
    """Makes the records of one running mean at one slot, which differ by cell."""

    def __init__(self, setting: RunningSetting, running: Running, at: SlotInputs, stage: Stage) -> None:
        """at: last slot of the window."""
        calendar = setting.calendar
        self._setting, self._running, self._at, self._stage = setting, running, at, stage
        self._start = calendar.local(window_start(running, at, calendar)).isoformat()
        self._end = calendar.local(at.end_ms).isoformat()

    def empty(self, cell: str) -> RunningRecord:
        """Return the record of a cell without a slot in its window, and so without a mean."""
        return self._record(cell, 0, None)

    def record(self, cell: str, slots: int, mean: float, sd: float, half_width: float) -> RunningRecord:
        """Return the record of a cell. mean: above the policy's lower bound, not clipped. half_width: of 95 %."""
        value = self._setting.value
        clipped = (min(max(each, 0.0), value.prior.width) for each in (mean, mean - half_width, mean + half_width))
        middle, low, high = (_rounded(value.lower + each, value.digits) for each in clipped)
        normal = NormalRecord(value=middle, sd=_rounded(sd, value.digits), interval95=(low, high))
        return self._record(cell, slots, normal)

    def _record(self, cell: str, slots: int, mean: NormalRecord | None) -> RunningRecord:
        value, running, at = self._setting.value, self._running, self._at
        return RunningRecord(
            running_id=release_id(f"{value.name}/{running.name}", f"{at.date}/{at.name}", cell),
            policy=value.name,
            policy_id=value.policy_id,
            stage=self._stage,
            name=running.name,
            window=running.window.value,
            of=running.of.value,
            cell=cell,
            remainder=True if cell in value.remainders else None,
            date=at.date,
            slot=at.name,
            start=self._start,
            end=self._end,
            slots=slots,
            value=value.value,
            speed=value.speed,
            unit=value.unit,
            weights=None if mean is None else self._setting.weights.value,
            mean=mean,
        )


def _rounded(number: float, digits: int) -> float:
    return round(number, digits) + 0.0  # no -0.0


class RunningWindows:
    """Makes the running means of one policy, slot by slot. Keeps the inputs of `setting.days` local dates."""

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
        for running in setting.means:
            at = self._last(running)
            if at is not None and at.date == self._slots[-1].date:
                self._present[running.name] = set(self._means(running, at).cells.tolist())
        self.snapshot = tuple(self._slots)  # inputs of the dates before `date`, from which another object continues
        self.date = ""  # local date of the last slot; "" before the first

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
        for running in self._setting.means:  # what another object knows that continues from the snapshot
            at = self._last(running)
            if at is None or at.date != self._slots[-1].date:
                self._present.pop(running.name, None)
        self._slots = [slot for slot in self._slots if slot.date >= first]

    def _estimate(self, day: DayParts) -> None:
        """Replace the estimates of the present date: each release improves those of earlier slots too."""
        found = estimate_inputs(day, self._number, self._setting.weights)
        for at, slot in enumerate(self._slots):
            if slot.date == self._slots[-1].date:
                of = {**slot.of, RunningOf.ESTIMATES: found.get(slot.name, Inputs.of(()))}
                self._slots[at] = SlotInputs(slot.date, slot.name, slot.start_ms, slot.end_ms, of)

    def _records(self, stage: Stage) -> Iterator[RunningRecord]:
        """Yield the records of all windows that end with the last slot; with a settlement also those of ended periods.

        After a period's end its mean is left as it is until its date is settled.
        """
        now = self._slots[-1]
        for running in self._setting.means:
            at = self._last(running)
            if at is None or at.date != now.date or (stage == "live" and at is not now):
                continue
            maker = RecordMaker(self._setting, running, at, stage)
            columns = (column.tolist() for column in self._means(running, at))
            means = {number: mean for number, *mean in zip(*columns, strict=True)}
            gone = self._present.get(running.name, set()) - means.keys()
            self._present[running.name] = set(means)
            for number in sorted(means.keys() | gone, key=self._names.__getitem__):
                cell = self._names[number]
                yield maker.empty(cell) if number in gone else maker.record(cell, *means[number])

    def _last(self, running: Running) -> SlotInputs | None:
        """Return the last slot that can end a window: the last one, of a period the last with an hour of it."""
        return next((slot for slot in reversed(self._slots) if running.has_hour(slot.name)), None)

    def _means(self, running: Running, at: SlotInputs) -> WindowMeans:
        is_in = window_at(running, at)
        return window_means((slot.of[running.of] for slot in self._slots if is_in(slot)), len(self._names))

    def _number(self, cell: str) -> int:
        if cell not in self._numbers:
            self._numbers[cell] = len(self._names)
            self._names.append(cell)
        return self._numbers[cell]


def running_means_of(policy: Policy, records: Iterable[ReleaseRecord]) -> Iterator[RunningRecord]:
    """Yield all running means that follow from these records of a policy, in any order."""
    setting = RunningSetting.of(policy)
    smoother = Smoother(SmootherSetting.of(policy)) if RunningOf.ESTIMATES in setting.kinds else None
    running = RunningWindows(setting)
    for slot in slots_of(records):
        if smoother is not None:
            smoother.add(slot)
        yield from running.add(slot, None if smoother is None else smoother.day_parts())
