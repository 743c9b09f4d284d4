"""Release a policy's running sums into a ledger file, slot after slot.

The same pure steps as a worker's, agents/release/continual.py.    [docs/specification/release.md, Running sums]
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.clock import now_ms
from hatcast.stream.fold.hats import Slot
from hatcast.stream.mechanisms import VectorNoise
from hatcast.stream.records.fields import Status, release_id
from hatcast.stream.release.continual import CellHat, RunningSums
from hatcast.stream.release.continual_records import ContinualRelease

_COMMITTED: Final = 500  # releases of one transaction, which waits for the disk once


@dataclass(frozen=True, slots=True)
class ContinualRun:
    """One run over files.

    has_lost   whether records of a local date, or of a later one, were deleted unread
    """

    retained: RetainChunks
    ledger: LedgerFile
    noise: VectorNoise
    has_lost: Callable[[str], bool]

    def records(self, hats: Iterator[RetainedHat]) -> Iterator[bytes]:
        """Yield the record of each final HAT, after it is durable in the ledger. hats: in the order of release."""
        sums = RunningSums(self.ledger.policy)
        for key, of_slot in groupby(hats, lambda hat: hat.slot):
            slot = sums.slot(key)
            in_slot = list(of_slot)
            for at in range(0, len(in_slot), _COMMITTED):
                yield from self._of_slot(sums, slot, in_slot[at : at + _COMMITTED])

    def _of_slot(self, sums: RunningSums, slot: Slot, hats: Sequence[RetainedHat]) -> Iterator[bytes]:
        policy = self.ledger.policy
        names = {hat: release_id(policy.name, hat.slot, hat.cell) for hat in hats}
        records = {name: self.ledger.find(name) for name in names.values()}
        if missing := [hat for hat in hats if records[names[hat]] is None]:
            key = self.ledger.users.pseudonyms.key
            entered = {names[hat]: self.retained.entered(hat, key) for hat in missing}
            drawn, closes = self._drawn(sums, slot, missing)
            records |= self.ledger.commit(drawn, now_ms(), entered, closes=closes)
        for hat in hats:
            self.retained.close(hat, strips=False)
        yield from (record for record in records.values() if record is not None)

    def _drawn(
        self, sums: RunningSums, slot: Slot, hats: Sequence[RetainedHat]
    ) -> tuple[list[ContinualRelease], Status | None]:
        """Return the drawn releases, and the status that closes the horizon, if nothing can be drawn."""
        horizon = sums.horizon(slot.date).first
        stored = self.ledger.states(horizon, [hat.cell for hat in hats])
        of_cells = [
            CellHat(hat.cell, self.retained.chunks(hat), state) for hat, state in zip(hats, stored.states, strict=True)
        ]
        closed = stored.closed
        if closed is None and (stored.damaged or self.has_lost(horizon)):
            closed = Status.INCOMPLETE
        if closed is None:
            try:
                return sums.advance(slot, of_cells, self.noise), None
            except ValueError:  # BadState, or what the fold never lets in
                closed = Status.INCOMPLETE
        return sums.closed(slot, of_cells, closed), closed
