"""What is kept of a fold before its closed slots are forgotten: nothing, totals, or what a release needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol, TypeVar

from hatcast.agents.batch.ledger_users import Entered
from hatcast.stream.fold.checkpoint import take_changes, totals
from hatcast.stream.fold.packing import pack_seen, strip, unpack
from hatcast.stream.fold.partition_fold import PartitionFold
from hatcast.stream.hybrid.report_fold import ReportFold
from hatcast.stream.release.hats import HatChunks

V = TypeVar("V")

_DIGEST_BYTES: Final = 8  # it tells apart by chance, not against anybody

Totals = tuple[int, int, int, int]
"""Users, readings, sum and max in milli-units."""


class Retention(Protocol):
    """Looks at a fold now and then, and once more at its end."""

    def look(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Keep what will be needed: slots that the clock has closed are forgotten afterwards."""
        ...


class RetainNothing:
    """For outcomes alone."""

    def look(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Leave all of it to be forgotten."""


class RetainTotals:
    """For `--contributions`. Not private.

    hats   `cell/date/slot` -> totals over all partitions
    """

    def __init__(self) -> None:
        self.hats: dict[str, Totals] = {}

    def look(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Count a slot once: when it closes, or at the end. Reports are no readings: only their outcomes are told."""
        if isinstance(fold, ReportFold):
            return
        clock = -1 if fold.clock is None else fold.clock
        closing = [slot for slot in fold.slots.values() if ended or clock >= slot.closes_ms]
        for key, (users, count, total, maximum) in totals(closing).items():
            known = self.hats.get(key, (0, 0, 0, 0))
            self.hats[key] = (known[0] + users, known[1] + count, known[2] + total, max(known[3], maximum))


@dataclass(frozen=True, slots=True, order=True)
class RetainedHat:
    """A HAT, in the order of release: by slot, then cell.

    end_ms   of its slot
    slot     `date/slot`
    """

    end_ms: int
    slot: str
    cell: str

    @property
    def date(self) -> str:
        """The local date whose budget it is charged to."""
        return self.slot.partition("/")[0]

    @property
    def place(self) -> str:
        """`cell/slot`: what a day's charges are summed by."""
        return f"{self.cell}/{self.slot.partition('/')[2]}"


class RetainChunks:
    """For `--ledger`: what a worker's checkpoints write to Redis, packed as there, so that releases read the same.

    At the end of the fold all HATs of the files are in memory. From there on it gets less: what was released is
    stripped for the queries over days that read it, or forgotten.
    """

    def __init__(self) -> None:
        self._hats: dict[RetainedHat, dict[tuple[int, int], bytes]] = {}
        self._reports: dict[RetainedHat, dict[tuple[int, int], bytes]] = {}
        self._stripped: dict[str, dict[str, bytes]] = {}

    def look(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Take what changed since the last look; it is absolute, so it replaces what was kept."""
        del ended
        changes = take_changes(fold)
        hats = self._reports if isinstance(fold, ReportFold) else self._hats
        for (slot, cell, chunk), packed in changes.chunks.items():
            hat = RetainedHat(changes.slots[slot], slot, cell)
            hats.setdefault(hat, {})[partition, chunk] = packed

    def hats(self) -> list[RetainedHat]:
        """Those with readings or reports, in the order of release."""
        return sorted(self._hats.keys() | self._reports.keys())

    def chunks(self, hat: RetainedHat) -> HatChunks:
        """What a HAT has from all partitions; nothing where nobody was."""
        return HatChunks(*(list(kept.get(hat, {}).values()) for kept in (self._hats, self._reports)))

    def entered(self, hat: RetainedHat, key: bytes) -> Entered:
        """Who is in a HAT. `key`: of the digest, so that times cannot be guessed from it."""
        readings, reports = (
            sorted((row.pseudonym, row.seen) for chunk in kept.get(hat, {}).values() for row in unpack(chunk))
            for kept in (self._hats, self._reports)
        )
        digest = blake2b(len(readings).to_bytes(8, "big"), digest_size=_DIGEST_BYTES, key=key)
        for pseudonym, seen in (*readings, *reports):
            digest.update(pseudonym + pack_seen(seen))
        vehicles, devices = (b"".join([pseudonym for pseudonym, _ in rows]) for rows in (readings, reports))
        return Entered(vehicles, devices, digest.digest())

    def close(self, hat: RetainedHat, *, strips: bool) -> None:
        """A HAT has its record: forget who was there and when, and the rest too unless it `strips` for queries."""
        self._reports.pop(hat, None)
        chunks = self._hats.pop(hat, None)
        if chunks is not None and strips:
            self._stripped.setdefault(hat.slot, {})[hat.cell] = b"".join(map(strip, chunks.values()))

    def stripped(self, slot: str) -> Mapping[str, bytes]:
        """Cell -> its stripped chunks, of a slot (`date/slot`) whose HATs are closed; none: no cell had readings."""
        return self._stripped.get(slot, {})

    def stripped_slots(self) -> list[str]:
        """All such slots, `date/slot`."""
        return sorted(self._stripped)
