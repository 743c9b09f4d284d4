"""Fold of devices' reports: one partition's records, in offset order, to contributions. See docs/hybrid.md.

Like the fold of readings, with the same watermark, slots, caps and outcomes. But a report names its HAT, and is one
contribution: a noisy mean with count 1. Acceptance does not depend on private data.
"""

from collections.abc import Callable, Iterable
from typing import Final

import h3.api.basic_int as h3
import numpy as np
from numpy.typing import NDArray

from hatcast.stream.fold.calendar import Calendar, Slot, closes_at
from hatcast.stream.fold.packing import columns
from hatcast.stream.fold.partition_fold import Belongs, PartitionFold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid import DeviceReport, HybridParameters, accepts, decode_report, report_bound, steps_of
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.reading import Outcome

_UNDECODABLE, _BAD_PLACE, _BAD_VALUE = Outcome.UNDECODABLE.value, Outcome.BAD_PLACE.value, Outcome.BAD_VALUE.value
_BAD_TIME, _CELLS, _LATE = Outcome.BAD_TIME.value, Outcome.OUTSIDE_CELLS.value, Outcome.LATE.value
_OTHER, _BAD_SIGNATURE = Outcome.OTHER_POLICY.value, Outcome.BAD_SIGNATURE.value
_STEP: Final = 0  # one report per device and HAT, so one step of `min_interval`

GenuineReport = Callable[[bytes, DeviceReport], bool]
"""Returns whether a record's value is signed by the device of its report."""


class ReportFold(PartitionFold[bytes]):
    """The fold of reports. A contribution's sum is the report's steps + `report_bound`, so it is never negative."""

    def __init__(
        self,
        policy: Policy,
        calendar: Calendar,
        users: FoldUsers,
        belongs: Belongs,
        is_genuine: GenuineReport | None = None,
    ) -> None:
        """is_genuine: None: signatures are not checked."""
        self._is_genuine = is_genuine
        self._parameters = HybridParameters.of(policy)
        self._shift = report_bound(self._parameters)
        self._resolutions = {policy.h3_resolution, *(() if policy.fine is None else policy.fine.resolutions)}
        super().__init__(policy, calendar, users, belongs, 2 * self._shift)

    def _fold(self, timestamp: int, watermark: int, value: bytes) -> str:
        report = decode_report(value)
        if report is None:
            return _UNDECODABLE
        if report.policy_id != self.policy.policy_id:
            return _OTHER
        if not accepts(report.value, report.epsilon, self._parameters):
            return _BAD_VALUE
        cell = h3.str_to_int(report.cell)
        if not h3.is_valid_cell(cell) or h3.get_resolution(cell) not in self._resolutions:
            return _BAD_PLACE
        slot = self._slot_or_outcome(report, timestamp, watermark)
        if isinstance(slot, str):
            return slot
        if not self._is_listed(cell):
            return _CELLS
        # Last, since it costs most; and before the report opens a slot or takes a place of its device.
        if self._is_genuine is not None and not self._is_genuine(value, report):
            return _BAD_SIGNATURE
        device = self._vehicles.get(report.id) or self._add_vehicle(report.id, report.id)
        if device is None:
            return _UNDECODABLE
        steps = steps_of(report.value, self._parameters) + self._shift
        return self._enter(device, self.slot_named(slot.key), cell, _STEP, steps)

    def _is_listed(self, cell: int) -> bool:
        fine, cells = self.policy.fine, self.policy.cells
        if fine is not None and h3.get_resolution(cell) != self.policy.h3_resolution:
            return cell in fine.cells
        return cells is None or cell in cells

    def _slot_or_outcome(self, report: DeviceReport, timestamp: int, watermark: int) -> Slot | str:
        """Return the slot of a report, or the outcome that rejects it."""
        slot = self.calendar.slot_named(report.date, report.slot)
        if slot is None or slot.end_ms > timestamp + self._max_ahead:  # devices report a slot only after its end
            return _BAD_TIME
        if slot.outside is not None:
            return slot.outside
        if watermark >= closes_at(slot, self.policy):
            return _LATE
        return slot


def reports_of(chunks: Iterable[bytes], parameters: HybridParameters) -> NDArray[np.int64]:
    """Unpack the reports of packed contributions: int64 [L], steps, in any order."""
    totals = [columns(chunk)[2] for chunk in chunks]
    if not totals:
        return np.empty(0, np.int64)
    steps: NDArray[np.int64] = np.concatenate(totals) - report_bound(parameters)
    return steps
