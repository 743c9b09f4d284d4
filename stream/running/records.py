"""Records of one running mean and slot."""

from typing import Literal

from hatcast.stream.policy.running_keys import Running
from hatcast.stream.records import NormalRecord, RunningRecord
from hatcast.stream.records.fields import release_id
from hatcast.stream.running.inputs import SlotInputs
from hatcast.stream.running.setting import RunningSetting
from hatcast.stream.running.windows import window_start

Stage = Literal["live", "settled"]


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
        clipped = (min(max(each, 0.0), value.upper_bound) for each in (mean, mean - half_width, mean + half_width))
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
            unit=value.unit,
            weights=None if mean is None else self._setting.weights.value,
            mean=mean,
        )


def _rounded(number: float, digits: int) -> float:
    return round(number, digits) + 0.0  # no -0.0
